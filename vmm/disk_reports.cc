#include "vmm/disk_reports.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "vmm/event_queue.h"

namespace ringside {

void DiskReports::RequestFailed(BlockOp op, int error) {
  if (events_ != nullptr) events_->RequestFailed(op, error);
}

void DiskReports::RequestKept(BlockOp op, int error) {
  if (events_ != nullptr) events_->RequestKept(op, error);
  const uint64_t stop = pauser_.Stop();
  if (logged_.exchange(stop, std::memory_order_relaxed) == stop || stop == 0) return;
  const absl::Status failed =
      ErrnoError(error, absl::StrFormat("%s: a %s failed", disk_, BlockOpName(op)),
                 "the machine pauses and keeps the request; mend the storage, then 'ringside ctl "
                 "PATH resume' tries it again");
  log_.Log(Severity::kWarning, "%s", Message(failed));
}

void DiskReports::NeedsReset(std::string_view why) {
  if (events_ != nullptr) events_->NeedsReset(why);
}

}  // namespace ringside
