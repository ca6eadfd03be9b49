#include "tools/iothread_option.h"

#include <array>
#include <charconv>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "tools/key_value.h"
#include "base/nearest.h"

namespace ringside {
namespace {

constexpr absl::Duration kMaxMax = absl::Seconds(1);
constexpr uint32_t kMaxFactor = 1000;

using Setter = absl::Status (*)(PollConfig&, const std::string& value);

absl::Status SetPoll(PollConfig& poll, const std::string& value) {
  std::vector<std::string> names;
  for (const PollKind kind :
       {PollKind::kNever, PollKind::kAlways, PollKind::kFixed, PollKind::kGrowShrink}) {
    names.emplace_back(PollKindName(kind));
    if (names.back() != value) continue;
    poll.kind = kind;
    return absl::OkStatus();
  }
  return BadInput("--iothread poll='%s' is unknown; did you mean '%s'?", value,
                  Nearest(value, names));
}

absl::Status SetMax(PollConfig& poll, const std::string& value) {
  absl::Duration duration;
  if (!absl::ParseDuration(absl::string_view(value.data(), value.size()), &duration) ||
      duration < absl::ZeroDuration() || duration > kMaxMax) {
    return BadInput("--iothread max='%s' cannot be; give a time up to 1s, such as 32us", value);
  }
  poll.max_ns = absl::ToInt64Nanoseconds(duration);
  return absl::OkStatus();
}

absl::Status SetFactor(const char* key, uint32_t least, const std::string& value, uint32_t& to) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least ||
      number > kMaxFactor) {
    return BadInput("--iothread %s='%s' cannot be; give %d to %d", key, value, least, kMaxFactor);
  }
  to = number;
  return absl::OkStatus();
}

absl::Status SetGrow(PollConfig& poll, const std::string& value) {
  return SetFactor("grow", 2, value, poll.grow);
}

absl::Status SetShrink(PollConfig& poll, const std::string& value) {
  return SetFactor("shrink", 0, value, poll.shrink);
}

struct Key {
  const char* name;
  Setter set;
};
constexpr std::array kKeys = {Key{"poll", SetPoll}, Key{"max", SetMax}, Key{"grow", SetGrow},
                              Key{"shrink", SetShrink}};

absl::Status SetField(PollConfig& poll, const KeyValue& field) {
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (field.key == key.name) return key.set(poll, field.value);
    names.emplace_back(key.name);
  }
  return BadInput("--iothread '%s' is unknown; did you mean '%s'?", field.key,
                  Nearest(field.key, names));
}

}  // namespace

absl::StatusOr<IoThreadConfig> ParseIoThread(const std::string& text) {
  IoThreadConfig config;
  RINGSIDE_ASSIGN_OR_RETURN(
      const std::vector<KeyValue> fields,
      ParseKeyValues("--iothread", text, "give poll=never, always, fixed or grow-shrink"));
  for (const KeyValue& field : fields) {
    RINGSIDE_RETURN_IF_ERROR(SetField(config.tuning.poll, field));
  }
  return config;
}

}  // namespace ringside
