// The options of limits, for disks and for groups of disks.
#pragma once

#include <string>
#include <vector>

#include "ringside/config.h"
#include "vmm/option_table.h"

namespace ringside {

namespace throttle_options {

constexpr uint64_t kMostIops = 1'000'000'000;
constexpr uint64_t kMostBps = uint64_t{1} << 50;
constexpr uint64_t kMostSeconds = 86'400;

template <typename Object, auto kLimits, auto kLimit>
void AddLimit(const char* name, const char* max_name, const char* length_name,
              const OptionType& type, const char* doc, std::vector<Option<Object>>& options) {
  options.push_back({{.name = name, .type = type, .doc = doc, .unset = "any"},
                     [](auto& object) -> auto& { return (object.*kLimits.*kLimit).average; }});
  options.push_back(
      {{.name = max_name, .type = type, .doc = "the same during a burst", .unset = "no bursts"},
       [](auto& object) -> auto& { return (object.*kLimits.*kLimit).max; }});
  options.push_back({{.name = length_name,
                      .type = Whole(1, kMostSeconds),
                      .unit = "seconds",
                      .doc = "how many seconds a burst may last, after a long idle time",
                      .unset = "1"},
                     [](auto& object) -> auto& { return (object.*kLimits.*kLimit).max_length; }});
}

}  // namespace throttle_options

// `kLimits`: where an Object has them.
template <typename Object, ThrottleLimits Object::* kLimits>
void AddThrottleOptions(std::vector<Option<Object>>& options) {
  using Limits = ThrottleLimits;
  const OptionType iops = Whole(1, throttle_options::kMostIops);
  const OptionType bps = Size(1, throttle_options::kMostBps, 1);
  const auto add = [&]<auto kLimit>(const char* name, const char* max_name, const char* length_name,
                                    const OptionType& type, const char* doc) {
    throttle_options::AddLimit<Object, kLimits, kLimit>(name, max_name, length_name, type, doc,
                                                        options);
  };
  add.template operator()<&Limits::iops_total>("iops-total", "iops-total-max",
                                               "iops-total-max-length", iops,
                                               "how many requests per second it may have");
  add.template operator()<&Limits::iops_read>("iops-read", "iops-read-max", "iops-read-max-length",
                                              iops, "how many reads per second");
  add.template operator()<&Limits::iops_write>("iops-write", "iops-write-max",
                                               "iops-write-max-length", iops,
                                               "how many writes, flushes and discards per second");
  add.template operator()<&Limits::bps_total>("bps-total", "bps-total-max", "bps-total-max-length",
                                              bps, "how many bytes per second, such as 10M");
  add.template operator()<&Limits::bps_read>("bps-read", "bps-read-max", "bps-read-max-length", bps,
                                             "how many bytes per second are read");
  add.template operator()<&Limits::bps_write>("bps-write", "bps-write-max", "bps-write-max-length",
                                              bps, "how many bytes per second are written");
  options.push_back({{.name = "iops-size",
                      .type = Size(1, uint64_t{1} << 30, 1),
                      .doc = "a request of twice as many bytes counts as two, and so on",
                      .unset = "each counts as one"},
                     [](auto& object) -> auto& { return (object.*kLimits).iops_size; }});
}

const OptionTable<ThrottleGroupConfig>& ThrottleGroupOptions();

// The limits that are set, as they are given.
Json ThrottleJson(const ThrottleLimits& limits);

// Of limits that no option was read for. `prefix` is what the message begins with.
absl::Status CheckLimits(const std::string& prefix, const ThrottleLimits& limits);
// That the groups have names of their own and the disks' groups are there, and that all limits make
// sense.
absl::Status CheckThrottles(const MachineConfig& config);

}  // namespace ringside
