#include "nvme/nvme_channel.h"

#include <bit>
#include <cerrno>

#include "base/status.h"
#include "nvme/nvme_names.h"

namespace ringside {
namespace {

NvmeRing MakeRing(NvmeQueue& queue) {
  const NvmeQueue::Parts& parts = queue.parts();
  return NvmeRing({.submissions = queue.memory().submissions.data(),
                   .completions = queue.memory().completions.data(),
                   .entries = parts.entries,
                   .submission_doorbell = parts.submission_doorbell,
                   .completion_doorbell = parts.completion_doorbell});
}

}  // namespace

absl::StatusOr<std::unique_ptr<NvmeChannel>> NvmeChannel::Create(const Parts& parts) {
  std::unique_ptr<NvmeChannel> channel(new NvmeChannel(parts));
  RINGSIDE_RETURN_IF_ERROR(parts.io_thread.Attach(channel->completions_, Phase::kComplete));
  return channel;
}

NvmeChannel::NvmeChannel(const Parts& parts)
    : NvmeRequests(parts.io_thread, parts.ns, parts.counters),
      queue_(parts.queue),
      offsets_(parts.offsets.data()),
      watch_(parts.queue.parts().watch),
      device_(parts.queue.parts().device),
      cache_lost_(parts.cache_lost),
      ring_(MakeRing(parts.queue)),
      name_(parts.name),
      log_(parts.log) {
  const size_t in_flight = queue_.parts().entries - size_t{1};
  for (Slot& slot : std::span(slots_).first(in_flight)) {
    slot.command.nsid = ns_.id;
    AddSlot(slot);
  }
  for (auto& bounce : queue_.memory().bounces) free_bounces_.push_back(bounce.data());
  must_wait_ = true;  // frozen
  queue_.Open(*this);
}

NvmeChannel::~NvmeChannel() {
  io_thread_.Detach(completions_);  // does nothing if it never was attached
  queue_.Close();
}

void NvmeChannel::Submit(BlockRequest& request) {
  // Behind those that wait already: nobody is overtaken for ever.
  if (must_wait_ || free_ == nullptr) [[unlikely]]
    return Wait(request);
  if (FillPages(*free_, request)) [[likely]]
    return SendNow(TakeSlot(request, nullptr));
  Start(request);
}

// Most requests: one segment, in two pages at most, which takes neither a list nor a loop, and
// which no MDTS forbids. False if this is no such one; Start does them all. What is beyond the end
// the controller refuses.
inline bool NvmeChannel::FillPages(Slot& slot, const BlockRequest& request) {
  if (request.op > BlockOp::kWrite || request.segments.size() != 1) return false;
  const Segment& segment = request.segments.front();
  const uint64_t length = segment.length;
  const uint64_t offset = request.offset;
  const uint64_t iova = reinterpret_cast<uint64_t>(segment.host) + offsets_[segment.region];
  const uint64_t end = (iova & (nvme::kPageSize - 1)) + length;
  const bool simple = (iova & 3) == 0 && length != 0 && end <= uint64_t{2} * nvme::kPageSize &&
                      ((offset | length) & (ns_.block_size - 1)) == 0 && ns_.boundary == 0;
  const bool write = request.op == BlockOp::kWrite;
  if (!simple || (write && ns_.info.read_only)) return false;
  nvme::Command& command = slot.command;
  command.opcode = static_cast<uint8_t>(write ? nvme::IoOp::kWrite : nvme::IoOp::kRead);
  command.prp1 = iova;
  command.prp2 = end > nvme::kPageSize ? (iova | (nvme::kPageSize - 1)) + 1 : 0;
  nvme::SetRange(command, block_shift_, offset, length,
                 write && request.durable && ns_.volatile_cache ? nvme::kForceUnitAccess : 0);
  return true;
}

void NvmeChannel::Send(Slot& slot) {
  if (!frozen_) return SendNow(slot);
  slot.command.id = static_cast<uint16_t>(IndexOf(slot));  // in flight, so Thaw sends it
}

inline void NvmeChannel::SendNow(Slot& slot) {
  const size_t index = IndexOf(slot);
  slot.command.id = static_cast<uint16_t>(++slot.generation << 8 | index);
  ++slot.sends;
  counters_.commands.Add();
  queue_.sent_at(index).store(watch_.tick.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
  ring_.Push(slot.command);
  io_thread_.AtHandOver(doorbell_hook_);
}

void NvmeChannel::RingDoorbell() {
  if (frozen_ || failed_) return;
  if (ring_.RingDoorbell()) counters_.doorbells.Add();
  // No fence: see NvmeController::Rest.
  if (watch_.asleep.load(std::memory_order_relaxed)) [[unlikely]] {
    queue_.parts().control.Signal();
  }
}

void NvmeChannel::Reap() {
  TakeCompletions();
  if (ring_.Acknowledge()) counters_.doorbells.Add();
  // The second time since the thread last slept: so it looks, and whoever looks needs no interrupt.
  // One that comes once a sleep is cheaper than two writes to the device.
  if (unmasking_) [[unlikely]] {
    unmasking_ = !device_.UnmaskVector(queue_.id());
  } else {
    if (reaped_ && !masked_) [[unlikely]] {
      device_.MaskVector(queue_.id());
      masked_ = true;
    }
    reaped_ = true;
  }
  if (must_wait_) GoOn();
}

// No more than a ring's worth.
inline void NvmeChannel::TakeCompletions() {
  for (unsigned left = ring_.entries(); left > 0; --left) {
    nvme::CompletionEnd end;
    if (!ring_.Pop(end)) return;
    Complete(end);
  }
}

inline void NvmeChannel::Complete(const nvme::CompletionEnd& end) {
  const size_t index = end.id & 0xff;
  if (index >= slots_.size() || slots_[index].command.id != end.id) [[unlikely]] {
    counters_.stray_completions.Add();
    return;
  }
  Slot& slot = slots_[index];
  const nvme::Status status = nvme::StatusOf(end.status);
  if ((status & nvme::kStatusCode) == 0) [[likely]]
    return Finish(slot, index, 0);
  CompleteWithError(slot, index, status);
}

[[gnu::noinline]] void NvmeChannel::CompleteWithError(Slot& slot, size_t index,
                                                      nvme::Status status) {
  if ((status & nvme::kDoNotRetry) != 0 || slot.sends >= nvme::kMostSends) {
    log_.Log(Severity::kWarning, "%s: %s: %s", name_, nvme::IoText(slot.command),
             nvme::StatusText(status));
    return Finish(slot, index, nvme::ErrnoOf(status));
  }
  counters_.resent.Add();
  Send(slot);
}

inline void NvmeChannel::Finish(Slot& slot, size_t index, int result) {
  slot.command.id = Slot::kNone;
  queue_.sent_at(index).store(0, std::memory_order_relaxed);
  if (slot.bounce != nullptr) [[unlikely]]
    GiveBackBounce(slot, result);
  slot.overdue = false;
  AddSlot(slot);
  Ended(slot, result);
}

// Not before the thread looks for itself again: it has found nothing to wait for in memory.
void NvmeChannel::LetInterruptsThrough() {
  reaped_ = false;
  if (!masked_) return;
  masked_ = false;
  unmasking_ = !device_.UnmaskVector(queue_.id());
}

void NvmeChannel::Freeze() {
  frozen_ = must_wait_ = true;
}

template <typename GiveUp>
void NvmeChannel::GiveUpIf(GiveUp give_up) {
  for (Slot& slot : slots_) {
    if (slot.in_flight() && give_up(slot)) Finish(slot, IndexOf(slot), failure_);
  }
}

void NvmeChannel::Thaw() {
  if (failed_) return Fail();  // cancelled meanwhile
  // Still frozen, so that what `done` submits waits: only what was sent before is sent again.
  TakeCompletions();
  GiveUpIf([](const Slot& slot) {
    return slot.sends >= (slot.overdue ? nvme::kMostSends : kMostSendsOfOthers);
  });
  frozen_ = false;
  ring_.Restart();
  for (Slot& slot : slots_) {
    if (!slot.in_flight()) continue;
    counters_.resent.Add();
    Send(slot);
  }
  GoOn();
}

void NvmeChannel::Fail() {
  frozen_ = true;
  FailWaiting(failure_);
  TakeCompletions();
  GiveUpIf([](const Slot&) { return true; });
}

void NvmeChannel::Cancel() {
  if (failed_) return;
  FailWaiting(-ECANCELED);
  queue_.Cancel();
}

// The oldest of those that wait has done so at least since then: all that were there have begun.
void NvmeChannel::WaitersChanged() {
  std::atomic<uint32_t>& since = queue_.waits_since();
  if (begun_ == waited_) return since.store(0, std::memory_order_relaxed);
  if (since.load(std::memory_order_relaxed) != 0 && begun_ < looked_at_) return;
  looked_at_ = waited_;
  since.store(watch_.tick.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

uint64_t NvmeChannel::FailOverdueWaiters(uint32_t now, uint32_t limit) {
  const uint32_t since = queue_.waits_since().load(std::memory_order_relaxed);
  if (since == 0 || now - since <= limit) return 0;
  const uint64_t before = begun_;
  FailWaiters(looked_at_ - begun_);
  return begun_ - before;
}

NvmeChannel::Overdue NvmeChannel::FindOverdue(uint32_t now, uint32_t limit) {
  if (completions_.HasWork()) Reap();
  Slot* oldest = nullptr;
  uint32_t most = limit;
  for (Slot& slot : slots_) {
    const uint32_t age = AgeOf(slot, now);
    if (age <= limit) continue;
    if (slot.overdue || age > 2 * limit) {
      counters_.timeouts.Add();
      return {.remedy = Remedy::kReset};
    }
    if (age <= most) continue;
    oldest = &slot;
    most = age;
  }
  if (oldest == nullptr) return {};
  counters_.timeouts.Add();
  oldest->overdue = true;
  // As if it had been sent anew when its time was over, not now: another `limit` from then on is
  // all that it has.
  queue_.sent_at(IndexOf(*oldest))
      .store(NvmeWatch::Later(now - most, limit), std::memory_order_relaxed);
  return {.remedy = Remedy::kAbort, .id = oldest->command.id, .ticks_left = 2 * limit + 1 - most};
}

void NvmeChannel::MarkOverdue(uint32_t now, uint32_t limit) {
  for (Slot& slot : slots_) slot.overdue |= AgeOf(slot, now) > limit;
}

}  // namespace ringside
