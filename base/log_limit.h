// A log for what others can bring about as often as they like: a guest, a server, a controller. So
// many lines at once, then one a minute. What is left out is counted, and the next line that is
// logged says how much that was.
//
// Threads: any. Ownership: as Logger.
#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"

namespace ringside {

class LogLimit {
 public:
  static constexpr int kLines = 5;
  static constexpr int64_t kRefillNs = 60'000'000'000;

  explicit LogLimit(Logger log, int lines = kLines) : log_(log), lines_(lines), left_(lines) {}

  template <typename... Args>
  void Log(Severity severity, const absl::FormatSpec<Args...>& format, const Args&... args) {
    const Grant grant = Take(MonotonicNs());
    if (!grant.is_given) return;
    log_.Log(severity, "%s%s", absl::StrFormat(format, args...), Remark(grant));
  }

  // Whether a line may be logged now.
  struct Grant {
    bool is_given;
    bool is_last;       // for the time being
    uint64_t left_out;  // since the last that was given
  };
  Grant Take(int64_t now_ns);

 private:
  static std::string Remark(const Grant& grant);

  const Logger log_;
  const int lines_;
  Mutex mutex_;
  int left_ ABSL_GUARDED_BY(mutex_);
  int64_t refilled_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ringside
