#include "command/iothread_option.h"

#include <array>
#include <optional>
#include <vector>

#include "base/nearest.h"
#include "base/status.h"
#include "command/key_value.h"
#include "command/number_list.h"

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
  constexpr std::array kKinds = {PollKind::kNever,      PollKind::kAlways,   PollKind::kFixed,
                                 PollKind::kGrowShrink, PollKind::kWeighted, PollKind::kCost};
  RINGSIDE_ASSIGN_OR_RETURN(config.tuning.poll.kind,
                            Choose("--iothread poll", value, kKinds, PollKindName));
  return absl::OkStatus();
}

absl::Status SetMax(IoThreadConfig& config, const std::string& value) {
  RINGSIDE_ASSIGN_OR_RETURN(config.tuning.poll.max_ns,
                            ParseShortTime("--iothread max", value, "32us"));
  return absl::OkStatus();
}

struct Range {
  uint32_t least, most;
};

absl::Status SetWhole(const char* key, Range range, const std::string& value, uint32_t& to) {
  const auto number = ParseNumber<uint32_t>(value);
  if (!number || *number < range.least || *number > range.most) {
    return BadInput("--iothread %s='%s' cannot be; give %d to %d", key, value, range.least,
                    range.most);
  }
  to = *number;
  return absl::OkStatus();
}

absl::Status SetGrow(IoThreadConfig& config, const std::string& value) {
  return SetWhole("grow", {2, kMaxFactor}, value, config.tuning.poll.grow);
}

absl::Status SetShrink(IoThreadConfig& config, const std::string& value) {
  return SetWhole("shrink", {0, kMaxFactor}, value, config.tuning.poll.shrink);
}

absl::Status SetWeight(IoThreadConfig& config, const std::string& value) {
  return SetWhole("weight", {0, kMaxPollWeight}, value, config.tuning.poll.weight);
}

absl::Status SetPrice(IoThreadConfig& config, const std::string& value) {
  const auto price = ParseNumber<double>(value);
  if (!price || !(*price > 0 && *price <= kMaxPollPrice)) {
    return BadInput("--iothread price='%s' cannot be; give more than 0, up to %g, such as 1.0",
                    value, kMaxPollPrice);
  }
  config.tuning.poll.price = *price;
  return absl::OkStatus();
}

absl::Status SetCpuMax(IoThreadConfig& config, const std::string& value) {
  std::optional<double> percent;
  if (value.ends_with('%')) {
    percent = ParseNumber<double>(std::string_view(value).substr(0, value.size() - 1));
  }
  if (!percent || !(*percent > 0 && *percent <= 100)) {
    return BadInput(
        "--iothread cpu-max='%s' cannot be; give a share of a CPU of more than 0%%, up to 100%%, "
        "such as 20%%",
        value);
  }
  config.tuning.poll.cpu_max = *percent / 100;
  return absl::OkStatus();
}

absl::Status SetSignal(IoThreadConfig& config, const std::string& value) {
  constexpr std::array kWhen = {Signalling::kEarly, Signalling::kBatched};
  const auto signalling = ByName(value, kWhen, SignallingName);
  if (!signalling) {
    return BadInput("--iothread signal='%s' is unknown; give early or batched", value);
  }
  config.tuning.signalling = *signalling;
  return absl::OkStatus();
}

absl::Status SetWaiter(IoThreadConfig& config, const std::string& value) {
  using Waiter = IoThreadConfig::Waiter;
  constexpr std::array kWaiters = {Waiter::kAuto, Waiter::kUring, Waiter::kEpoll};
  const auto waiter = ByName(value, kWaiters, WaiterName);
  if (!waiter) {
    return BadInput("--iothread waiter='%s' is unknown; give auto, io_uring or epoll", value);
  }
  config.waiter = *waiter;
  return absl::OkStatus();
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
    Key{"id", SetId},         Key{"poll", SetPoll},      Key{"max", SetMax},
    Key{"grow", SetGrow},     Key{"shrink", SetShrink},  Key{"weight", SetWeight},
    Key{"price", SetPrice},   Key{"cpu-max", SetCpuMax}, Key{"signal", SetSignal},
    Key{"waiter", SetWaiter}, Key{"cpu", SetCpu}};

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
