// What becomes of a controller that does not answer, stops, or is gone.

#include <algorithm>

#include "base/clock.h"
#include "base/status.h"
#include "nvme/nvme_controller.h"

namespace ringside {

// Those too that went by while the controller was waited for, as a step that takes its time must
// not prolong another. No more than a time-out at once: if it is this process that stood still,
// commands are late at worst.
void NvmeController::CountTicks() {
  const int64_t now_ns = MonotonicNs();
  const int64_t passed = (now_ns - counted_ns_) / pace_.tick_ns;
  if (passed == 0) return;
  const auto ticks = static_cast<uint32_t>(std::min<int64_t>(passed, pace_.ticks_a_timeout));
  const uint32_t tick = watch_.tick.load(std::memory_order_relaxed);
  watch_.tick.store(NvmeWatch::Later(tick, ticks), std::memory_order_relaxed);
  counted_ns_ = now_ns;
}

void NvmeController::Tick() {
  CountTicks();
  next_tick_ns_ = MonotonicNs() + pace_.tick_ns;
  // When the machine is over CancelQueue ends what there is.
  if (!given_up_ && !away_ && !watch_.ends()) {
    const uint32_t status = admin_->status();
    if (status == nvme::kGone) {
      Recover("it is gone");
    } else if ((status & nvme::kCstsFatal) != 0 || (status & nvme::kCstsReady) == 0) {
      Recover(absl::StrFormat("it has stopped by itself (CSTS is 0x%x)", status));
    } else {
      for (NvmeQueue* queue : Queues()) CheckCommands(*queue);
    }
  }
  for (NvmeQueue* queue : Queues()) CheckWaiters(*queue);
  Rest();
}

void NvmeController::CheckCommands(NvmeQueue& queue) {
  const uint32_t limit = pace_.ticks_a_timeout;
  while (!given_up_ && queue.created) {
    CountTicks();  // an abort may have taken long
    const uint32_t now = watch_.tick.load(std::memory_order_relaxed);
    if (!queue.AnyInFlightFor(limit + 1, now)) return;
    NvmeChannel::Overdue overdue;
    queue.OnIoThread([&](NvmeChannel& channel) { overdue = channel.FindOverdue(now, limit); });
    if (overdue.remedy == NvmeChannel::Remedy::kNone) {
      // The answer was there: being asked has woken the thread.
      lost_interrupts_.Add();
      return;
    }
    if (overdue.remedy == NvmeChannel::Remedy::kReset) {
      return Recover(absl::StrFormat("a command has had no answer for %s",
                                     absl::FormatDuration(2 * settings_.timeout)));
    }
    log_limit_.Log(Severity::kWarning, "%s: a command has had no answer for %s: aborting it",
                   name(), absl::FormatDuration(settings_.timeout));
    const auto aborted = admin_->Execute({.opcode = static_cast<uint8_t>(nvme::AdminOp::kAbort),
                                          .cdw10 = queue.id() | uint32_t{overdue.id} << 16},
                                         overdue.ticks_left * absl::Nanoseconds(pace_.tick_ns));
    // One that is refused has another time-out to end by itself.
    if (!aborted.ok() && !absl::IsInternal(aborted.status())) {
      return Recover(std::string(Message(aborted.status())));
    }
  }
}

void NvmeController::CheckWaiters(NvmeQueue& queue) {
  const uint32_t now = watch_.tick.load(std::memory_order_relaxed);
  const uint32_t limit = pace_.ticks_a_wait;
  const uint32_t since = queue.waits_since().load(std::memory_order_relaxed);
  if (since == 0 || now - since <= limit) return;
  uint64_t failed = 0;
  queue.OnIoThread([&](NvmeChannel& channel) { failed = channel.FailOverdueWaiters(now, limit); });
  if (failed == 0) return;
  log_limit_.Log(Severity::kWarning, "%s: %d requests have found no room in their queue for %s",
                 name(), failed, absl::FormatDuration(limit * absl::Nanoseconds(pace_.tick_ns)));
}

void NvmeController::Recover(const std::string& why) {
  log_limit_.Log(Severity::kWarning, "%s: %s: resetting the controller", name(), why);
  resets_.Add();
  if (recover_until_ns_ == NvmeAdmin::kNever) {
    recover_until_ns_ = MonotonicNs() + absl::ToInt64Nanoseconds(settings_.open_limit);
    admin_->SetDeadline(recover_until_ns_);
  }
  const auto queues = Queues();
  const uint32_t now = watch_.tick.load(std::memory_order_relaxed);
  for (NvmeQueue* queue : queues) {
    queue->OnIoThread([&](NvmeChannel& channel) {
      channel.MarkOverdue(now, pace_.ticks_a_timeout);
      channel.Freeze();
    });
  }
  const absl::Status status = Restart();
  if (MayReturn(status)) return WaitForReturn(status);
  if (!status.ok()) return GiveUp(status);
  for (NvmeQueue* queue : queues) queue->created = false;
  wake_.Signal();  // ChangeQueues makes them
}

// Not before every queue is there again: else one that stops each time in the middle would have all
// its time anew each time.
void NvmeController::EndRecovery() {
  stops_ = 0;
  if (recover_until_ns_ == NvmeAdmin::kNever) return;
  recover_until_ns_ = away_until_ns_ = NvmeAdmin::kNever;
  admin_->SetDeadline(NvmeAdmin::kNever);
}

// Disabled, so nothing is in flight any more, and up again.
absl::Status NvmeController::Restart() {
  RINGSIDE_RETURN_IF_ERROR(admin_->Disable());
  if (absl::Status status = BringUp(); status.ok() || watch_.ends()) return status;
  RINGSIDE_RETURN_IF_ERROR(device_->Reset());
  RINGSIDE_RETURN_IF_ERROR(admin_->Disable());
  return BringUp();
}

bool NvmeController::MayReturn(const absl::Status& status) const {
  return absl::IsUnavailable(status) && !given_up_ && !watch_.ends() && device_->gone_fd() >= 0;
}

// All channels are frozen. It has a time-out to come back, from the first time it was gone, and
// then as long again to come up, where that is less than a reset has.
void NvmeController::WaitForReturn(const absl::Status& why) {
  const int64_t now_ns = MonotonicNs();
  if (away_until_ns_ == NvmeAdmin::kNever) {
    away_until_ns_ = now_ns + absl::ToInt64Nanoseconds(settings_.timeout);
    recover_until_ns_ = away_until_ns_ +
                        absl::ToInt64Nanoseconds(std::min(settings_.timeout, settings_.open_limit));
    admin_->SetDeadline(recover_until_ns_);
    log_limit_.Log(Severity::kWarning, "%s: waiting %s for it to come back", name(),
                   absl::FormatDuration(settings_.timeout));
  }
  if (now_ns >= away_until_ns_) return GiveUp(why);
  away_ = true;
  for (NvmeQueue* queue : Queues()) queue->created = false;
}

void NvmeController::TryReturn() {
  absl::Status status = device_->Reset();
  if (status.ok()) status = admin_->CheckCapabilities(queue_entries_);
  if (status.ok()) status = Restart();
  if (status.ok()) status = CheckSame();
  if (status.ok()) status = CheckNamespaces();
  if (MayReturn(status) && MonotonicNs() < away_until_ns_) return;
  away_ = false;
  if (!status.ok()) return GiveUp(status);
  log_limit_.Log(Severity::kWarning, "%s is back", name());
  if (has_cache_) LoseCache("it was gone");
}

// As they were told at first, as far as requests depend on it: the controller, and its namespaces.
absl::Status NvmeController::CheckSame() {
  RINGSIDE_ASSIGN_OR_RETURN(const NvmeFeatures now, IdentifyFeatures());
  if (now.most_bytes >= most_bytes_ && now.volatile_cache == has_cache_ &&
      now.discard >= has_discard_ && now.doorbell_buffers >= has_shadows_) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "it came back as another controller: with smaller transfers, without commands that it had, "
      "or with another kind of cache");
}

