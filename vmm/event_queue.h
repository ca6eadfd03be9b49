// The way of a machine's events from wherever they happen to the embedder's sink.
//
// What a guest can repeat (errors of its disks, resets that it makes necessary, panics) has a place
// of its own for each device and kind, where its repetitions are counted, and is told once per
// `pace` at most: a hostile guest fills no memory and does not flood the sink. All else waits in a
// queue of kMostWaiting events, and is lost, with a gap in the sequence, where that is full. The
// last event has its own place, too.
//
// Threads: any, a vCPU's and a disk's I/O thread too: nobody waits for the sink, which is called on
// the I/O thread without any lock, one event per turn. AwaitEnd waits, on any other thread.
// Ownership: the sink and the I/O thread outlive AwaitEnd, and the queue all who may call it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync.h"
#include "devices/device_reports.h"
#include "poll/io_thread.h"
#include "ringside/event.h"
#include "vmm/alarm.h"

namespace ringside {

// As people say it: "write", "write of zeroes".
const char* BlockOpName(BlockOp op);

class EventQueue {
 public:
  static constexpr size_t kMostWaiting = 256;
  static constexpr absl::Duration kPace = absl::Seconds(1);

  // `sink` null: nobody listens, and everything here does nothing.
  static absl::StatusOr<std::unique_ptr<EventQueue>> Create(EventSink* sink, IoThread& io_thread,
                                                            absl::Duration pace = kPace);
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // What happens before is not told, but for the end of what has begun.
  void Begin();
  void Put(EventKind kind);
  void Panicked(std::string_view detail) { Repeat(0, 0, detail); }
  // Where a device's troubles go; the same each time for the same id. Null: nobody listens. Before
  // the machine runs, or while it is paused.
  DeviceReports* Of(const std::string& device);
  // The machine is over: kEnded is told behind what has happened so far, and nothing after it.
  void End(std::string_view detail);
  // After End, and before the I/O thread goes: returns when the sink has had the last event, if it
  // has had any, and is not called any more.
  void AwaitEnd();

 private:
  struct Waiting {
    MachineEvent event;
    int64_t lost = 0;  // before it, since the one before
  };
  static constexpr size_t kBlockOps = static_cast<size_t>(BlockOp::kWriteZeroes) + 1;

  // An event that a guest can repeat.
  struct Repeated {
    EventKind kind;
    std::string device;
    const char* request;      // "read", of a disk's error; else null
    MachineEvent first = {};  // of those that are waiting
    uint64_t waiting = 0;
    int error = 0;  // of the first; 0: the detail is there already
    std::optional<int64_t> told_ns = {};
  };
  class Reports final : public DeviceReports {
   public:
    Reports(EventQueue& queue, std::string device, size_t first)
        : queue_(queue), device_(std::move(device)), first_(first) {}
    const std::string& device() const { return device_; }
    void RequestFailed(BlockOp op, int error) override {
      queue_.Repeat(first_ + 1 + static_cast<size_t>(op), error, "");
    }
    void RequestKept(BlockOp op, int error) override {
      queue_.Repeat(first_ + 1 + kBlockOps + static_cast<size_t>(op), error, "");
    }
    void NeedsReset(std::string_view why) override { queue_.Repeat(first_, 0, why); }

   private:
    EventQueue& queue_;
    const std::string device_;
    // In repeated_: the reset, then the operations that failed, then those that stopped.
    const size_t first_;
  };

  EventQueue(EventSink* sink, IoThread& io_thread, absl::Duration pace);

  bool Listens() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return begun_ && !last_; }
  void Repeat(size_t index, int error, std::string_view detail);
  // On the I/O thread.
  void Deliver();
  // The oldest that may be told now, with its sequence.
  std::optional<MachineEvent> Take();
  MachineEvent TakeRepeated(Repeated& repeated, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t DueNs(const Repeated& repeated) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Repeated* OldestDue(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EventSink* const sink_;
  IoThread& io_thread_;
  const int64_t pace_ns_;

  Mutex mutex_;  // never held while anybody is called
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;  // since the newest of those
  std::deque<Repeated> repeated_ ABSL_GUARDED_BY(mutex_);
  std::deque<Reports> reports_ ABSL_GUARDED_BY(mutex_);
  std::optional<MachineEvent> last_ ABSL_GUARDED_BY(mutex_);  // kEnded, from End on
  bool last_taken_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  Event told_last_;

  TaskTo<EventQueue, &EventQueue::Deliver> deliver_{*this};
  // Rings when what was told lately may be told again. Until AwaitEnd; null: nobody listens.
  std::unique_ptr<Alarm> alarm_;
};

}  // namespace ringside
