// What a virtio device tells its transport, kept for a test.
//
// Threads: any.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "base/sync.h"
#include "devices/virtio_device.h"

namespace ringside::testing {

class RecordingVirtioEvents final : public VirtioEvents {
 public:
  void ConfigChanged() override { ++config_changes; }
  void NeedsReset(std::string_view why) override {
    const MutexLock lock(mutex_);
    reasons_.emplace_back(why);
  }
  std::vector<std::string> reasons() const {
    const MutexLock lock(mutex_);
    return reasons_;
  }
  std::atomic<int> config_changes{0};

 private:
  mutable Mutex mutex_;
  std::vector<std::string> reasons_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside::testing
