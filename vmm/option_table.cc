#include "vmm/option_table.h"

#include "base/nearest.h"

namespace ringside {

Json OptionValue<std::vector<QueueShare>>::Get(const std::vector<QueueShare>& shares) {
  Json json = Json::array();
  for (const QueueShare& share : shares) {
    json.push_back({{"id", share.io_thread}, {"queues", share.queues}});
  }
  return json;
}

void OptionValue<std::vector<QueueShare>>::Set(const Json& json, std::vector<QueueShare>& shares) {
  shares.clear();
  for (const Json& share : json) {
    shares.push_back({.io_thread = share["id"].get<std::string>(),
                      .queues = share["queues"].get<std::vector<uint16_t>>()});
  }
}

absl::Status UnknownKey(const OptionPlace& place, const std::string& key,
                        const std::vector<std::string>& names) {
  constexpr size_t kLongest = 80;
  const std::string word = key.substr(0, kLongest);
  const std::string shown = place.is_text ? '\'' + word + '\'' : word;
  return BadInput("%s%s is unknown: did you mean '%s'?", place.prefix, shown, Nearest(word, names));
}

absl::Status MissingKey(const OptionPlace& place, const char* owner, const OptionSpec& spec) {
  const std::string key = place.prefix + spec.name + place.between;
  return BadInput("%s%s is missing: %s needs one; give %s%s", place.prefix, spec.name, owner, key,
                  ValuePlaceholder(spec));
}

}  // namespace ringside
