// An I/O queue pair: what the controller's thread, which makes and unmakes it, and the channel on
// an I/O thread, which uses it, have in common.
//
// Threads: as said at each member.
// Ownership: the controller's thread owns it, from before the channel is made until after Close.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/sync.h"
#include "nvme/nvme_dma.h"
#include "nvme/nvme_prp.h"
#include "nvme/nvme_ring.h"
#include "poll/io_thread.h"

namespace ringside {

class NvmeChannel;

// Tells how old commands are, without a clock on their way: the controller's thread counts time in
// ticks while any command is in flight, and sleeps otherwise.
struct NvmeWatch {
  // So many ticks later. None is 0, which stands for no time.
  static uint32_t Later(uint32_t tick, uint32_t ticks) {
    return tick + ticks == 0 ? 1 : tick + ticks;
  }

  alignas(64) std::atomic<uint32_t> tick{1};
  std::atomic<bool> asleep{false};
  // When the time ends that there is for the controller (MonotonicNs): set once the machine is
  // over.
  std::atomic<int64_t> end_ns{std::numeric_limits<int64_t>::max()};

  bool ends() const {
    return end_ns.load(std::memory_order_relaxed) != std::numeric_limits<int64_t>::max();
  }
};

// The machine is over: the controller's thread has half a second more, and a quarter of one to cut
// the controller off. The first to say so counts, of all that share the controller.
void EndSoon(NvmeWatch& watch, PciDevice& device);

class NvmeQueue {
 public:
  // An identifier has 8 bits for the slot and 8 for its generation. The last slot is not there, so
  // neither is 0xffff, which controllers take for none (section 3.3.3.1).
  static constexpr uint16_t kEntries = 256;
  static constexpr size_t kSlots = kEntries - 1;
  static constexpr size_t kBounceSize = size_t{64} << 10;
  static constexpr size_t kBounces = 8;
  using Lists = std::array<PrpList, kSlots>;
  using Bounces = std::array<std::array<std::byte, kBounceSize>, kBounces>;

  // What the device reaches of it.
  struct Memory {
    std::array<nvme::Command, kEntries> submissions;
    std::array<nvme::Completion, kEntries> completions;
    Lists lists;
    alignas(nvme::kPageSize) Bounces bounces;
  };
  static_assert(offsetof(Memory, completions) % nvme::kPageSize == 0);
  static_assert(offsetof(Memory, lists) % sizeof(PrpList) == 0);

  struct Parts {
    uint16_t id;       // 1 is the first
    uint16_t entries;  // at most kEntries
    NvmeDoorbell submission_doorbell;
    NvmeDoorbell completion_doorbell;
    int interrupt;      // an eventfd
    PciDevice& device;  // whose vector `id` writes it
    NvmeWatch& watch;
    const EventFd& control;  // wakes the controller's thread
  };

  NvmeQueue(const Parts& parts, DmaBuffer memory, IoThread& io_thread)
      : parts_(parts), buffer_(std::move(memory)), io_thread_(&io_thread) {}

  // Any thread.
  const Parts& parts() const { return parts_; }
  uint16_t id() const { return parts_.id; }
  Memory& memory() const { return *reinterpret_cast<Memory*>(buffer_.data()); }
  // Of something in memory(), once the channel was thawed.
  uint64_t IovaOf(const void* address) const { return buffer_.IovaOf(address); }
  bool closed() {
    const MutexLock lock(mutex_);
    return io_thread_ == nullptr;
  }
  // The tick since which a request waits for a slot, or the wait of others was last looked at; 0:
  // none waits.
  std::atomic<uint32_t>& waits_since() { return waits_since_; }
  // 0: slot `index` has nothing in flight; else the tick at which it was sent.
  std::atomic<uint32_t>& sent_at(size_t index) { return sent_at_[index]; }

  // The controller's thread, whose tick is `now`: whether a command was sent so many ticks ago, or
  // earlier, and has had no answer.
  bool AnyInFlightFor(uint32_t ticks, uint32_t now) const;
  // The same thread: has the channel do something on its I/O thread, and waits for that.
  // False if there is no channel any more.
  bool OnIoThread(absl::FunctionRef<void(NvmeChannel&)> function);
  // The same thread: has the device reach memory(), if it does not yet.
  absl::Status Map(DmaSpace& space) {
    return buffer_.mapped() ? absl::OkStatus() : space.Map(buffer_);
  }
  // Whether the machine is over, so that the queue is to end with what is in flight.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  bool created = false;  // the controller has it
  bool failed = false;   // it never will

  // The I/O thread.
  void Open(NvmeChannel& channel) { channel_ = &channel; }
  // EndSoon, and within its time the controller's thread has the channel fail.
  void Cancel();
  // Nothing is in flight, and nobody here uses it any more.
  void Close();

 private:
  const Parts parts_;
  DmaBuffer buffer_;
  std::array<std::atomic<uint32_t>, kSlots> sent_at_ = {};
  std::atomic<uint32_t> waits_since_{0};
  std::atomic<bool> cancelled_{false};
  NvmeChannel* channel_ = nullptr;  // the I/O thread's
  Mutex mutex_;
  IoThread* io_thread_ ABSL_GUARDED_BY(mutex_);  // null: closed
};

}  // namespace ringside
