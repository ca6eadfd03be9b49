// Reads one HTTP message out of bytes as they come, in whatever pieces. What a message may take is
// bounded (HttpMessageLimits), and what a reader holds besides the message is one line.
//
// Threads: one at a time. A reader is for one message; what comes after that is left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_head.h"
#include "http/http_message.h"

namespace ringside {

// In bytes, but for `fields`.
struct HttpMessageLimits {
  size_t line = 8 << 10;     // the start line, a header field, a chunk's size
  size_t header = 16 << 10;  // all lines together, trailers included
  size_t fields = 64;        // header fields and trailers, by number
  size_t body = 1 << 20;
};

class HttpReader {
 public:
  explicit HttpReader(const HttpMessageLimits& limits) : limits_(limits) {}
  virtual ~HttpReader() = default;
  HttpReader(const HttpReader&) = delete;
  HttpReader& operator=(const HttpReader&) = delete;

  // Takes bytes from the front of `text` until the message is complete or has a fault. Returns how
  // many it took.
  size_t Feed(std::string_view text);
  // There will be no more bytes. A response without a length is complete now; any other message
  // that is not has a fault.
  void End();

  bool has_begun() const { return has_begun_; }
  bool has_head() const { return stage_ > Stage::kFieldLine && stage_ != Stage::kFailed; }
  bool is_complete() const { return stage_ == Stage::kComplete; }
  const HttpFault& fault() const { return fault_; }
  // As soon as there is a head.
  const HttpFraming& framing() const { return framing_; }
  // What of the body has come since it was last taken. Whoever takes it as it comes can read a body
  // that is longer than memory.
  std::string TakeBody() { return std::exchange(body_, {}); }

 protected:
  virtual HttpFault TakeStartLine(std::string_view line) = 0;
  virtual HttpFault TakeHead(const std::vector<HttpField>& fields, HttpFraming& framing) = 0;
  std::vector<HttpField> fields_;

 private:
  enum class Stage {
    kStartLine,
    kFieldLine,
    kLength,
    kUntilClose,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailer,
    kComplete,
    kFailed
  };

  bool TakesBody() const;
  bool IsChunkLine() const;
  size_t FeedLine(std::string_view text);
  size_t FeedBody(std::string_view text);
  HttpFault TakeLine(std::string_view line);
  HttpFault TakeField(std::string_view line);
  HttpFault TakeChunkSize(std::string_view line);
  HttpFault BeginBody();
  HttpFault ExpectBody(uint64_t length, Stage stage);
  HttpFault LineTooLong() const;
  void Fail(HttpFault fault);

  const HttpMessageLimits limits_;
  Stage stage_ = Stage::kStartLine;
  bool has_begun_ = false;
  bool skipped_empty_line_ = false;
  std::string line_;
  size_t header_size_ = 0;
  size_t field_count_ = 0;
  HttpFraming framing_;
  uint64_t body_left_ = 0;  // of the body or of the chunk
  std::string body_;
  HttpFault fault_;
};

class HttpRequestReader final : public HttpReader {
 public:
  explicit HttpRequestReader(const HttpMessageLimits& limits) : HttpReader(limits) {}

  // As far as it has been read.
  const HttpRequest& request() const { return request_; }
  bool is_head() const { return request_.method == "HEAD"; }
  int minor_version() const { return minor_version_; }
  // Once it is complete.
  HttpRequest Take();

 private:
  HttpFault TakeStartLine(std::string_view line) override;
  HttpFault TakeHead(const std::vector<HttpField>& fields, HttpFraming& framing) override;

  HttpRequest request_;
  int minor_version_ = 1;
};

class HttpResponseReader final : public HttpReader {
 public:
  // `to_head`: of a HEAD request, whose response has no body.
  HttpResponseReader(const HttpMessageLimits& limits, bool to_head)
      : HttpReader(limits), to_head_(to_head) {}

  int status() const { return status_; }
  HttpResponse Take();

 private:
  HttpFault TakeStartLine(std::string_view line) override;
  HttpFault TakeHead(const std::vector<HttpField>& fields, HttpFraming& framing) override;

  const bool to_head_;
  int status_ = 0;
  int minor_version_ = 1;
};

}  // namespace ringside
