#include "command/key_value.h"

#include <algorithm>

#include "absl/time/time.h"
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

absl::StatusOr<std::vector<KeyValue>> ParseKeyValues(const std::string& option,
                                                     const std::string& text,
                                                     const std::string& hint) {
  std::vector<KeyValue> result;
  for (const std::string& field : SplitFields(text)) {
    const size_t equals = field.find('=');
    if (equals == std::string::npos) {
      return BadInput("%s '%s' is no key=value; %s%s", option, field, hint, field);
    }
    const std::string key = field.substr(0, equals);
    // Of two values one would be left out in silence.
    if (std::ranges::find(result, key, &KeyValue::key) != result.end()) {
      return BadInput("%s has '%s=' twice; give it once", option, key);
    }
    result.push_back({key, field.substr(equals + 1)});
  }
  return result;
}

absl::StatusOr<int64_t> ParseShortTime(const char* name, const std::string& value,
                                       const char* example) {
  absl::Duration duration;
  if (!absl::ParseDuration(absl::string_view(value.data(), value.size()), &duration) ||
      duration < absl::ZeroDuration() || duration > absl::Seconds(1)) {
    return BadInput("%s='%s' cannot be; give a time up to 1s, such as %s", name, value, example);
  }
  return absl::ToInt64Nanoseconds(duration);
}

}  // namespace ringside
