// Of linux/virtio_ring.h what is C alone.
#define VIRTIO_RING_NO_LEGACY

#include "net/vhost_net.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/vhost.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <vector>

#include "base/status.h"

namespace ringside {
namespace {

constexpr char kVhostNet[] = "/dev/vhost-net";
constexpr char kInstead[] = "leave vhost=on out";
// VIRTIO_NET_F_MRG_RXBUF, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_EVENT_IDX and VIRTIO_F_VERSION_1: what
// the form of the rings and of their headers depends on. All else is between driver and tap.
constexpr uint64_t kRingFeatures =
    uint64_t{1} << 15 | uint64_t{1} << 28 | uint64_t{1} << 29 | uint64_t{1} << 32;

absl::StatusOr<UniqueFd> OpenVhostNet() {
  UniqueFd fd(open(kVhostNet, O_RDWR | O_CLOEXEC));
  if (fd.valid()) return fd;
  const std::string what = absl::StrFormat("cannot open %s", kVhostNet);
  if (errno == EACCES || errno == EPERM) {
    return ErrnoError(errno, what,
                      absl::StrFormat("let this user read and write it, or %s", kInstead));
  }
  return absl::FailedPreconditionError(
      ErrnoError(errno, what,
                 absl::StrFormat("load the kernel's module 'vhost_net', or %s", kInstead))
          .message());
}

absl::Status NotDone(const char* what) {
  return absl::FailedPreconditionError(
      ErrnoError(errno, absl::StrFormat("vhost-net does not take %s", what), kInstead).message());
}

// A sandbox that knows no AF_NETLINK: frames are carried all the same.
bool IsForbidden(int error) {
  return error == EPERM || error == EACCES || error == EAFNOSUPPORT || error == EPROTONOSUPPORT;
}

// rtnetlink(7). Not valid where it is forbidden.
absl::StatusOr<UniqueFd> HearChanges() {
  UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl links = {};
  links.nl_family = AF_NETLINK;
  links.nl_groups = RTMGRP_LINK;
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&links), sizeof links) != 0) {
    if (IsForbidden(errno)) return UniqueFd();
    return ErrnoError(errno, "cannot hear of changes to the host's interfaces", kInstead);
  }
  return fd;
}

uint64_t AddressOf(const std::byte* host) {
  return reinterpret_cast<uintptr_t>(host);
}

}  // namespace

absl::Status VhostNet::CheckHost() {
  return OpenVhostNet().status();
}

absl::StatusOr<std::unique_ptr<VhostNet>> VhostNet::Open(int tap_fd) {
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, OpenVhostNet());
  if (ioctl(fd.get(), VHOST_SET_OWNER) != 0) return NotDone("an owner");
  uint64_t features = 0;
  if (ioctl(fd.get(), VHOST_GET_FEATURES, &features) != 0 ||
      (features & kRingFeatures) != kRingFeatures) {
    return absl::FailedPreconditionError(
        absl::StrFormat("vhost-net of this kernel has the features %#x and not all of %#x: %s",
                        features, kRingFeatures, kInstead));
  }
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd changes, HearChanges());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd receive, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd transmit, EventFd::Create());
  return std::unique_ptr<VhostNet>(new VhostNet(std::move(fd), tap_fd, std::move(changes),
                                                std::move(receive), std::move(transmit)));
}

absl::Status VhostNet::SetMemory(std::span<const MemoryRegion> memory) {
  // A header with as many regions behind it as it says.
  std::vector<std::byte> table(sizeof(vhost_memory) + memory.size() * sizeof(vhost_memory_region));
  // Its two numbers alone: clang takes no value of a type that ends with an array of nothing.
  const std::array<uint32_t, 2> header = {static_cast<uint32_t>(memory.size()), 0};
  static_assert(sizeof header == sizeof(vhost_memory));
  std::memcpy(table.data(), &header, sizeof header);
  for (size_t i = 0; i < memory.size(); ++i) {
    const vhost_memory_region region = {.guest_phys_addr = memory[i].guest_address,
                                        .memory_size = memory[i].size,
                                        .userspace_addr = AddressOf(memory[i].host),
                                        .flags_padding = 0};
    std::memcpy(&table[sizeof header + i * sizeof region], &region, sizeof region);
  }
  if (ioctl(fd_.get(), VHOST_SET_MEM_TABLE, table.data()) != 0) return NotDone("the memory");
  return absl::OkStatus();
}

