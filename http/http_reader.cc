#include "http/http_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace ringside {

size_t HttpReader::Feed(std::string_view text) {
  size_t taken = 0;
  while (taken < text.size() && !is_complete() && stage_ != Stage::kFailed) {
    has_begun_ = true;
    const std::string_view rest = text.substr(taken);
    taken += TakesBody() ? FeedBody(rest) : FeedLine(rest);
  }
  return taken;
}

void HttpReader::End() {
  if (stage_ == Stage::kUntilClose) {
    stage_ = Stage::kComplete;
  } else if (!is_complete() && stage_ != Stage::kFailed) {
    Fail({400, "the message ends in its middle; send the rest of it, too"});
  }
}

bool HttpReader::TakesBody() const {
  return stage_ == Stage::kLength || stage_ == Stage::kUntilClose || stage_ == Stage::kChunk;
}

// A line between the pieces of a body, of which there may be any number.
bool HttpReader::IsChunkLine() const {
  return stage_ == Stage::kChunkSize || stage_ == Stage::kChunkEnd;
}

size_t HttpReader::FeedLine(std::string_view text) {
  constexpr std::string_view kEnd = "\r\n";
  const size_t end = text.find('\n');
  const size_t count = end == std::string_view::npos ? text.size() : end + 1;
  if (line_.size() + count > limits_.line + kEnd.size()) {
    Fail(LineTooLong());
    return count;
  }
  line_.append(text.substr(0, count));
  if (end == std::string_view::npos) return count;
  if (!IsChunkLine()) header_size_ += line_.size();
  if (!line_.ends_with(kEnd)) {
    Fail({400, "a line ends in LF alone; end it in CRLF"});
    return count;
  }
  line_.resize(line_.size() - kEnd.size());
  HttpFault fault = CheckText(line_);
  if (!fault) fault = TakeLine(line_);
  if (fault) Fail(std::move(fault));
  line_.clear();
  return count;
}

HttpFault HttpReader::TakeLine(std::string_view line) {
  if (header_size_ > limits_.header) {
    return {431, absl::StrFormat("a header of more than %d bytes; send less", limits_.header)};
  }
  switch (stage_) {
    case Stage::kStartLine:
      // RFC 9112, section 2.2: one from a client that ended its last body with it.
      if (line.empty() && !std::exchange(skipped_empty_line_, true)) return {};
      stage_ = Stage::kFieldLine;
      return TakeStartLine(line);
    case Stage::kFieldLine:
      return line.empty() ? BeginBody() : TakeField(line);
    case Stage::kTrailer:
      if (!line.empty()) return TakeField(line);
      stage_ = Stage::kComplete;
      return {};
    case Stage::kChunkSize:
      return TakeChunkSize(line);
    default:  // kChunkEnd
      stage_ = Stage::kChunkSize;
      if (line.empty()) return {};
      return {400, "a chunk is longer than its size says; send as much as that"};
  }
}

HttpFault HttpReader::TakeField(std::string_view line) {
  if (++field_count_ > limits_.fields) {
    return {431, absl::StrFormat("more than %d header fields; send fewer", limits_.fields)};
  }
  HttpField field;
  if (HttpFault fault = ParseFieldLine(line, field)) return fault;
  // Trailers are dropped: one must not become a header field (RFC 9110, section 6.5.1).
  if (stage_ == Stage::kFieldLine) fields_.push_back(std::move(field));
  return {};
}

HttpFault HttpReader::BeginBody() {
  if (HttpFault fault = TakeHead(fields_, framing_)) return fault;
  switch (framing_.body) {
    case HttpFraming::Body::kLength:
      if (framing_.length > 0) return ExpectBody(framing_.length, Stage::kLength);
      stage_ = Stage::kComplete;
      return {};
    case HttpFraming::Body::kChunked:
      stage_ = Stage::kChunkSize;
      return {};
    case HttpFraming::Body::kUntilClose:
      body_left_ = limits_.body;
      stage_ = Stage::kUntilClose;
      return {};
  }
  return {};
}

HttpFault HttpReader::TakeChunkSize(std::string_view line) {
  uint64_t size = 0;
  if (HttpFault fault = ParseChunkSize(line, size)) return fault;
  if (size > 0) return ExpectBody(size, Stage::kChunk);
  stage_ = Stage::kTrailer;
  return {};
}

HttpFault HttpReader::ExpectBody(uint64_t length, Stage stage) {
  if (length > limits_.body - std::min(body_.size(), limits_.body)) {
    return {413, absl::StrFormat("a body of more than %d bytes; send less", limits_.body)};
  }
  body_left_ = length;
  stage_ = stage;
  return {};
}

size_t HttpReader::FeedBody(std::string_view text) {
  if (stage_ == Stage::kUntilClose) {
    if (text.size() > limits_.body - std::min(body_.size(), limits_.body)) {
      Fail({413, absl::StrFormat("a body of more than %d bytes; send less", limits_.body)});
    } else {
      body_.append(text);
    }
    return text.size();
  }
  const size_t count = std::min<uint64_t>(text.size(), body_left_);
  body_.append(text.substr(0, count));
  body_left_ -= count;
  if (body_left_ == 0) {
    stage_ = stage_ == Stage::kChunk ? Stage::kChunkEnd : Stage::kComplete;
  }
  return count;
}

HttpFault HttpReader::LineTooLong() const {
  if (stage_ == Stage::kStartLine) {
    return {414, absl::StrFormat("a request line of more than %d bytes; send a shorter target",
                                 limits_.line)};
  }
  const bool is_field = stage_ == Stage::kFieldLine || stage_ == Stage::kTrailer;
  return {is_field ? 431 : 400,
          absl::StrFormat("a line of more than %d bytes; send a shorter one", limits_.line)};
}

void HttpReader::Fail(HttpFault fault) {
  stage_ = Stage::kFailed;
  fault_ = std::move(fault);
}

HttpRequest HttpRequestReader::Take() {
  request_.fields = std::move(fields_);
  request_.body = TakeBody();
  return std::move(request_);
}

HttpFault HttpRequestReader::TakeStartLine(std::string_view line) {
  return ParseRequestLine(line, request_, minor_version_);
}

HttpFault HttpRequestReader::TakeHead(const std::vector<HttpField>& fields, HttpFraming& framing) {
  return FrameRequest(fields, minor_version_, framing);
}

HttpResponse HttpResponseReader::Take() {
  const HttpField* type = FindField(fields_, "Content-Type");
  return {.status = status_,
          .content_type = type == nullptr ? "" : type->value,
          .body = TakeBody(),
          .fields = std::move(fields_)};
}

HttpFault HttpResponseReader::TakeStartLine(std::string_view line) {
  return ParseStatusLine(line, status_, minor_version_);
}

HttpFault HttpResponseReader::TakeHead(const std::vector<HttpField>& fields, HttpFraming& framing) {
  return FrameResponse(fields, status_, minor_version_, to_head_, framing);
}

}  // namespace ringside
