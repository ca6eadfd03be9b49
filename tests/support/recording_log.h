// A log whose lines a test can look at.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/sync.h"

namespace ringside::testing {

class RecordingLog final : public LogSink {
 public:
  void Log(Severity, std::string_view line) override {
    const MutexLock lock(mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> lines() const {
    const MutexLock lock(mutex_);
    return lines_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside::testing