absl::Status VhostNet::SetUp(Ring ring, const RingSetup& setup,
                             std::span<const MemoryRegion> memory) {
  const bool notes = setup.log != nullptr;
  const auto log = reinterpret_cast<uint64_t>(setup.log);
  // Before the features, so that no ring notes anything where there is no log.
  if (notes && ioctl(fd_.get(), VHOST_SET_LOG_BASE, &log) != 0) return NotDone("a log of writes");
  const uint64_t features = (setup.features & kRingFeatures) | uint64_t{notes} << VHOST_F_LOG_ALL;
  if (ioctl(fd_.get(), VHOST_SET_FEATURES, &features) != 0) return NotDone("the features");
  RINGSIDE_RETURN_IF_ERROR(SetMemory(memory));
  const vhost_vring_state size = {.index = ring, .num = setup.size};
  const vhost_vring_state base = {.index = ring, .num = setup.next};
  if (ioctl(fd_.get(), VHOST_SET_VRING_NUM, &size) != 0) return NotDone("the ring's size");
  if (ioctl(fd_.get(), VHOST_SET_VRING_BASE, &base) != 0) return NotDone("the ring's position");
  const vhost_vring_addr address = {.index = ring,
                                    .flags = uint32_t{notes} << VHOST_VRING_F_LOG,
                                    .desc_user_addr = AddressOf(setup.descriptors),
                                    .used_user_addr = AddressOf(setup.used),
                                    .avail_user_addr = AddressOf(setup.available),
                                    .log_guest_addr = setup.used_address};
  if (ioctl(fd_.get(), VHOST_SET_VRING_ADDR, &address) != 0) return NotDone("the ring's address");
  const vhost_vring_file broken = {.index = ring, .fd = rings_[ring].broken.fd()};
  const vhost_vring_file kick = {.index = ring, .fd = setup.kick->fd()};
  if (ioctl(fd_.get(), VHOST_SET_VRING_ERR, &broken) != 0 ||
      ioctl(fd_.get(), VHOST_SET_VRING_KICK, &kick) != 0) {
    return NotDone("the ring's descriptors");
  }
  return absl::OkStatus();
}

absl::Status VhostNet::Start(Ring ring, const RingSetup& setup,
                             std::span<const MemoryRegion> memory) {
  const MutexLock lock(mutex_);
  RINGSIDE_RETURN_IF_ERROR(SetUp(ring, setup, memory));
  rings_[ring].kick = setup.kick;
  rings_[ring].broken.Clear();  // a driver before may have broken it
  if (!carrier_ || SetBackend(ring, tap_fd_)) return absl::OkStatus();
  rings_[ring].kick = nullptr;
  return NotDone("the tap");
}

bool VhostNet::SetBackend(Ring ring, int fd) {
  const vhost_vring_file backend = {.index = ring, .fd = fd};
  if (ioctl(fd_.get(), VHOST_NET_SET_BACKEND, &backend) != 0) return false;
  // For what is there already: the driver may have kicked before, and does not do it twice.
  if (fd >= 0) rings_[ring].kick->Signal();
  return true;
}

uint16_t VhostNet::Stop(Ring ring) {
  const MutexLock lock(mutex_);
  SetBackend(ring, VHOST_FILE_UNBIND);
  rings_[ring].kick = nullptr;
  vhost_vring_state base = {.index = ring, .num = 0};
  ioctl(fd_.get(), VHOST_GET_VRING_BASE, &base);
  vhost_vring_file none = {.index = ring, .fd = VHOST_FILE_UNBIND};
  ioctl(fd_.get(), VHOST_SET_VRING_KICK, &none);
  ioctl(fd_.get(), VHOST_SET_VRING_CALL, &none);
  return static_cast<uint16_t>(base.num);
}

void VhostNet::TakeChanges() {
  // Of each message its first byte, which is as good as all; the error is that some were lost.
  char byte;
  ssize_t got;
  do {
    got = recv(changes_.get(), &byte, 1, 0);
  } while (got >= 0 || errno == ENOBUFS || errno == EINTR);
}

bool VhostNet::started(Ring ring) const {
  const MutexLock lock(mutex_);
  return rings_[ring].kick != nullptr;
}

void VhostNet::SetCall(Ring ring, const EventFd* call) {
  const vhost_vring_file file = {.index = ring,
                                 .fd = call != nullptr ? call->fd() : VHOST_FILE_UNBIND};
  ioctl(fd_.get(), VHOST_SET_VRING_CALL, &file);
}

void VhostNet::SetCarrier(bool up) {
  const MutexLock lock(mutex_);
  if (std::exchange(carrier_, up) == up) return;
  for (const Ring ring : {kReceive, kTransmit}) {
    if (rings_[ring].kick != nullptr) SetBackend(ring, up ? tap_fd_ : VHOST_FILE_UNBIND);
  }
}

}  // namespace ringside
