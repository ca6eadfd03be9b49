#include "vmm/throttle_options.h"

#include <set>
#include <string_view>

#include "block/throttle.h"
#include "vmm/device_ids.h"

namespace ringside {

const OptionTable<ThrottleGroupConfig>& ThrottleGroupOptions() {
  static const OptionTable<ThrottleGroupConfig> table = [] {
    OptionTable<ThrottleGroupConfig> made = {"a throttle group",
                                             {{{.name = "id",
                                                .type = Id(),
                                                .doc = "its name, for throttle-group= of disks",
                                                .is_required = true},
                                               [](auto& group) -> auto& { return group.id; }}}};
    AddThrottleOptions<ThrottleGroupConfig, &ThrottleGroupConfig::limits>(made.options);
    return made;
  }();
  return table;
}

Json ThrottleJson(const ThrottleLimits& limits) {
  return PrintObject(ThrottleGroupOptions(), {.limits = limits});
}

absl::Status CheckLimits(const std::string& prefix, const ThrottleLimits& limits) {
  return CheckObject(ThrottleGroupOptions(), {.prefix = prefix}, {.id = "any", .limits = limits});
}

absl::Status CheckThrottles(const MachineConfig& config) {
  std::set<std::string_view> groups;
  for (const ThrottleGroupConfig& group : config.throttle_groups) {
    if (!groups.insert(group.id).second) {
      return BadInput("two throttle groups have the id '%s': give each its own", group.id);
    }
    RINGSIDE_RETURN_IF_ERROR(
        Throttle::Check(absl::StrFormat("throttle group '%s'", group.id), group.limits));
  }
  for (size_t i = 0; i < config.networks.size(); ++i) {
    const NetConfig& network = config.networks[i];
    RINGSIDE_RETURN_IF_ERROR(
        Throttle::Check(absl::StrFormat("network '%s'", NetworkId(network, i)), network.throttle));
  }
  for (size_t i = 0; i < config.disks.size(); ++i) {
    const DiskConfig& disk = config.disks[i];
    const std::string id = DiskId(disk, i);
    RINGSIDE_RETURN_IF_ERROR(Throttle::Check(absl::StrFormat("disk '%s'", id), disk.throttle));
    if (disk.throttle_group.empty() || groups.contains(disk.throttle_group)) continue;
    return BadInput("disk '%s': there is no throttle group '%s': give --throttle-group id=%s,...",
                    id, disk.throttle_group, disk.throttle_group);
  }
  return absl::OkStatus();
}

}  // namespace ringside
