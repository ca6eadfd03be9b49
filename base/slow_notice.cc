#include "base/slow_notice.h"

#include <utility>

#include "base/thread.h"

namespace ringside {

SlowNotice::SlowNotice(Logger log, std::string what, absl::Duration patience) {
  auto thread = StartThread("slow-notice", [this, log, patience, what = std::move(what)] {
    if (!over_.WaitFor(patience)) log.Log(Severity::kInfo, "waiting for %s", what);
  });
  if (thread.ok()) thread_ = *std::move(thread);  // else it is waited for in silence
}

SlowNotice::~SlowNotice() {
  over_.Notify();
  if (thread_.joinable()) thread_.join();
}

}  // namespace ringside
