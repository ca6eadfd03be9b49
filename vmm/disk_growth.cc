#include "vmm/disk_growth.h"

#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace ringside {

std::unique_ptr<DiskGrowth> DiskGrowth::Create(const Parts& parts) {
  std::unique_ptr<DiskGrowth> growth(new DiskGrowth(parts));
  if (const absl::Status status = growth->Begin(); !status.ok()) {
    parts.log.Log(Severity::kInfo,
                  "%s: when a block device has grown, 'ringside ctl PATH resize-disk' is to say so",
                  Message(status));
    return nullptr;
  }
  return growth;
}

absl::Status DiskGrowth::Begin() {
  RINGSIDE_ASSIGN_OR_RETURN(alarm_, Alarm::Create(parts_.io_thread, [this] { Look(); }));
  RINGSIDE_ASSIGN_OR_RETURN(
      watch_,
      HostDeviceWatch::Create(parts_.io_thread, [this](uint64_t device) { Changed(device); }));
  return absl::OkStatus();
}

void DiskGrowth::Changed(uint64_t device) {
  for (std::string& id : parts_.disks.OnHostDevice(device)) to_look_.insert(std::move(id));
  Look();
}

// Another call may have the disk, and is not waited for on this thread.
void DiskGrowth::Look() {
  for (const std::string& id : std::exchange(to_look_, {})) {
    const absl::Status status =
        parts_.disks.Resize(id, std::nullopt, parts_.queues, absl::ZeroDuration()).status();
    if (absl::IsDeadlineExceeded(status)) {
      to_look_.insert(id);
    } else if (!status.ok()) {
      log_.Log(Severity::kWarning, "%s", Message(status));
    }
  }
  if (!to_look_.empty()) alarm_->Set(MonotonicNs() + absl::ToInt64Nanoseconds(kLookAgain));
}

}  // namespace ringside
