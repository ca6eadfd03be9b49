#include "tests/support/nvme/nvme_model_work.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "tests/support/nvme/nvme_model_spec.h"

namespace ringside::testing {
namespace {

using nvme::Status;
using Kind = NvmeModelFault::Kind;

}  // namespace

NvmeModelWork::NvmeModelWork(const NvmeModelConfig& config, NvmeModelQueues& queues,
                             NvmeModelAdmin& admin, NvmeModelIo& io, NvmeModelRecord& record)
    : config_(config),
      queues_(queues),
      admin_(admin),
      io_(io),
      record_(record),
      random_(config.shuffle_seed.value_or(0)) {}

bool NvmeModelWork::Run() {
  const bool fetched = Fetch();
  return (!pending_.empty() && RunDue()) || fetched;
}

bool NvmeModelWork::Fetch() {
  bool found = false;
  // Admin commands, of queue 0, come last: an Abort finds what was sent before it, and nobody
  // looks at a queue that one of them has deleted.
  for (size_t i = queues_.submissions().size(); i-- > 0;) {
    NvmeModelSubmissionQueue& queue = *queues_.submissions()[i];
    nvme::Command command;
    while (!end_ && queues_.Fetch(queue, command)) {
      found = true;
      Take(queue, command);
    }
  }
  return found;
}

void NvmeModelWork::Take(NvmeModelSubmissionQueue& queue, const nvme::Command& command) {
  if (command.id == 0xffff || queue.in_flight[command.id]) {
    record_.Violate("submission queue %d: command identifier %d %s", queue.id, command.id,
                    command.id == 0xffff ? "is reserved" : "is in flight");
    queues_.Post({.sq_id = queue.id, .id = command.id, .status = kIdConflict});
    return;
  }
  const std::optional<NvmeModelFault> fault =
      faults_.empty() ? std::nullopt : Match(queue.id, command.opcode);
  if (fault && (fault->kind == Kind::kFatal || fault->kind == Kind::kGone)) {
    end_ = fault->kind;
    return;
  }
  queue.in_flight[command.id] = true;
  if (fault || config_.service_ns > 0 || config_.shuffle_seed) {
    Keep(command, queue.id, fault);
    return;
  }
  const NvmeModelOutcome outcome = ExecuteAny(command, queue.id);
  if (outcome.completes) Complete(command, queue.id, outcome, fault);
}

std::optional<NvmeModelFault> NvmeModelWork::Match(uint16_t queue, uint8_t opcode) {
  for (size_t i = 0; i < faults_.size(); ++i) {
    NvmeModelFault& fault = faults_[i];
    if (fault.admin != (queue == 0) || fault.opcode.value_or(opcode) != opcode) continue;
    if (fault.skip > 0) {
      --fault.skip;
      continue;
    }
    const NvmeModelFault hit = fault;
    if (--fault.times == 0) faults_.erase(faults_.begin() + static_cast<ptrdiff_t>(i));
    return hit;
  }
  return std::nullopt;
}

void NvmeModelWork::Keep(const nvme::Command& command, uint16_t queue,
                         const std::optional<NvmeModelFault>& fault) {
  State state = State::kTimed;
  int64_t wait_ns = config_.service_ns;
  if (fault && fault->kind == Kind::kHang) state = State::kHung;
  if (fault && fault->kind == Kind::kHold) state = State::kHeld;
  if (fault && fault->kind == Kind::kDelay) wait_ns += fault->delay_ns;
  pending_.push_back({command, queue, state, MonotonicNs() + wait_ns, fault});
}

bool NvmeModelWork::has_timed() const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const Pending& one) { return one.state == State::kTimed; });
}

bool NvmeModelWork::RunDue() {
  bool found = false;
  const int64_t now = MonotonicNs();
  const auto is_due = [now](const Pending& one) {
    return one.state == State::kTimed && one.due_ns <= now;
  };
  for (;;) {
    const auto count = std::count_if(pending_.begin(), pending_.end(), is_due);
    if (count == 0) return found;
    uint64_t skip = config_.shuffle_seed ? random_() % static_cast<uint64_t>(count) : 0;
    size_t i = 0;
    while (!is_due(pending_[i]) || skip-- > 0) ++i;
    Execute(TakeOut(i));
    found = true;
  }
}

NvmeModelWork::Pending NvmeModelWork::TakeOut(size_t i) {
  Pending pending = pending_[i];
  pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
  return pending;
}

