// What a device tells of its troubles, for tests to look at.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "devices/device_reports.h"

namespace ringside::testing {

class RecordingReports final : public DeviceReports {
 public:
  struct Report {
    BlockOp op;
    int error;
    bool kept;
    bool operator==(const Report&) const = default;
  };

  void RequestFailed(BlockOp op, int error) override { Add({op, error, false}); }
  void RequestKept(BlockOp op, int error) override { Add({op, error, true}); }
  void NeedsReset(std::string_view /*why*/) override {}
  bool HasAny() {
    const MutexLock lock(mutex_);
    return !reports_.empty();
  }
  // Those since the last call.
  std::vector<Report> Take() {
    const MutexLock lock(mutex_);
    return std::exchange(reports_, {});
  }

 private:
  void Add(const Report& report) {
    const MutexLock lock(mutex_);
    reports_.push_back(report);
  }

  Mutex mutex_;
  std::vector<Report> reports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside::testing
