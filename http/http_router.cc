#include "http/http_router.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/nearest.h"

namespace ringside {
namespace {

bool IsCapture(std::string_view part) {
  return part.size() > 2 && part.starts_with('{') && part.ends_with('}');
}

std::vector<std::string> Parts(const std::string& path) {
  return absl::StrSplit(path, '/');
}

bool IsUnder(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) && (path.size() == prefix.size() || prefix.empty() ||
                                      prefix.ends_with('/') || path[prefix.size()] == '/');
}

}  // namespace

std::string_view HttpCall::Capture(std::string_view name) const {
  const auto found = std::ranges::find(captures, name, &std::pair<std::string, std::string>::first);
  return found == captures.end() ? std::string_view() : found->second;
}

void HttpRouteSet::Add(std::string method, std::string pattern, HttpCallHandler handler) {
  auto path = std::ranges::find(paths_, pattern, &Path::pattern);
  if (path == paths_.end()) {
    std::vector<std::string> parts = Parts(pattern);
    path = paths_.insert(paths_.end(), {std::move(pattern), std::move(parts), {}});
  }
  path->methods.push_back({std::move(method), std::move(handler)});
}

void HttpRouteSet::Handle(HttpRequest request, HttpAnswer answer) const {
  const std::vector<std::string> parts = Parts(request.path);
  const auto path =
      std::ranges::find_if(paths_, [&](const Path& each) { return Fits(each, parts); });
  if (path == paths_.end()) return answer.Send(NotFound(request.path));
  const std::string wanted = request.method == "HEAD" ? "GET" : request.method;
  const auto method = std::ranges::find(path->methods, wanted, &Method::name);
  if (method != path->methods.end()) {
    HttpCall call{.request = std::move(request), .captures = {}, .answer = std::move(answer)};
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string& name = path->parts[i];
      if (IsCapture(name)) call.captures.emplace_back(name.substr(1, name.size() - 2), parts[i]);
    }
    return method->handler(std::move(call));
  }
  // RFC 9110, section 15.5.6: with what is allowed.
  HttpResponse response =
      request.method == "OPTIONS"
          ? HttpResponse{.status = 204}
          : FormError(405, absl::StrFormat("'%s' takes no %s; use one of %s", path->pattern,
                                           request.method, Allowed(*path)));
  response.fields.push_back({"Allow", Allowed(*path)});
  answer.Send(std::move(response));
}

bool HttpRouteSet::Fits(const Path& path, const std::vector<std::string>& parts) {
  return std::ranges::equal(path.parts, parts,
                            [](const std::string& pattern, const std::string& part) {
                              return IsCapture(pattern) ? !part.empty() : pattern == part;
                            });
}

std::string HttpRouteSet::Allowed(const Path& path) {
  std::vector<std::string> names = {"OPTIONS"};
  for (const Method& method : path.methods) {
    names.push_back(method.name);
    if (method.name == "GET") names.emplace_back("HEAD");
  }
  std::ranges::sort(names);
  return absl::StrJoin(names, ", ");
}

HttpResponse HttpRouteSet::NotFound(const std::string& path) const {
  std::vector<std::string> patterns;
  patterns.reserve(paths_.size());
  for (const Path& each : paths_) patterns.push_back(each.pattern);
  // As much as a name may have letters: the comparison takes the product of the lengths.
  const std::string nearest = Nearest(path.substr(0, 256), patterns);
  if (nearest.empty()) return FormError(404, absl::StrFormat("there is no '%s' here", path));
  return FormError(404, absl::StrFormat("there is no '%s'; did you mean '%s'?", path, nearest));
}

HttpRouteSet& HttpRouter::Group(std::string prefix, HttpErrorForm form_error) {
  return sets_.emplace_back(std::move(prefix), std::move(form_error));
}

void HttpRouter::Handle(HttpRequest request, HttpAnswer answer) {
  if (request.path == "*") {  // OPTIONS of the server as a whole
    return answer.Send(
        {.status = 204, .fields = {{"Allow", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"}}});
  }
  const HttpRouteSet& set = SetOf(request.path);
  set.Handle(std::move(request), std::move(answer));
}

HttpResponse HttpRouter::Refuse(int status, std::string_view path, std::string_view reason) {
  return SetOf(path).FormError(status, reason);
}

const HttpRouteSet& HttpRouter::SetOf(std::string_view path) const {
  const HttpRouteSet* longest = &sets_.front();
  for (const HttpRouteSet& set : sets_) {
    if (IsUnder(path, set.prefix()) && set.prefix().size() > longest->prefix().size()) {
      longest = &set;
    }
  }
  return *longest;
}

}  // namespace ringside
