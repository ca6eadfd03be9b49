// Says what is waited for, once that has taken a while: nobody is to look at a silent terminal.
//
// Threads: one; the line comes from a thread of the notice's own.
#pragma once

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/sync.h"

namespace ringside {

class SlowNotice {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // From now on until the end of the object. `what`: such as "'x' to answer, 15s at most".
  SlowNotice(Logger log, std::string what, absl::Duration patience = kPatience);
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  Event over_;
  std::thread thread_;
};

}  // namespace ringside
