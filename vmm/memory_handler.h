// The process that gives a restored machine its memory, page by page as it is touched: a handler
// that listens on a Unix socket and speaks Firecracker's protocol. It is sent one message, a JSON
// array with an object for each piece of memory, and with it the userfaultfd; from then on it is
// asked by the kernel alone. The last piece is no memory of the guest's but the page that ends a
// snapshot's memory file (snapshot/memory_image.h), so that the pieces are all of that file, and
// whose memory it is that the handler gives shows before the guest goes on.
//
// A handler that ends ends the machine, and so does one that does not answer while the machine is
// made. Its connection carries nothing more, so one that closes it and lives serves on; where its
// process is not known, or is this one, the close is its end. The machine is told first, so that
// nothing of it begins anew; then all of its memory is dropped, so that whoever waits for a page,
// in the kernel or elsewhere, comes free. One that does not answer later holds up the guest, until
// the machine is ended. Nothing that the handler sends is read.
//
// Threads: any; the watch has one of its own, which never touches the memory and on which `lost` is
// called, once. Whoever touches the memory is prepared for its loss (base/mapping_guard.h).
// Ownership: the memory outlives it, and so does all that touches the memory.
// Spec: github.com/firecracker-microvm/firecracker,
// docs/snapshotting/handling-page-faults-on-snapshot-resume.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/mapping_guard.h"
#include "base/sync.h"
#include "devices/guest_memory.h"
#include "snapshot/memory_image.h"

namespace ringside {

class MemoryHandler {
 public:
  struct Request {
    std::string path;         // of the handler's socket
    std::string file;         // that it is to serve, to be named
    MemoryImage image;        // that the file is to be
    absl::Duration patience;  // for the machine to be made
    std::function<void()> lost;
  };
  // Of memory that is on demand, and that nobody touches until Begin.
  static absl::StatusOr<std::unique_ptr<MemoryHandler>> Connect(const GuestMemory& memory,
                                                                Request request);
  // After KVM's virtual machine, whose kernel threads may wait for pages (asynchronous page faults)
  // even when all vCPUs have ended, and which waits for them.
  ~MemoryHandler();
  MemoryHandler(const MemoryHandler&) = delete;
  MemoryHandler& operator=(const MemoryHandler&) = delete;

  // Hands over the memory, and has the handler give the page that ends the file: InvalidArgument if
  // it is of another one. From here on `lost` may be called.
  absl::Status Begin();
  // The machine is made: from now on the handler may take its time.
  void IsMade();
  // The machine is over: what the handler has not given within a second is not waited for. Does not
  // wait itself, and may be called from `lost`.
  void EndSoon();
  // From now on `lost` is not called, nor being called. Not from within it.
  void Forget();
  // FailedPrecondition once the memory has been dropped: why, and what to do.
  absl::Status Loss() const;

 private:
  MemoryHandler(const GuestMemory& memory, Request request, UniqueFd socket, EventFd wake)
      : memory_(memory),
        request_(std::move(request)),
        socket_(std::move(socket)),
        process_(ProcessBehind(socket_)),
        wake_(std::move(wake)) {}
  static UniqueFd ProcessBehind(const UniqueFd& socket);
  absl::Status MapTrailer();
  absl::Status Guard();
  std::string Pieces() const;
  absl::Status HandOver() const;
  void SetDeadline(int64_t monotonic_ns, absl::Status then);

  void Watch();
  // For poll().
  int UntilDeadline() const;
  // How the memory is to be lost now; OK: it is not. `gone`: what the handler has done; empty:
  // nothing.
  absl::Status Due(std::string_view gone) const;
  void Lose(absl::Status why);

  const GuestMemory& memory_;
  const Request request_;
  const UniqueFd socket_;
  const UniqueFd process_;  // a pidfd of whoever listens there; may be none
  const EventFd wake_;
  std::span<std::byte> trailer_;  // a mapping of its own
  std::vector<MappingGuard> guards_;

  Mutex telling_;  // held while `lost` is called
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(telling_);
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  bool tells_ ABSL_GUARDED_BY(mutex_) = true;
  int64_t deadline_ns_ ABSL_GUARDED_BY(mutex_) = INT64_MAX;
  absl::Status at_deadline_ ABSL_GUARDED_BY(mutex_);
  absl::Status loss_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ringside