absl::Status NvmeController::CheckNamespaces() {
  for (const auto& [nsid, before] : namespaces_) {
    RINGSIDE_ASSIGN_OR_RETURN(const NvmeNamespace now, IdentifyHere(nsid));
    if (now.info.size < before.info.size || now.block_size != before.block_size ||
        now.boundary != before.boundary) {
      return absl::FailedPreconditionError(
          absl::StrFormat("it came back with another namespace %d", nsid));
    }
  }
  return absl::OkStatus();
}

void NvmeController::LoseCache(const char* why) {
  if (cache_lost_.exchange(true)) return;
  log_.Log(Severity::kError,
           "%s: %s, so writes in its cache may be lost: no flush will succeed any more", name(),
           why);
}

absl::Status NvmeController::GivenUp() const {
  return absl::UnavailableError(
      absl::StrFormat("%s does not work any more; see what the log says of it", name()));
}

void NvmeController::GiveUp(const absl::Status& why) {
  // Some reasons name it already.
  const std::string who = Message(why).starts_with(name()) ? "" : name() + ": ";
  log_.Log(Severity::kError, "%s%s: its disks fail from now on", who, Message(why));
  CutOff();
}

void NvmeController::CutOff() {
  away_ = false;
  given_up_ = true;
  // Whatever it still does, it does to no memory.
  admin_->LeaveBus();
  space_.CutOff();
  for (NvmeQueue* queue : Queues()) {
    queue->failed = true;
    queue->OnIoThread([](NvmeChannel& channel) { channel.Fail(); });
  }
}

}  // namespace ringside
