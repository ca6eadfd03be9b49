#include "vmm/host_device_watch.h"

#include <array>
#include <cerrno>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr uint32_t kKernelsGroup = 1;  // udev's own messages go to another
constexpr size_t kMostBytes = 8192;    // of a message: the kernel makes them no longer than 2 KiB
constexpr int kMostATurn = 16;

}  // namespace

// "change@/devices/...", then "KEY=VALUE", each with a zero behind it.
std::optional<uint64_t> ChangedBlockDevice(std::string_view uevent) {
  bool is_block = false;
  uint32_t major_number = 0, minor_number = 0;
  bool has_major = false, has_minor = false;
  bool is_first = true;
  for (absl::string_view line :
       absl::StrSplit(absl::string_view(uevent.data(), uevent.size()), '\0')) {
    if (std::exchange(is_first, false) && !absl::StartsWith(line, "change@")) return std::nullopt;
    if (line == "SUBSYSTEM=block") is_block = true;
    if (absl::ConsumePrefix(&line, "MAJOR=")) has_major = absl::SimpleAtoi(line, &major_number);
    if (absl::ConsumePrefix(&line, "MINOR=")) has_minor = absl::SimpleAtoi(line, &minor_number);
  }
  if (!is_block || !has_major || !has_minor) return std::nullopt;
  return makedev(major_number, minor_number);
}

absl::StatusOr<std::unique_ptr<HostDeviceWatch>> HostDeviceWatch::Create(
    IoThread& io_thread, std::function<void(uint64_t)> changed) {
  UniqueFd uevents(
      socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT));
  if (!uevents.valid()) return ErrnoError(errno, "cannot make a socket for the kernel's uevents");
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = kKernelsGroup;
  if (bind(uevents.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoError(errno, "cannot listen to the kernel's uevents");
  }
  return std::unique_ptr<HostDeviceWatch>(
      new HostDeviceWatch(io_thread, std::move(uevents), std::move(changed)));
}

HostDeviceWatch::HostDeviceWatch(IoThread& io_thread, UniqueFd uevents,
                                 std::function<void(uint64_t)> changed)
    : io_thread_(io_thread),
      socket_(std::move(uevents)),
      changed_(std::move(changed)),
      watch_(socket_.get(), *this) {
  io_thread_.Post(arm_);
}

HostDeviceWatch::~HostDeviceWatch() {
  io_thread_.RunAndWait([this] { io_thread_.Disarm(watch_); });
}

void HostDeviceWatch::Hear() {
  std::array<char, kMostBytes> text;
  for (int i = 0; i < kMostATurn; ++i) {
    sockaddr_nl from = {};
    socklen_t from_size = sizeof from;
    const ssize_t size = recvfrom(socket_.get(), text.data(), text.size(), 0,
                                  reinterpret_cast<sockaddr*>(&from), &from_size);
    if (size < 0 && errno == ENOBUFS) {
      changed_(0);
      continue;
    }
    if (size <= 0) break;
    if (from.nl_pid != 0) continue;  // another process has sent it
    const auto device = ChangedBlockDevice({text.data(), static_cast<size_t>(size)});
    if (device) changed_(*device);
  }
  Arm();
}

}  // namespace ringside