void NvmeModelWork::Execute(const Pending& pending) {
  NvmeModelOutcome outcome;
  if (pending.fault && pending.fault->kind == Kind::kStatus) {
    outcome.status = pending.fault->status;
  } else {
    outcome = ExecuteAny(pending.command, pending.queue);
  }
  if (!outcome.completes) return;
  if (pending.fault && pending.fault->kind == Kind::kLoseCompletion) {
    pending_.push_back(pending);
    pending_.back().state = State::kLost;
    return;
  }
  Complete(pending.command, pending.queue, outcome, pending.fault);
}

NvmeModelOutcome NvmeModelWork::ExecuteAny(const nvme::Command& command, uint16_t queue) {
  NvmeModelOutcome outcome;
  if (command.flags != 0) {
    record_.Violate("submission queue %d: a command with SGLs or fused, flags %#x", queue,
                    command.flags);
    outcome.status = nvme::kInvalidField;
  } else if (queue != 0) {
    outcome.status = io_.Execute(command);
  } else if (command.opcode == static_cast<uint8_t>(nvme::AdminOp::kAbort)) {
    outcome = Abort(command);
  } else {
    const auto deleted = static_cast<uint16_t>(command.cdw10);
    if (command.opcode == static_cast<uint8_t>(nvme::AdminOp::kDeleteSq) && deleted != 0) {
      AbortAll(deleted);
    }
    outcome = admin_.Execute(command);
  }
  ++record_.counters.commands;
  if (config_.keep_log) Log(command, queue, outcome.status);
  return outcome;
}

NvmeModelOutcome NvmeModelWork::Abort(const nvme::Command& command) {
  constexpr uint32_t kNotAborted = 1;
  const auto queue = static_cast<uint16_t>(command.cdw10);
  const auto id = static_cast<uint16_t>(command.cdw10 >> 16);
  if (abort_ == NvmeModelAbort::kRefuses) return {nvme::kSuccess, kNotAborted};
  for (size_t i = 0; i < pending_.size(); ++i) {
    const Pending& one = pending_[i];
    if (one.queue != queue || one.command.id != id || one.state == State::kLost) continue;
    TakeOut(i);
    nvme::Command aborted = {};
    aborted.id = id;
    Complete(aborted, queue, {nvme::kAbortRequested}, std::nullopt);
    return {};
  }
  return {nvme::kSuccess, kNotAborted};
}

void NvmeModelWork::AbortAll(uint16_t queue) {
  for (size_t i = 0; i < pending_.size();) {
    if (pending_[i].queue != queue) {
      ++i;
      continue;
    }
    const Pending one = TakeOut(i);
    if (!config_.deletes_busy) {
      record_.Violate("submission queue %d is deleted with command %d in flight", queue,
                      one.command.id);
    }
    Complete(one.command, queue, {nvme::kAbortedSqDeletion}, std::nullopt);
  }
}

void NvmeModelWork::Complete(const nvme::Command& command, uint16_t queue,
                             const NvmeModelOutcome& outcome,
                             const std::optional<NvmeModelFault>& fault) {
  queues_.submission(queue)->in_flight[command.id] = false;
  nvme::Completion completion = {
      .result = outcome.result, .sq_id = queue, .id = command.id, .status = outcome.status};
  if (!fault) {
    queues_.Post(completion);
    return;
  }
  nvme::Completion changed = completion;
  changed.id ^= fault->id_xor;
  switch (fault->kind) {
    case Kind::kDuplicate:
      queues_.Post(completion);
      queues_.Post(changed);
      break;
    case Kind::kWrongId:
      queues_.Post(changed);
      break;
    default:
      queues_.Post(completion, fault->kind == Kind::kWrongPhase);
  }
}

void NvmeModelWork::Log(const nvme::Command& command, uint16_t queue, Status status) {
  record_.log.push_back({.queue = queue,
                         .id = command.id,
                         .opcode = command.opcode,
                         .nsid = command.nsid,
                         .start = command.cdw10 | uint64_t{command.cdw11} << 32,
                         .blocks = (command.cdw12 & 0xffff) + 1,
                         .flags = command.cdw12 & 0xffff0000,
                         .status = status});
}

size_t NvmeModelWork::held() const {
  return static_cast<size_t>(
      std::count_if(pending_.begin(), pending_.end(),
                    [](const Pending& one) { return one.state == State::kHeld; }));
}

void NvmeModelWork::Release() {
  for (size_t i = 0; i < pending_.size();) {
    if (pending_[i].state == State::kHeld) {
      Execute(TakeOut(i));
    } else {
      ++i;
    }
  }
}

}  // namespace ringside::testing
