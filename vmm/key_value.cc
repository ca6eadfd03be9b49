#include "vmm/key_value.h"

#include "base/status.h"

namespace ringside {
namespace {

// Splits at single commas; a double one stands for itself.
std::vector<std::string> SplitFields(const std::string& text) {
  std::vector<std::string> fields(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      fields.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      fields.back() += text[++i];
    } else {
      fields.emplace_back();
    }
  }
  return fields;
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> ParseKeyValues(const std::string& option,
                                                      const std::string& text,
                                                      const std::string& hint) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const std::string& field : SplitFields(text)) {
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
