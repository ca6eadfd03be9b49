// All that is known of a disk before anything is said of it: what is behind its path, and what the
// host is like.
//
// Threads: any. It is gathered without a write, and without opening a block device for writing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "advice/block_facts.h"
#include "advice/file_facts.h"
#include "base/host_nodes.h"

namespace ringside {

enum class DiskKindFound {
  kFile,
  kBlockDevice,
  kNvmeCharacter,  // /dev/ng0n1
  kNvme,           // nvme://, whose controller Ringside drives
  kNvmeServer,     // nvme+user://
};

// How O_DIRECT works, which cache=none and cache=directsync need.
struct DirectIo {
  std::string refusal;         // why it does not; empty: it does
  uint32_t offset_unit = 512;  // bytes; memory needs its own alignment, which buffers give it
};

struct DiskFacts {
  std::string path;
  DiskKindFound kind = DiskKindFound::kFile;
  std::string unusable;  // why it cannot be opened at all; empty: it can
  bool is_writable = false;
  // Who else has it: what it is mounted on, loop devices, other programs.
  std::vector<std::string> mounted_on;
  std::vector<std::string> loops;
  bool is_claimed = false;  // a block device that somebody has for himself alone
  DirectIo direct;
  std::optional<FileFacts> file;    // of a file
  std::optional<BlockFacts> block;  // the block device, or that on which the file is
  PciFacts pci;                     // of a namespace that is no block device

  // Of the host.
  std::vector<HostNode> nodes;
  std::optional<int64_t> numa_balancing;
  std::optional<int64_t> nvme_poll_queues;
};

// InvalidArgument and NotFound: `path` names nothing that could be a disk. `root` has the host's
// sys and proc: "/", in tests another.
absl::StatusOr<DiskFacts> ReadDiskFacts(const std::string& path,
                                        const std::filesystem::path& root = "/");

// The NUMA node of the device behind a disk's path, if that is known; nothing is opened.
std::optional<int> NodeOfDisk(const std::string& path, const std::filesystem::path& root = "/");

// The device that does the work of a stack of block devices; of several, the first.
const PciFacts& DeviceOf(const BlockFacts& block);

}  // namespace ringside
