#include "advice/disk_facts.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "base/fd.h"
#include "base/host_files.h"
#include "base/status.h"
#include "file/file_open.h"
#include "nvme/nvme_url.h"
#include "vfio/vfio_device.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;

std::string Numbers(dev_t device) {
  return absl::StrFormat("%d:%d", major(device), minor(device));
}

void ReadHost(const fs::path& root, DiskFacts& facts) {
  facts.nodes = ReadHostNodes(root / "sys");
  facts.numa_balancing = FirstNumber(root / "proc/sys/kernel/numa_balancing");
  facts.nvme_poll_queues = FirstNumber(root / "sys/module/nvme/parameters/poll_queues");
}

// As a machine would open it, but only to read, so that nothing changes.
void TryOpening(DiskFacts& facts) {
  const FileConfig direct = {.path = facts.path, .read_only = true, .cache = CacheMode::kNone};
  absl::StatusOr<OpenedFile> opened = OpenFile(direct, Logger());
  if (opened.ok()) {
    facts.direct.offset_unit = opened->target->offset_alignment;
    return;
  }
  facts.direct.refusal = Message(opened.status());
  const FileConfig cached = {.path = facts.path, .read_only = true, .cache = CacheMode::kWriteback};
  opened = OpenFile(cached, Logger());
  if (!opened.ok()) facts.unusable = Message(opened.status());
}

// Loop devices whose bytes the file is: they write it, too.
void ReadLoops(const fs::path& root, DiskFacts& facts) {
  const std::string real = RealPath(facts.path);
  for (const std::string& name : NamesIn(root / "sys/block")) {
    if (!absl::StartsWith(name, "loop")) continue;
    if (FirstLine(root / "sys/block" / name / "loop/backing_file") == real) {
      facts.loops.push_back(name);
    }
  }
}

void ReadMountPoints(const fs::path& root, dev_t device, DiskFacts& facts) {
  for (const Mount& mount : ReadMounts(root)) {
    if (mount.device == Numbers(device)) facts.mounted_on.push_back(mount.point);
  }
}

// The device that /proc/self/mountinfo names, for file systems with numbers of their own.
std::optional<BlockFacts> BlockOf(const fs::path& root, const FileFacts& file) {
  if (auto block = ReadBlockFacts(root, file.device)) return block;
  struct stat source;
  if (stat(file.mount.source.c_str(), &source) != 0 || !S_ISBLK(source.st_mode)) {
    return std::nullopt;
  }
  return ReadBlockFacts(root, source.st_rdev);
}

void ReadBlockDevice(const fs::path& root, dev_t device, DiskFacts& facts) {
  facts.block = ReadBlockFacts(root, device);
  ReadMountPoints(root, device, facts);
  const UniqueFd claim(open(facts.path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC | O_NONBLOCK));
  facts.is_claimed = !claim.valid() && errno == EBUSY;
}

// The namespace's character device is beside its block device, whose users it would surprise.
void ReadNvmeCharacter(const fs::path& root, dev_t device, DiskFacts& facts) {
  const fs::path directory = RealPath(root / "sys/dev/char" / Numbers(device));
  facts.pci = ReadPciFacts(root, directory);
  std::string name = directory.filename();
  if (!absl::StartsWith(name, "ng")) {
    facts.unusable = absl::StrFormat("'%s' is no namespace of an NVMe controller", facts.path);
    return;
  }
  name.replace(0, 2, "nvme");
  const fs::path block = RealPath(root / "sys/class/block" / name);
  for (const Mount& mount : ReadMounts(root)) {
    if (mount.device == FirstLine(block / "dev")) facts.mounted_on.push_back(mount.point);
  }
  facts.is_claimed = !NamesIn(block / "holders").empty();
  if (access(facts.path.c_str(), R_OK) != 0) facts.unusable = "it may not be opened";
}

absl::StatusOr<DiskFacts> ReadNvmeUrl(const std::string& url, const fs::path& root) {
  const absl::StatusOr<NvmeConfig> config = ParseNvmeUrl(url);
  if (!config.ok()) return BadInput("'%s' %s", url, Message(config.status()));
  DiskFacts facts = {.path = url, .kind = DiskKindFound::kNvmeServer, .is_writable = true};
  ReadHost(root, facts);
  if (config->address.empty()) return facts;
  facts.kind = DiskKindFound::kNvme;
  facts.pci = ReadPciFacts(root, RealPath(root / "sys/bus/pci/devices" / config->address));
  if (const absl::Status status = CheckVfioDevice(config->address); !status.ok()) {
    facts.unusable = Message(status);
  }
  return facts;
}

}  // namespace

absl::StatusOr<DiskFacts> ReadDiskFacts(const std::string& path, const fs::path& root) {
  if (IsNvmeUrl(path)) return ReadNvmeUrl(path, root);
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(
        ErrnoError(errno, absl::StrFormat("disk '%s'", path),
                   "name a file, a block device, /dev/ng0n1 or an nvme:// URL")
            .message());
  }
  DiskFacts facts = {.path = path,
                     .is_writable = faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0};
  ReadHost(root, facts);
  if (S_ISCHR(info.st_mode)) {
    facts.kind = DiskKindFound::kNvmeCharacter;
    ReadNvmeCharacter(root, info.st_rdev, facts);
    return facts;
  }
  if (S_ISBLK(info.st_mode)) {
    facts.kind = DiskKindFound::kBlockDevice;
    ReadBlockDevice(root, info.st_rdev, facts);
  } else if (S_ISREG(info.st_mode)) {
    facts.file = ReadFileFacts(root, path);
    if (facts.file) facts.block = BlockOf(root, *facts.file);
    ReadLoops(root, facts);
  }
  TryOpening(facts);
  return facts;
}

const PciFacts& DeviceOf(const BlockFacts& block) {
  return block.below.empty() ? block.pci : DeviceOf(block.below.front());
}

std::optional<int> NodeOfDisk(const std::string& path, const fs::path& root) {
  if (IsNvmeUrl(path)) {
    const absl::StatusOr<NvmeConfig> config = ParseNvmeUrl(path);
    if (!config.ok() || config->address.empty()) return std::nullopt;
    return ReadPciFacts(root, RealPath(root / "sys/bus/pci/devices" / config->address)).node;
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  if (S_ISCHR(info.st_mode)) {
    return ReadPciFacts(root, RealPath(root / "sys/dev/char" / Numbers(info.st_rdev))).node;
  }
  const dev_t device = S_ISBLK(info.st_mode) ? info.st_rdev : info.st_dev;
  const auto block = ReadBlockFacts(root, device, [](dev_t) { return std::nullopt; });
  return block ? DeviceOf(*block).node : std::nullopt;
}

}  // namespace ringside
