// What the channels of a disk with faults share: the plan, and the power cut with the writes that
// it may undo.
//
// Threads: any.
#pragma once

#include <memory>
#include <optional>

#include "base/log.h"
#include "base/sync.h"
#include "block/block_device.h"
#include "faults/fault_plan.h"
#include "faults/unflushed_writes.h"

namespace ringside {

class FaultState {
 public:
  using Write = UnflushedWrites::Write;

  // `name`: the disk's, in messages.
  FaultState(FaultScript script, int64_t now_ns, std::string name, const BlockInfo& info,
             Logger logger);

  FaultPlan& plan() { return plan_; }
  const std::string& name() const { return name_; }
  const Logger& logger() const { return logger_; }
  // What a write can be torn into.
  uint32_t sector() const { return sector_; }

  // Whether the script has a power cut, so that writes and flushes are followed.
  bool follows() const { return follows_; }
  // Each request that changes the disk, between these two. False: the power is off, and nothing
  // more is to be begun.
  bool Begins();
  void Ends();
  // Between them: a place for what the write overwrites, null if it goes around the cache.
  Write* Add(const BlockRequest& request);
  void Done(Write& write, bool durable);
  // A discard or zeroes: all that is done is durable.
  void FlushedByItself();
  uint64_t FlushBegins();
  // It has succeeded. False: the power went off meanwhile.
  bool Flushed(uint64_t begun_at);

  // The power is off from now on. False: it was already.
  bool CutPower();
  bool is_off() const;
  // Nothing changes the disk any more: who has cut the power may put back what is lost.
  bool is_quiet() const;
  CutReport Lose(uint64_t random);

 private:
  FaultPlan plan_;
  const std::string name_;
  const Logger logger_;
  const uint32_t sector_;
  const bool follows_;
  mutable Mutex mutex_;
  std::unique_ptr<UnflushedWrites> writes_ ABSL_GUARDED_BY(mutex_);  // null: nothing is followed
  size_t changing_ ABSL_GUARDED_BY(mutex_) = 0;  // requests that change the disk right now
  bool off_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ringside
