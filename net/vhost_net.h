// vhost-net: the host's kernel as the one who carries the frames of a tap's queue pair, on a thread
// of its own. It reads and writes the rings in guest memory itself, is kicked by the descriptor
// that the guest's doorbell writes, and writes the one that interrupts the guest.
//
// Threads: SetCarrier and SetCall from any; Start, Stop and the Takes of a ring by one at a time.
// Ownership: the tap, guest memory and the descriptors outlive the use of a ring.
// Errors: FailedPrecondition where the host has none, PermissionDenied.
// Spec: Linux, include/uapi/linux/vhost.h; the rings are VIRTIO 1.2's, section 2.7.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/memory_region.h"
#include "base/sync.h"

namespace ringside {

class VhostNet {
 public:
  enum Ring : uint8_t { kReceive = 0, kTransmit = 1 };

  // Where a ring is, in the addresses of this process.
  struct RingSetup {
    uint64_t features = 0;  // that the driver has agreed to, all of them
    uint16_t size = 0;
    uint16_t next = 0;  // where both rings go on
    const std::byte* descriptors = nullptr;
    const std::byte* available = nullptr;
    const std::byte* used = nullptr;
    uint64_t used_address = 0;  // the guest's
    // Where the kernel notes the pages that it writes: a bit each, of the guest's addresses from 0
    // on, until Stop. Null: nowhere.
    uint64_t* log = nullptr;
    const EventFd* kick = nullptr;
  };

  // Whether this process may use it at all: why not, if so.
  static absl::Status CheckHost();
  // For the frames of this queue of a tap, which nobody else reads or writes from then on.
  static absl::StatusOr<std::unique_ptr<VhostNet>> Open(int tap_fd);

  // The kernel serves the ring from now on, until Stop. `memory` is all that the ring may refer to.
  absl::Status Start(Ring ring, const RingSetup& setup, std::span<const MemoryRegion> memory);
  // When this returns the kernel no longer touches it. Returns where it goes on; not of a ring that
  // was not started.
  uint16_t Stop(Ring ring);
  bool started(Ring ring) const;
  // Who is told of frames that came or went; null: nobody.
  void SetCall(Ring ring, const EventFd* call);
  // Whether frames are carried; without, they wait in the ring.
  void SetCarrier(bool up);
  // Written when the kernel finds that the driver breaks the rules of the ring.
  const EventFd& broken(Ring ring) const { return rings_[ring].broken; }
  // Whether that was so since Start, or since the last call.
  bool TakeBroken(Ring ring) { return rings_[ring].broken.Clear() != 0; }
  // Readable when interfaces of this process's network name space have changed: the kernel that
  // carries the frames of a tap tells nobody that it is gone. -1 where AF_NETLINK is forbidden: the
  // next driver finds out.
  int changes_fd() const { return changes_.get(); }
  // Until it is no longer readable.
  void TakeChanges();

 private:
  struct State {
    explicit State(EventFd event) : broken(std::move(event)) {}

    const EventFd broken;
    const EventFd* kick = nullptr;  // null: it is not started
  };

  VhostNet(UniqueFd fd, int tap_fd, UniqueFd changes, EventFd receive, EventFd transmit)
      : fd_(std::move(fd)),
        tap_fd_(tap_fd),
        changes_(std::move(changes)),
        rings_{State(std::move(receive)), State(std::move(transmit))} {}
  absl::Status SetUp(Ring ring, const RingSetup& setup, std::span<const MemoryRegion> memory);
  absl::Status SetMemory(std::span<const MemoryRegion> memory);
  bool SetBackend(Ring ring, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd fd_;
  const int tap_fd_;
  const UniqueFd changes_;
  mutable Mutex mutex_;
  std::array<State, 2> rings_;  // `kick` under the lock
  bool carrier_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace ringside
