#include "nvme/nvme_passthrough_open.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <linux/fs.h>
#include <linux/nvme_ioctl.h>
#include <optional>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <vector>

#include "base/open_error.h"
#include "base/status.h"
#include "block/file_lock.h"
#include "nvme/nvme_command_ring.h"
#include "nvme/nvme_names.h"
#include "nvme/nvme_request.h"

namespace ringside {
namespace {

constexpr char kExample[] = "/dev/ng0n1";
constexpr char kRights[] =
    "run as root: Linux 6.1 wants CAP_SYS_ADMIN, later ones the right to read and write it";
constexpr OpenRemedies kRemedies = {
    .missing = "'ls /dev/ng*' shows those that the nvme driver has",
    .forbidden = kRights,
    .busy = "unmount it, end what uses it, or use readonly=on",
};

std::string ReadLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string Renamed(std::string_view name, std::string_view from, std::string_view to) {
  const bool is_one = name.starts_with(from) && name.size() > from.size() &&
                      name[from.size()] >= '0' && name[from.size()] <= '9' &&
                      name.find('n', from.size()) != std::string_view::npos;
  return is_one ? std::string(to) + std::string(name.substr(from.size())) : std::string();
}

absl::StatusOr<std::vector<std::byte>> Identify(int fd, const std::string& name, uint32_t what,
                                                uint32_t nsid) {
  std::vector<std::byte> data(nvme::kIdentifyBytes);
  nvme_admin_cmd command = {};
  command.opcode = static_cast<uint8_t>(nvme::AdminOp::kIdentify);
  command.nsid = nsid;
  command.addr = reinterpret_cast<uint64_t>(data.data());
  command.data_len = nvme::kIdentifyBytes;
  command.cdw10 = what;
  const int status = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command);
  if (status < 0) return OpenError(errno, "cannot identify " + name, kRemedies);
  if (status > 0) {
    return absl::InternalError(absl::StrFormat(
        "cannot identify %s: %s", name, nvme::StatusText(static_cast<nvme::Status>(status))));
  }
  return data;
}

// One namespace on its way to being open.
class Opening {
 public:
  Opening(const NvmePassthroughConfig& config, Logger logger) : config_(config), logger_(logger) {}
  absl::StatusOr<NvmePassthroughDevice::Opened> Run();

 private:
  absl::Status FindKind();
  absl::Status NotANamespace(const std::string& name, const std::string& subsystem) const;
  absl::StatusOr<UniqueFd> OpenPath(const std::string& path, int flags) const;
  absl::Status Keep();
  absl::StatusOr<uint64_t> QueueAttribute(const char* name) const;
  absl::Status ReadLimits();
  absl::Status TryCommand() const;
  absl::Status CommandError(int32_t result) const;

