#include "tools/iothread_option.h"

#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "base/nearest.h"
#include "base/status.h"
#include "tools/key_value.h"
#include "tools/number_list.h"

namespace ringside {
namespace {

constexpr uint32_t kMaxFactor = 1000;

using Setter = absl::Status (*)(IoThreadConfig&, const std::string& value);

absl::Status SetId(IoThreadConfig& config, const std::string& value) {
  if (value.empty()) return BadInput("--iothread id= is empty; give a name");
  config.name = value;
  return absl::OkStatus();
}

absl::Status SetPoll(IoThreadConfig& config, const std::string& value) {
  std::vector<std::string> names;
  for (const PollKind kind :
       {PollKind::kNever, PollKind::kAlways, PollKind::kFixed, PollKind::kGrowShrink}) {
    names.emplace_back(PollKindName(kind));
    if (names.back() != value) continue;
    config.tuning.poll.kind = kind;
    return absl::OkStatus();
  }
  return BadInput("--iothread poll='%s' is unknown; did you mean '%s'?", value,
                  Nearest(value, names));
}

absl::Status SetMax(IoThreadConfig& config, const std::string& value) {
  RINGSIDE_ASSIGN_OR_RETURN(config.tuning.poll.max_ns,
                            ParseShortTime("--iothread max", value, "32us"));
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

absl::Status SetGrow(IoThreadConfig& config, const std::string& value) {
  return SetFactor("grow", 2, value, config.tuning.poll.grow);
}

absl::Status SetShrink(IoThreadConfig& config, const std::string& value) {
  return SetFactor("shrink", 0, value, config.tuning.poll.shrink);
}

absl::Status SetSignal(IoThreadConfig& config, const std::string& value) {
  for (const Signalling signalling : {Signalling::kEarly, Signalling::kBatched}) {
    if (value != SignallingName(signalling)) continue;
    config.tuning.signalling = signalling;
    return absl::OkStatus();
  }
  return BadInput("--iothread signal='%s' is unknown; give early or batched", value);
}

absl::Status SetCpu(IoThreadConfig& config, const std::string& value) {
  const std::optional<std::vector<int>> cpus = ParseNumberList(value);
  if (!cpus) return BadInput("--iothread cpu='%s' is no list of CPUs; give such as 0-2+5", value);
  config.cpus = *cpus;
  return absl::OkStatus();
}

struct Key {
  const char* name;
  Setter set;
};
constexpr std::array kKeys = {
    Key{"id", SetId},         Key{"poll", SetPoll},     Key{"max", SetMax}, Key{"grow", SetGrow},
    Key{"shrink", SetShrink}, Key{"signal", SetSignal}, Key{"cpu", SetCpu}};

absl::Status SetField(IoThreadConfig& config, const KeyValue& field) {
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (field.key == key.name) return key.set(config, field.value);
    names.emplace_back(key.name);
  }
  return BadInput("--iothread '%s' is unknown; did you mean '%s'?", field.key,
                  Nearest(field.key, names));
}

}  // namespace

absl::StatusOr<IoThreadConfig> ParseIoThread(const std::string& text) {
  IoThreadConfig config;
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<KeyValue> fields,
                            ParseKeyValues("--iothread", text, "a policy is given as poll="));
  for (const KeyValue& field : fields) {
    RINGSIDE_RETURN_IF_ERROR(SetField(config, field));
  }
  return config;
}

}  // namespace ringside
