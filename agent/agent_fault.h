// Why something could not be done, as the protocol says it: Linux's number and a text.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace ringside {

struct AgentFault {
  int error = 0;  // 0: there is none
  std::string text;

  explicit operator bool() const { return error != 0; }
  // "cannot make '/a/b': No such file or directory"
  static AgentFault Of(int error, std::string_view what, std::string_view name) {
    std::string text(what);
    const char* const reason = strerrordesc_np(error);  // null for a number that there is not
    text.append(" '").append(name).append("': ").append(reason == nullptr ? "error" : reason);
    return {error, std::move(text)};
  }
};

}  // namespace ringside
