// What waits on a channel of an overlay: for blocks that others change, for commits, for memory.
#include <cerrno>

#include "base/clock.h"
#include "overlay/overlay_channel.h"

namespace ringside {

void OverlayChannel::WantCommit(Op& op, Op::Step then) {
  Waits(op, Op::Wait::kCommit, then);
  {
    const MutexLock lock(state_.mutex);
    op.commit = Op::Commit::kNext;
    state_.want_commit.Push(op);
    if (state_.commits) return;
    state_.commits = true;
    TakeUpCommit();
  }
  commit_.Begin();
}

// All that want one share it; the first is not given up, so that its channel stays.
void OverlayChannel::TakeUpCommit() {
  state_.want_commit.front()->leads_commit = true;
  while (Op* const op = state_.want_commit.Pop()) {
    op->commit = Op::Commit::kUnderWay;
    state_.in_commit.Push(*op);
  }
}

void OverlayChannel::CommitEnded(int result) {
  OverlayChannel* next = nullptr;
  {
    const MutexLock lock(state_.mutex);
    while (Op* const op = state_.in_commit.Pop()) {
      if (op->result == 0) op->result = result;
      op->commit = Op::Commit::kNone;
      op->leads_commit = false;
      op->channel->Wake(*op);
    }
    if (state_.want_commit.empty()) {
      state_.commits = false;
    } else {
      next = state_.want_commit.front()->channel;
      TakeUpCommit();
      if (next != this) next->WakeToLead();
    }
  }
  if (next == this) commit_.Begin();
}

// Before others can know of it.
void OverlayChannel::Waits(Op& op, Op::Wait wait, Op::Step then) {
  op.wait = wait;
  op.then = then;
  op.place = waiting_.size();
  waiting_.push_back(&op);
  if (!look_.armed()) io_thread_.Arm(look_, MonotonicNs() + kLookNs);
}

void OverlayChannel::WaitsNoMore(Op& op) {
  op.wait = Op::Wait::kNothing;
  waiting_[op.place] = waiting_.back();
  waiting_[op.place]->place = op.place;
  waiting_.pop_back();
}

// From any channel's thread, which has the lock that all share.
void OverlayChannel::Wake(Op& op) {
  inbox_.Push(op);
  Post();
}

void OverlayChannel::WakeToLead() {
  leads_next_ = true;
  Post();
}

// Whatever is in the inbox by then, the task takes, and nobody else does. So as long as one of this
// channel's ops waits the channel is there, and when none does no task is on its way.
void OverlayChannel::Post() {
  if (posted_) return;
  posted_ = true;
  io_thread_.Post(run_inbox_);
}

void OverlayChannel::RunInbox() {
  Op* op;
  bool leads;
  {
    const MutexLock lock(state_.mutex);
    posted_ = false;
    op = inbox_.TakeAll();
    leads = leads_next_;
    leads_next_ = false;
  }
  if (leads) commit_.Begin();
  // The last may end this channel.
  while (op != nullptr) {
    Op* const next = op->next;
    WaitsNoMore(*op);
    (this->*op->then)(*op);
    op = next;
  }
}

void OverlayChannel::LookAtWaiting(int64_t now_ns) {
  for (size_t i = 0; i < waiting_.size();) {
    Op& op = *waiting_[i];
    if (!GivesUp(op) || !TakeBack(op)) {
      ++i;
      continue;
    }
    WaitsNoMore(op);
    op.result = -ECANCELED;
    ended_.Push(op);
  }
  if (!waiting_.empty()) io_thread_.Arm(look_, now_ns + kLookNs);
  ended_.TakeEach([this](Op& op) { Abandon(op, -ECANCELED); });
}

void OverlayChannel::LookNow() {
  LookAtWaiting(MonotonicNs());
}

// Out of the list that it waits in. False: its turn has come, or it has to stay.
bool OverlayChannel::TakeBack(Op& op) {
  const MutexLock lock(state_.mutex);
  switch (op.wait) {
    case Op::Wait::kNothing:
      return false;
    case Op::Wait::kBlocks:
      if (op.blockers == 0) return false;
      LeaveBlocks(op);
      return true;
    case Op::Wait::kCommit:
      if (op.commit == Op::Commit::kNone || op.leads_commit) return false;
      (op.commit == Op::Commit::kNext ? state_.want_commit : state_.in_commit).Remove(op);
      return true;
    case Op::Wait::kBuffer:
      want_copies_.Remove(op);
      return true;
  }
  return false;
}

}  // namespace ringside
