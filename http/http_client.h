// The other end of a control socket: one request at a time, for programs that may wait.
//
// Threads: one at a time. The server is not trusted: what it sends is bounded, and so is the time
// that it may take.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/sync.h"
#include "http/http_message.h"
#include "http/http_reader.h"

namespace ringside {

class HttpClient {
 public:
  static constexpr size_t kMostBody = 64 << 20;

  // `limit` is for this, and then for each call in all.
  static absl::StatusOr<HttpClient> Connect(const std::string& path, absl::Duration limit);

  // `target` is a path, and a query if there is one, both encoded. Any status is a response; an
  // error says that none came. After an error, and after a response that closes the connection,
  // further calls fail.
  absl::StatusOr<HttpResponse> Call(std::string_view method, std::string_view target,
                                    std::string_view body = {},
                                    std::string_view content_type = "application/json");

  // A GET whose response goes on: hands each piece to `take` until that returns false, or the
  // response ends. The limit of time is for the head; pieces may be long in coming. Any status but
  // 200 is an error with what the server says.
  absl::Status Follow(std::string_view target, const std::function<bool(std::string_view)>& take);

 private:
  HttpClient(UniqueFd fd, std::string path, absl::Duration limit)
      : fd_(std::move(fd)), path_(std::move(path)), limit_(limit) {}

  absl::Status Send(std::string_view method, std::string_view target, std::string_view body,
                    std::string_view content_type, Deadline deadline);
  // Until `is_enough`, which is asked after each piece.
  absl::Status Receive(HttpResponseReader& reader, Deadline deadline,
                       const std::function<bool()>& is_enough);
  absl::StatusOr<std::unique_ptr<HttpResponseReader>> ReceiveHead(const HttpMessageLimits& limits,
                                                                  bool to_head, Deadline deadline);
  absl::Status WaitFor(short events, Deadline deadline) const;
  absl::Status Broken(std::string_view what);

  UniqueFd fd_;  // none after an error
  std::string path_;
  absl::Duration limit_;
  std::string input_;  // has come and was not read
};

}  // namespace ringside
