#include "vmm/key_value.h"

#include "base/status.h"

namespace ringside {

std::vector<std::string> SplitAtSingle(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != separator) {
      parts.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == separator) {
      parts.back() += text[++i];
    } else {
      parts.emplace_back();
    }
  }
  return parts;
}

absl::StatusOr<nlohmann::ordered_json> ParseKeyValues(const std::string& option,
                                                      const std::string& text,
                                                      const std::string& hint) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const std::string& field : SplitAtSingle(text, ',')) {
    const size_t equals = field.find('=');
    if (equals == std::string::npos) {
      return BadInput("%s '%s' is not KEY=VALUE: %s%s", option, field, hint, field);
    }
    const std::string key = field.substr(0, equals);
    // Of two values one would be left out in silence.
    if (object.contains(key)) {
      return BadInput("%s has '%s=' twice: give it once", option, key);
    }
    object[key] = field.substr(equals + 1);
  }
  return object;
}

}  // namespace ringside
