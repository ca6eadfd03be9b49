// An io_uring for NVMe commands: its entries are of 128 and 32 bytes, which commands need and which
// are settled when a ring is made, so it stands beside an I/O thread's own that has others.
//
// Threads: everything on the thread that created it. Ownership: the file and the eventfd outlive
// it. Errors: what the user can mend is FailedPrecondition. Spec: io_uring_setup(2),
// io_uring_enter(2), linux/nvme_ioctl.h, Linux 6.1.
#pragma once

#include <cstdint>
#include <liburing.h>
#include <linux/nvme_ioctl.h>
#include <memory>

#include "absl/status/statusor.h"
#include "base/counter.h"

namespace ringside {

class NvmeCommandRing {
 public:
  // As many commands as `entries`, a power of two, may be in flight. `file`: what they are for.
  // `eventfd`: written when something has completed, while Notify is on, as it is at first.
  static absl::StatusOr<std::unique_ptr<NvmeCommandRing>> Create(int file, int eventfd,
                                                                 unsigned entries);
  ~NvmeCommandRing();
  NvmeCommandRing(const NvmeCommandRing&) = delete;
  NvmeCommandRing& operator=(const NvmeCommandRing&) = delete;

  // `operation`: NVME_URING_CMD_IO, or NVME_URING_CMD_IO_VEC, whose vectors stay until it has
  // completed. It starts with the next Enter. False: the kernel has taken none of those before.
  bool Push(uint32_t operation, const nvme_uring_cmd& command, uint64_t data);
  // Asks for the end of all that is under way, with the next Enter, once nothing else is pushed.
  // Completes itself, as kCancelling.
  void CancelAll();
  static constexpr uint64_t kCancelling = 0;

  // One system call if anything was pushed. Whether that has taken it all.
  bool Enter(Counter& enters);

  // A look at memory: whether Reap would find something.
  bool HasCompletions() const { return io_uring_cq_ready(&ring_) != 0 || KernelHoldsCompletions(); }
  // Calls complete(data, result) for each command that has completed: 0, an NVMe status, or a
  // negative errno. What complete pushes is for a later call. No system call, unless the kernel
  // holds completions back.
  template <typename Complete>
  void Reap(Counter& enters, Complete complete);
  // Stores only: the caller issues the fence.
  void Notify(bool on) { io_uring_cq_eventfd_toggle(&ring_, on); }

 private:
  NvmeCommandRing() = default;
  absl::Status SetUp(int file, int eventfd, unsigned entries);
  bool KernelHoldsCompletions() const {
    return (IO_URING_READ_ONCE(*ring_.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) !=
           0;
  }

  io_uring ring_ = {};
  bool set_up_ = false;
};

template <typename Complete>
void NvmeCommandRing::Reap(Counter& enters, Complete complete) {
  if (io_uring_cq_ready(&ring_) == 0 && KernelHoldsCompletions()) {
    enters.Add();
    io_uring_submit_and_get_events(&ring_);
  }
  unsigned head = 0;
  unsigned count = 0;
  const io_uring_cqe* completion = nullptr;
  const unsigned ready = io_uring_cq_ready(&ring_);
  // Their places are given back at the end: there are twice as many as commands in flight.
  io_uring_for_each_cqe(&ring_, head, completion) {
    if (count == ready) break;
    ++count;
    complete(completion->user_data, completion->res);
  }
  io_uring_cq_advance(&ring_, count);
}

}  // namespace ringside
