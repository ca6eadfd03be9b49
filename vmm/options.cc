#include "vmm/options.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/huge_pages.h"
#include "base/nearest.h"
#include "block/block_backend.h"
#include "kvm/cpu_baseline.h"
#include "poll/io_threads.h"
#include "vmm/device_ids.h"
#include "vmm/disk_options.h"
#include "vmm/io_thread_options.h"
#include "vmm/machine_options.h"
#include "vmm/net_options.h"
#include "vmm/throttle_options.h"
#include "vmm/vsock_options.h"

namespace ringside {
namespace {

absl::Status CheckId(std::set<std::string>& ids, const std::string& id) {
  if (ids.insert(id).second) return absl::OkStatus();
  return BadInput("two devices have the id '%s': give each its own", id);
}

absl::Status CheckRestoreHandler(const MachineConfig& config) {
  if (config.restore_handler.empty()) return absl::OkStatus();
  if (config.restore.empty()) {
    return BadInput(
        "restore-handler '%s' gives a machine the memory of a snapshot, and %s: give the "
        "snapshot's directory as restore, or no handler",
        config.restore_handler,
        config.from != nullptr ? "a template has memory of its own" : "there is none to restore");
  }
  if (config.restore_memory != RestoreMemory::kAuto) {
    return BadInput(
        "restore-handler '%s' gives the memory that restore-memory would have from the snapshot's "
        "file: leave one of them out",
        config.restore_handler);
  }
  return absl::OkStatus();
}

// What is mapped from a snapshot are pages of its file, which are small ones.
absl::Status CheckHugePages(const MachineConfig& config) {
  if (config.huge_pages == HugePages::k2M && config.memory % kHugePageSize != 0) {
    return BadInput("hugepages 2M has no room for %d bytes of memory: give a multiple of 2M",
                    config.memory);
  }
  const bool is_restored = !config.restore.empty() || config.from != nullptr;
  if (config.huge_pages == HugePages::kOff || !is_restored || IsMemoryCopied(config)) {
    return absl::OkStatus();
  }
  const bool has_handler = !config.restore_handler.empty();
  return BadInput(
      "hugepages %s is for memory of the machine's own, and this one has it from %s: give "
      "restore-memory=copied%s, or leave hugepages out",
      HugePagesName(config.huge_pages),
      has_handler              ? absl::StrFormat("'%s'", config.restore_handler)
      : config.restore.empty() ? "a template"
                               : absl::StrFormat("'%s'", config.restore),
      has_handler ? ", and no restore-handler" : "");
}

// As MoveQueue and statistics call them.
absl::Status CheckIds(const MachineConfig& config) {
  std::set<std::string> ids = {kRngId};
  for (size_t i = 0; i < config.disks.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(CheckId(ids, DiskId(config.disks[i], i)));
  }
  for (size_t i = 0; i < config.networks.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(CheckId(ids, NetworkId(config.networks[i], i)));
  }
  if (config.vsock) RINGSIDE_RETURN_IF_ERROR(CheckId(ids, VsockId(*config.vsock)));
  for (const DeviceConfig& device : config.devices) {
    RINGSIDE_RETURN_IF_ERROR(CheckId(ids, device.id));
  }
  for (size_t i = 0; i < config.assigned.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(CheckId(ids, AssignedId(config.assigned[i], i)));
  }
  return absl::OkStatus();
}

// Two networks would take each other's frames.
absl::Status CheckTaps(const std::vector<NetConfig>& networks) {
  std::map<std::string, std::string> users;  // ids, by what each network uses
  for (size_t i = 0; i < networks.size(); ++i) {
    const std::string id = NetworkId(networks[i], i);
    std::vector<std::string> uses;
    // Of a pattern, such as vm%d, the kernel makes another tap each time.
    if (networks[i].tap.find('%') == std::string::npos && !networks[i].tap.empty()) {
      uses.push_back(absl::StrFormat("tap '%s'", networks[i].tap));
    }
    for (const int fd : networks[i].fds) uses.push_back(absl::StrFormat("descriptor %d", fd));
    for (const std::string& use : uses) {
      const auto [user, is_new] = users.emplace(use, id);
      if (is_new) continue;
      return BadInput("networks '%s' and '%s' have %s both: give each a tap of its own",
                      user->second, id, use);
    }
  }
  return absl::OkStatus();
}

// Of a list of disks, networks, threads and such: as many I/O threads, of which there may be most.
constexpr size_t kMostItems = IoThreads::kMax;

OptionPlace Item(const char* list, size_t number) {
  return {.prefix = absl::StrFormat("%s[%d].", list, number)};
}

absl::Status ReadObjectOption(const ObjectOption& option, const Json& given,
                              MachineOptions& options) {
  option.clear(options);
  if (!option.repeats)
    return option.add({.prefix = std::string(option.json) + "."}, given, options);
  if (!given.is_array()) return BadInput("%s is not a list: write [ ... ]", option.json);
  if (given.size() > kMostItems) {
    return BadInput("%s has %d items, and no machine has more than %d", option.json, given.size(),
                    kMostItems);
  }
  for (size_t i = 0; i < given.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(option.add(Item(option.json, i), given[i], options));
  }
  return absl::OkStatus();
}

std::vector<std::string> JsonNames() {
  std::vector<std::string> names = MachineOwnOptions().Names();
  for (const ObjectOption& option : ObjectOptions()) names.emplace_back(option.json);
  return names;
}

absl::Status ReadMember(const std::string& key, const Json& given, MachineOptions& options) {
  for (const ObjectOption& option : ObjectOptions()) {
    if (key == option.json) return ReadObjectOption(option, given, options);
    if (key == option.flag) return UnknownKey(OptionPlace(), key, {option.json});
  }
  const OptionPlace place;
  const auto* own = MachineOwnOptions().Find(key);
  if (own == nullptr) return UnknownKey(place, key, JsonNames());
  return ReadOption(MachineOwnOptions(), *own, place, given, options.machine);
}

}  // namespace

absl::Status SetOption(const std::string& flag, std::span<const std::string> texts,
                       MachineOptions& options) {
  for (const ObjectOption& option : ObjectOptions()) {
    if (flag != option.flag) continue;
    option.clear(options);
    const OptionPlace place = {.prefix = "--" + flag + " ", .is_text = true};
    for (const std::string& text : texts) {
      RINGSIDE_ASSIGN_OR_RETURN(const Json given, option.parse(text));
      RINGSIDE_RETURN_IF_ERROR(option.add(place, given, options));
    }
    return absl::OkStatus();
  }
  const OptionPlace place = {.prefix = "--", .between = " ", .is_text = true};
  const auto* own = MachineOwnOptions().Find(flag);
  if (own == nullptr) return UnknownKey(place, flag, MachineOwnOptions().Names());
  for (const std::string& text : texts) {
    RINGSIDE_RETURN_IF_ERROR(ReadOption(MachineOwnOptions(), *own, place, text, options.machine));
  }
  return absl::OkStatus();
}

std::vector<OptionFlag> OptionFlags() {
  std::vector<OptionFlag> flags;
  for (const auto& option : MachineOwnOptions().options) flags.push_back({option.spec().name});
  for (const ObjectOption& option : ObjectOptions()) flags.push_back({option.flag, option.repeats});
  return flags;
}

absl::Status ReadOptions(const Json& json, MachineOptions& options) {
  if (!json.is_object()) return BadInput("the configuration is not a JSON object: write { ... }");
  for (const auto& [key, given] : json.items()) {
    if (key == kSchemaKey && given.is_string()) continue;
    RINGSIDE_RETURN_IF_ERROR(ReadMember(key, given, options));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> PrintOptions(const MachineOptions& options) {
  Json json = PrintObject(MachineOwnOptions(), options.machine);
  for (const ObjectOption& option : ObjectOptions()) {
    Json printed = option.print(options);
    if (!printed.empty()) json[option.json] = std::move(printed);
  }
  try {
    static_cast<void>(json.dump());
  } catch (const Json::exception&) {
    return BadInput("a path or another text is not UTF-8, and so has no place in JSON: rename it");
  }
  return json;
}

bool IsMemoryCopied(const MachineConfig& config) {
  if (!config.restore_handler.empty()) return false;
  if (config.restore_memory != RestoreMemory::kAuto) {
    return config.restore_memory == RestoreMemory::kCopied;
  }
  return std::ranges::any_of(config.disks, [](const DiskConfig& disk) {
    return !disk.backend.Describe().takes_any_memory;
  });
}

absl::Status CheckBeginning(const MachineConfig& config) {
  if (!HasBeginning(config)) {
    return BadInput("kernel is missing: give its file's path, or restore, a snapshot's directory");
  }
  if (!config.kernel.empty() && !config.restore.empty()) {
    return BadInput("there are a kernel, '%s', and a snapshot to restore, '%s': give one of them",
                    config.kernel, config.restore);
  }
  if (config.from != nullptr && !(config.kernel.empty() && config.restore.empty())) {
    return BadInput("there are a template and '%s': give one of them",
                    config.kernel.empty() ? config.restore : config.kernel);
  }
  if (config.cpu_baseline == CpuBaseline::kHost || !config.kernel.empty()) return absl::OkStatus();
  return BadInput(
      "cpu-baseline %s is for a machine that boots, and %s goes on with the processor it was saved "
      "with: leave one of them out",
      CpuBaselineName(config.cpu_baseline),
      config.restore.empty() ? "a template" : absl::StrFormat("'%s'", config.restore));
}

// Who writes it down for one machine expects it to be so. A program may well restore with what its
// machine was booted with, so of MachineConfig that is no error.
absl::Status CheckIsForABoot(const MachineConfig& config) {
  if (!config.kernel.empty()) return absl::OkStatus();
  const MachineConfig usual;
  for (const auto& [option, is_given] :
       {std::pair("initrd", config.initrd != usual.initrd),
        std::pair("cmdline", config.command_line != usual.command_line),
        std::pair("entry", config.protocol != usual.protocol)}) {
    if (!is_given) continue;
    return BadInput("%s is for a machine that boots, and a saved one has booted: leave it out",
                    option);
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const MachineConfig& config) {
  RINGSIDE_RETURN_IF_ERROR(CheckObject(MachineOwnOptions(), {}, config));
  RINGSIDE_RETURN_IF_ERROR(CheckBeginning(config));
  RINGSIDE_RETURN_IF_ERROR(CheckRestoreHandler(config));
  RINGSIDE_RETURN_IF_ERROR(CheckHugePages(config));
  for (size_t i = 0; i < config.disks.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(CheckDisk(Item("disks", i), config.disks[i]));
  }
  for (size_t i = 0; i < config.networks.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(CheckNet(Item("networks", i), config.networks[i]));
  }
  if (config.vsock) {
    RINGSIDE_RETURN_IF_ERROR(CheckObject(VsockOptions(), {.prefix = "vsock."}, *config.vsock));
  }
  for (size_t i = 0; i < config.io_threads.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(
        CheckObject(IoThreadOptions(), Item("iothreads", i), config.io_threads[i]));
  }
  for (size_t i = 0; i < config.assigned.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(CheckObject(AssignedOptions(), Item("vfio", i), config.assigned[i]));
  }
  for (size_t i = 0; i < config.throttle_groups.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(
        CheckObject(ThrottleGroupOptions(), Item("throttle-groups", i), config.throttle_groups[i]));
  }
  RINGSIDE_RETURN_IF_ERROR(CheckThrottles(config));
  RINGSIDE_RETURN_IF_ERROR(CheckTaps(config.networks));
  return CheckIds(config);
}

absl::Status CheckOptions(const MachineOptions& options) {
  RINGSIDE_RETURN_IF_ERROR(CheckOptions(options.machine));
  RINGSIDE_RETURN_IF_ERROR(CheckIsForABoot(options.machine));
  if (options.serial.target != SerialOptions::Target::kFile) return absl::OkStatus();
  return CheckObject(SerialFileOptions(), {.prefix = "serial."}, options.serial);
}

}  // namespace ringside
