#include "vmm/event_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr std::array kRequests = {"read", "write", "flush", "discard", "write of zeroes"};
static_assert(static_cast<size_t>(BlockOp::kWriteZeroes) + 1 == kRequests.size());

MachineEvent Now(EventKind kind) {
  return {.kind = kind, .time = absl::Now(), .monotonic_ns = MonotonicNs()};
}

}  // namespace

const char* BlockOpName(BlockOp op) {
  return kRequests[static_cast<size_t>(op)];
}

absl::StatusOr<std::unique_ptr<EventQueue>> EventQueue::Create(EventSink* sink, IoThread& io_thread,
                                                               absl::Duration pace) {
  std::unique_ptr<EventQueue> queue(new EventQueue(sink, io_thread, pace));
  if (sink == nullptr) return queue;
  RINGSIDE_ASSIGN_OR_RETURN(queue->alarm_, Alarm::Create(io_thread, [&queue = *queue] {
                              queue.io_thread_.Post(queue.deliver_);
                            }));
  const MutexLock lock(queue->mutex_);
  queue->repeated_.push_back({.kind = EventKind::kPanicked, .device = "", .request = nullptr});
  return queue;
}

EventQueue::EventQueue(EventSink* sink, IoThread& io_thread, absl::Duration pace)
    : sink_(sink), io_thread_(io_thread), pace_ns_(absl::ToInt64Nanoseconds(pace)) {}

void EventQueue::Begin() {
  const MutexLock lock(mutex_);
  begun_ = sink_ != nullptr;
  if (begun_ && last_) io_thread_.Post(deliver_);
}

void EventQueue::Put(EventKind kind) {
  if (sink_ == nullptr) return;
  {
    const MutexLock lock(mutex_);
    if (!Listens()) return;
    if (waiting_.size() == kMostWaiting) {
      ++lost_;
      return;
    }
    waiting_.push_back({.event = Now(kind), .lost = std::exchange(lost_, 0)});
  }
  io_thread_.Post(deliver_);
}

DeviceReports* EventQueue::Of(const std::string& device) {
  if (sink_ == nullptr) return nullptr;
  const MutexLock lock(mutex_);
  const auto known = std::ranges::find(reports_, device, &Reports::device);
  if (known != reports_.end()) return &*known;
  const size_t first = repeated_.size();
  repeated_.push_back({.kind = EventKind::kNeedsReset, .device = device, .request = nullptr});
  for (const EventKind kind : {EventKind::kDiskError, EventKind::kDiskStopped}) {
    for (const char* request : kRequests) {
      repeated_.push_back({.kind = kind, .device = device, .request = request});
    }
  }
  return &reports_.emplace_back(*this, device, first);
}

void EventQueue::Repeat(size_t index, int error, std::string_view detail) {
  if (sink_ == nullptr) return;
  {
    const MutexLock lock(mutex_);
    if (!Listens()) return;
    Repeated& repeated = repeated_[index];
    if (repeated.waiting++ > 0) return;  // whoever was the first has posted, or the alarm is set
    repeated.first = Now(repeated.kind);
    repeated.first.detail = detail;
    repeated.error = error;
  }
  io_thread_.Post(deliver_);
}

void EventQueue::End(std::string_view detail) {
  {
    const MutexLock lock(mutex_);
    if (last_) return;
    last_ = Now(EventKind::kEnded);
    last_->detail = Printable(detail);
    if (!begun_) return;  // Begin tells it
  }
  io_thread_.Post(deliver_);
}

void EventQueue::AwaitEnd() {
  bool begun;
  {
    const MutexLock lock(mutex_);
    begun = begun_;
  }
  if (begun) told_last_.Wait();
  alarm_.reset();
}

void EventQueue::Deliver() {
  const std::optional<MachineEvent> event = Take();
  if (!event) return;
  sink_->Happened(*event);
  if (event->kind == EventKind::kEnded) return told_last_.Notify();
  io_thread_.Post(deliver_);  // for the next, once others have had their turn
}

std::optional<MachineEvent> EventQueue::Take() {
  const MutexLock lock(mutex_);
  const int64_t now_ns = MonotonicNs();
  std::optional<MachineEvent> event;
  Repeated* const repeated = OldestDue(now_ns);
  if (repeated != nullptr &&
      (waiting_.empty() || repeated->first.monotonic_ns < waiting_.front().event.monotonic_ns)) {
    event = TakeRepeated(*repeated, now_ns);
  } else if (!waiting_.empty()) {
    sequence_ += waiting_.front().lost;
    event = std::move(waiting_.front().event);
    waiting_.pop_front();
  } else if (last_ && !std::exchange(last_taken_, true)) {
    sequence_ += std::exchange(lost_, 0);
    event = *last_;
  }
  if (event) event->sequence = ++sequence_;
  return event;
}

MachineEvent EventQueue::TakeRepeated(Repeated& repeated, int64_t now_ns) {
  MachineEvent event = std::exchange(repeated.first, {});
  event.device = repeated.device;
  event.count = std::exchange(repeated.waiting, 0);
  if (repeated.error != 0) {
    const bool is_kept = repeated.kind == EventKind::kDiskStopped;
    event.detail = Message(
        ErrnoError(repeated.error, absl::StrFormat("a %s failed", repeated.request),
                   is_kept ? "the machine pauses, and tries it again when it is resumed" : ""));
  }
  event.detail = Printable(event.detail);
  repeated.told_ns = now_ns;
  return event;
}

int64_t EventQueue::DueNs(const Repeated& repeated) const {
  return last_ || !repeated.told_ns ? 0 : *repeated.told_ns + pace_ns_;
}

// Sets the alarm for those that have to wait, if none is due.
EventQueue::Repeated* EventQueue::OldestDue(int64_t now_ns) {
  Repeated* oldest = nullptr;
  int64_t next_due_ns = std::numeric_limits<int64_t>::max();
  for (Repeated& repeated : repeated_) {
    if (repeated.waiting == 0) continue;
    if (DueNs(repeated) > now_ns) {
      next_due_ns = std::min(next_due_ns, DueNs(repeated));
    } else if (oldest == nullptr || repeated.first.monotonic_ns < oldest->first.monotonic_ns) {
      oldest = &repeated;
    }
  }
  if (oldest == nullptr && next_due_ns != std::numeric_limits<int64_t>::max()) {
    alarm_->Set(next_due_ns);
  }
  return oldest;
}

}  // namespace ringside