  const NvmePassthroughConfig& config_;
  const Logger logger_;
  const std::string name_ = absl::StrFormat("disk '%s'", config_.path);
  std::string block_name_;  // "nvme0n1"
  NvmePassthroughDevice::Opened opened_;
};

absl::StatusOr<NvmePassthroughDevice::Opened> Opening::Run() {
  RINGSIDE_RETURN_IF_ERROR(FindKind());
  RINGSIDE_ASSIGN_OR_RETURN(opened_.file, OpenPath(config_.path, O_NONBLOCK));
  RINGSIDE_RETURN_IF_ERROR(Keep());
  RINGSIDE_ASSIGN_OR_RETURN(opened_.ns, IdentifyNvmeNamespace(opened_.file.get(), name_));
  RINGSIDE_RETURN_IF_ERROR(ReadLimits());
  RINGSIDE_RETURN_IF_ERROR(TryCommand());
  opened_.ns.info.read_only = config_.read_only;
  return std::move(opened_);
}

// A look before the open: opening other devices may have effects.
absl::Status Opening::FindKind() {
  struct stat info;
  if (stat(config_.path.c_str(), &info) != 0)
    return OpenError(errno, "cannot open " + name_, kRemedies);
  const std::string given = std::filesystem::path(config_.path).filename();
  if (S_ISBLK(info.st_mode)) {
    const std::string generic = NvmeGenericName(given);
    return BadInput("%s is a block device; give path=%s for the host's block layer%s", name_,
                    config_.path,
                    generic.empty() ? "" : ", or /dev/" + generic + " for NVMe passthrough");
  }
  if (!S_ISCHR(info.st_mode)) {
    return BadInput("%s is no device; give path=FILE for a file, or such as %s for a namespace",
                    name_, kExample);
  }
  const std::filesystem::path device =
      absl::StrFormat("/sys/dev/char/%d:%d", major(info.st_rdev), minor(info.st_rdev));
  std::error_code error;
  const std::string name = std::filesystem::read_symlink(device, error).filename();
  const std::string subsystem =
      std::filesystem::read_symlink(device / "subsystem", error).filename();
  block_name_ = NvmeBlockName(name);
  if (subsystem != "nvme-generic" || block_name_.empty()) return NotANamespace(name, subsystem);
  return absl::OkStatus();
}

absl::Status Opening::NotANamespace(const std::string& name, const std::string& subsystem) const {
  if (subsystem == "nvme") {
    return BadInput("%s is an NVMe controller; give one of its namespaces, such as /dev/ng%sn1",
                    name_, name.substr(std::min(name.size(), sizeof "nvme" - 1)));
  }
  return BadInput(
      "%s is no NVMe namespace; give a file, a block device or the character device of a "
      "namespace, "
      "such as %s",
      name_, kExample);
}

absl::StatusOr<UniqueFd> Opening::OpenPath(const std::string& path, int flags) const {
  const int access = config_.read_only ? O_RDONLY : O_RDWR;
  UniqueFd fd(open(path.c_str(), access | O_CLOEXEC | flags));
  if (fd.valid()) return fd;
  const int error = errno;
  const std::string what = path == config_.path
                               ? "cannot open " + name_
                               : absl::StrFormat("cannot keep %s: cannot open '%s'", name_, path);
  return OpenError(error, what, kRemedies);
}

// By the block device: O_EXCL keeps mounts and other such openers out, and the lock is where other
// machines, which may have the block device as a file, look for it.
absl::Status Opening::Keep() {
  const std::string path = "/dev/" + block_name_;
  absl::StatusOr<UniqueFd> block = OpenPath(path, config_.read_only ? 0 : O_EXCL);
  if (absl::IsNotFound(block.status())) {
    logger_.Log(Severity::kWarning, "%s: there is no '%s', so nothing keeps the host from using it",
                name_, path);
    block = OpenPath(config_.path, O_NONBLOCK);
  }
  RINGSIDE_RETURN_IF_ERROR(block.status());
  RINGSIDE_RETURN_IF_ERROR(LockFile(block->get(), config_.read_only, name_));
  // What the host has written and not yet passed on is not to come down on what the guest writes.
  ioctl(block->get(), BLKFLSBUF);
  opened_.block = *std::move(block);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Opening::QueueAttribute(const char* name) const {
  const std::string path = absl::StrFormat("/sys/class/block/%s/queue/%s", block_name_, name);
  const std::string line = ReadLine(path);
  if (!line.empty()) return std::strtoull(line.c_str(), nullptr, 10);
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: cannot read '%s'; mount sysfs", name_, path));
}

absl::Status Opening::ReadLimits() {
  NvmeHostLimits host = {};
  RINGSIDE_ASSIGN_OR_RETURN(host.most_kib, QueueAttribute("max_hw_sectors_kb"));
  RINGSIDE_ASSIGN_OR_RETURN(host.segments, QueueAttribute("max_segments"));
  // Linux before 6.1 does not tell, and aligns to sectors.
  host.align_mask = QueueAttribute("dma_alignment").value_or(511);
  opened_.limits = LimitNamespace(opened_.ns, host);
  return absl::OkStatus();
}

// A read of the first block, as the guest's requests will come: whether the kernel takes them.
absl::Status Opening::TryCommand() const {
  constexpr int kPatienceMs = 60'000;  // twice the time after which the kernel resets a controller
  RINGSIDE_ASSIGN_OR_RETURN(const EventFd wake, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(const auto ring,
                            NvmeCommandRing::Create(opened_.file.get(), wake.fd(), 1));
  // Outlives a command that is not answered.
  alignas(nvme::kPageSize) static std::array<std::byte, nvme::kPageSize> block;
  nvme_uring_cmd command = {};
  command.opcode = static_cast<uint8_t>(nvme::IoOp::kRead);
  command.nsid = opened_.ns.id;
  command.addr = reinterpret_cast<uint64_t>(block.data());
  command.data_len = opened_.ns.block_size;
  Counter enters;
  ring->Push(NVME_URING_CMD_IO, command, 0);
  ring->Enter(enters);
  pollfd wait = {.fd = wake.fd(), .events = POLLIN, .revents = 0};
  if (!ring->HasCompletions()) poll(&wait, 1, kPatienceMs);
  std::optional<int32_t> result;
  if (ring->HasCompletions()) {
    ring->Reap(enters, [&result](uint64_t /*data*/, int32_t of) { result = of; });
  }
  if (!result) return absl::UnavailableError(name_ + " does not answer");
  return CommandError(*result);
}

absl::Status Opening::CommandError(int32_t result) const {
  const std::string what = "cannot use " + name_ + " by io_uring";
  if (result >= 0) return absl::OkStatus();  // what the device makes of a block is the guest's
  if (result == -EOPNOTSUPP || result == -EINVAL || result == -ENOTTY) {
    return absl::FailedPreconditionError(
        ErrnoError(-result, what, "it needs Linux 6.1; give path=/dev/" + block_name_ + " instead")
            .message());
  }
  return OpenError(-result, what, kRemedies);
}

}  // namespace

std::string NvmeBlockName(std::string_view generic) {
  return Renamed(generic, "ng", "nvme");
}

std::string NvmeGenericName(std::string_view block) {
  return Renamed(block, "nvme", "ng");
}

absl::StatusOr<NvmeNamespace> IdentifyNvmeNamespace(int fd, const std::string& name) {
  const int nsid = ioctl(fd, NVME_IOCTL_ID);
  if (nsid < 0) return OpenError(errno, "cannot identify " + name, kRemedies);
  const auto id = static_cast<uint32_t>(nsid);
  RINGSIDE_ASSIGN_OR_RETURN(const auto controller, Identify(fd, name, nvme::kCnsController, 0));
  RINGSIDE_ASSIGN_OR_RETURN(const auto data, Identify(fd, name, nvme::kCnsNamespace, id));
  return ParseNvmeNamespace(name, id, ParseNvmeController(controller), data);
}

NvmeVectorLimits LimitNamespace(NvmeNamespace& ns, const NvmeHostLimits& host) {
  const uint64_t most = std::min<uint64_t>(host.most_kib << 10, ns.most_bytes);
  ns.most_bytes = static_cast<uint32_t>(most & ~uint64_t{ns.block_size - 1});
  return {.most_bytes = ns.most_bytes,
          // Two are what any block takes; no queue has less.
          .most_pages = static_cast<uint32_t>(std::clamp<uint64_t>(host.segments, 2, UINT16_MAX)),
          .block_size = ns.block_size,
          .alignment = static_cast<uint32_t>(host.align_mask + 1)};
}

absl::StatusOr<NvmePassthroughDevice::Opened> OpenNvmePassthrough(
    const NvmePassthroughConfig& config, Logger logger) {
  return Opening(config, logger).Run();
}

}  // namespace ringside
