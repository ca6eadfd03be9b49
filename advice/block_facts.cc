#include "advice/block_facts.h"

#include <algorithm>
#include <sys/sysmacros.h>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/host_files.h"
#include "base/host_nodes.h"
#include "base/number_list.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;

// Stacks of devices are made by hand, and are not this high.
constexpr int kMostLevels = 8;

struct Reading {
  const fs::path& root;
  const DmReader& read_dm;
};

// "none [mq-deadline] kyber": the one in brackets is in use.
void ReadScheduler(const fs::path& queue, BlockFacts& facts) {
  for (std::string name : std::vector<std::string>(
           absl::StrSplit(FirstLine(queue / "scheduler"), ' ', absl::SkipEmpty()))) {
    if (name.size() > 2 && name.front() == '[') {
      name = name.substr(1, name.size() - 2);
      facts.scheduler = name;
    }
    facts.schedulers.push_back(name);
  }
}

void ReadQueue(const fs::path& queue, BlockFacts& facts) {
  ReadScheduler(queue, facts);
  facts.nomerges = FirstNumber(queue / "nomerges");
  facts.rq_affinity = FirstNumber(queue / "rq_affinity");
  facts.nr_requests = FirstNumber(queue / "nr_requests");
  facts.rotational = FirstNumber(queue / "rotational");
  facts.discard_max = FirstNumber(queue / "discard_max_bytes");
  facts.physical_block = FirstNumber(queue / "physical_block_size");
  facts.write_cache = FirstLine(queue / "write_cache");
}

// Of a SCSI disk; the directory has the one disk's address for its name.
std::string ScsiCacheType(const fs::path& disk) {
  const fs::path directory = disk / "device/scsi_disk";
  const std::vector<std::string> names = NamesIn(directory);
  return names.empty() ? "" : FirstLine(directory / names.front() / "cache_type");
}

// With several paths to a namespace it lies in no PCI device's directory, but beside links to its
// controllers.
fs::path DeviceDirectory(const fs::path& name_space) {
  const fs::path parent = name_space.parent_path();
  if (!absl::StartsWith(parent.filename().string(), "nvme-subsys")) return name_space;
  for (const std::string& name : NamesIn(parent)) {
    std::error_code error;
    if (absl::StartsWith(name, "nvme") && fs::is_symlink(parent / name, error)) {
      return RealPath(parent / name);
    }
  }
  return name_space;
}

// Of "253:3".
dev_t DeviceNumber(const std::string& numbers) {
  const size_t colon = numbers.find(':');
  if (colon == std::string::npos) return 0;
  return makedev(ParseNumber<unsigned>(numbers.substr(0, colon)).value_or(0),
                 ParseNumber<unsigned>(numbers.substr(colon + 1)).value_or(0));
}

// Neither of a change of configuration, nor of a controller's own queue.
bool IsForIo(const std::string& name) {
  return !absl::EndsWith(name, "-config") &&
         !(absl::StartsWith(name, "nvme") && absl::EndsWith(name, "q0"));
}

std::optional<BlockFacts> Read(const Reading& reading, const std::string& numbers, int level) {
  const fs::path path = RealPath(reading.root / "sys/dev/block" / numbers);
  if (path.empty() || level == kMostLevels) return std::nullopt;
  const bool is_partition = Exists(path / "partition");
  const fs::path disk = is_partition ? path.parent_path() : path;
  BlockFacts facts = {.name = path.filename(), .disk = disk.filename()};
  facts.driver = LinkName(disk / "device/driver");
  facts.is_read_only = FirstNumber(path / "ro").value_or(0) != 0;
  facts.offset = static_cast<uint64_t>(FirstNumber(path / "start").value_or(0)) * 512;
  facts.holders = NamesIn(path / "holders");
  ReadQueue(disk / "queue", facts);
  facts.own_write_cache = ScsiCacheType(disk);
  facts.backing_file = FirstLine(disk / "loop/backing_file");
  facts.loop_direct = FirstNumber(disk / "loop/dio");
  facts.dm_name = FirstLine(disk / "dm/name");
  facts.dm_uuid = FirstLine(disk / "dm/uuid");
  if (facts.is_dm()) facts.dm_targets = reading.read_dm(DeviceNumber(numbers));
  for (const std::string& name : NamesIn(disk / "slaves")) {
    auto below =
        Read(reading, FirstLine(reading.root / "sys/class/block" / name / "dev"), level + 1);
    if (below) facts.below.push_back(*std::move(below));
  }
  if (facts.below.empty()) facts.pci = ReadPciFacts(reading.root, disk);
  return facts;
}

}  // namespace

const DmTarget* BlockFacts::Target(const std::string& type) const {
  if (!dm_targets) return nullptr;
  const auto found = std::ranges::find(*dm_targets, type, &DmTarget::type);
  return found != dm_targets->end() ? &*found : nullptr;
}

std::optional<BlockFacts> ReadBlockFacts(const fs::path& root, dev_t device,
                                         const DmReader& read_dm) {
  return Read({root, read_dm}, absl::StrFormat("%d:%d", major(device), minor(device)), 0);
}

PciFacts ReadPciFacts(const fs::path& root, fs::path directory) {
  PciFacts facts;
  directory = DeviceDirectory(directory);
  while (directory.has_relative_path() && LinkName(directory / "subsystem") != "pci") {
    directory = directory.parent_path();
  }
  if (!directory.has_relative_path()) return facts;
  facts.address = directory.filename();
  facts.driver = LinkName(directory / "driver");
  const std::optional<int64_t> node = FirstNumber(directory / "numa_node");
  if (node && *node >= 0) facts.node = static_cast<int>(*node);
  for (const std::string& name : NamesIn(directory / "msi_irqs")) {
    const auto number = ParseNumber<int>(name);
    const std::string actions = FirstLine(root / "sys/kernel/irq" / name / "actions");
    if (!number || actions.empty() || !IsForIo(actions)) continue;
    std::string cpus = FirstLine(root / "proc/irq" / name / "effective_affinity_list");
    if (cpus.empty()) cpus = FirstLine(root / "proc/irq" / name / "smp_affinity_list");
    facts.interrupts.push_back({.number = *number, .name = actions, .cpus = ParseKernelList(cpus)});
  }
  std::ranges::sort(facts.interrupts, {}, &DeviceInterrupt::number);
  return facts;
}

}  // namespace ringside
