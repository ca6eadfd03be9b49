// Which function answers which request: tables of methods and paths.
//
// Routes are added before the server starts. Threads: afterwards the server's alone.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/http_answer.h"
#include "http/http_handler.h"
#include "http/http_message.h"

namespace ringside {

struct HttpCall {
  HttpRequest request;
  std::vector<std::pair<std::string, std::string>> captures;  // as the pattern names them
  HttpAnswer answer;

  // Empty if the pattern has no such name.
  std::string_view Capture(std::string_view name) const;
};
using HttpCallHandler = std::function<void(HttpCall)>;
// How an API tells errors.
using HttpErrorForm = std::function<HttpResponse(int status, std::string_view reason)>;

// The routes under one prefix, with one form of errors.
class HttpRouteSet {
 public:
  HttpRouteSet(std::string prefix, HttpErrorForm form_error)
      : prefix_(std::move(prefix)), form_error_(std::move(form_error)) {}

  // `pattern` is the whole path, prefix included: "/ringside/v1/disks/{id}", where a part in braces
  // takes any one part that is not empty. Of patterns that fit a path the first that was added is
  // taken, for all its methods. HEAD is served by GET, and OPTIONS by the set itself.
  void Add(std::string method, std::string pattern, HttpCallHandler handler);

  const std::string& prefix() const { return prefix_; }
  HttpResponse FormError(int status, std::string_view reason) const {
    return form_error_(status, reason);
  }
  void Handle(HttpRequest request, HttpAnswer answer) const;

 private:
  struct Method {
    std::string name;
    HttpCallHandler handler;
  };
  struct Path {
    std::string pattern;
    std::vector<std::string> parts;
    std::vector<Method> methods;
  };

  static bool Fits(const Path& path, const std::vector<std::string>& parts);
  static std::string Allowed(const Path& path);
  HttpResponse NotFound(const std::string& path) const;

  const std::string prefix_;
  const HttpErrorForm form_error_;
  std::vector<Path> paths_;
};

class HttpRouter final : public HttpHandler {
 public:
  HttpRouter() { sets_.emplace_back("", JsonError); }

  // Outside of any group; errors are those of JsonError.
  void Add(std::string method, std::string pattern, HttpCallHandler handler) {
    sets_.front().Add(std::move(method), std::move(pattern), std::move(handler));
  }
  // The routes of all paths that begin with these parts: "/api/v1" has "/api/v1" and "/api/v1/vm",
  // not "/api/v11". A path belongs to the group with the longest prefix. The router owns the group.
  HttpRouteSet& Group(std::string prefix, HttpErrorForm form_error);

  void Handle(HttpRequest request, HttpAnswer answer) override;
  HttpResponse Refuse(int status, std::string_view path, std::string_view reason) override;

 private:
  const HttpRouteSet& SetOf(std::string_view path) const;

  std::deque<HttpRouteSet> sets_;  // a deque: whoever has a group keeps it
};

}  // namespace ringside
