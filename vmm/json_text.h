// JSON as text. A path may hold any bytes, and a name from another's file anything: what is no
// UTF-8 is replaced, so this never throws.
#pragma once

#include <string>

#include "vmm/option_type.h"

namespace ringside {

inline std::string JsonText(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}
// A line, for programs that read them one by one.
inline std::string JsonLine(const Json& json) {
  return JsonText(json) + '\n';
}
// Indented, for people too.
inline std::string JsonDocument(const Json& json) {
  return JsonText(json, 2) + '\n';
}

}  // namespace ringside
