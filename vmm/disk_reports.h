// The troubles of a machine's disk: they become events, and a request that is kept
// (DiskConfig::rerror, werror) pauses the machine, with a line in the log that says how to go on.
//
// Threads: as DeviceReports. Ownership: what it is given outlives it, and it the disk's device.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/log.h"
#include "devices/device_reports.h"
#include "vmm/pauser.h"

namespace ringside {

class DiskReports final : public DeviceReports {
 public:
  // `events` may be null: nobody listens.
  DiskReports(std::string disk, DeviceReports* events, Pauser& pauser, Logger log)
      : disk_(std::move(disk)), events_(events), pauser_(pauser), log_(log) {}

  void RequestFailed(BlockOp op, int error) override;
  void RequestKept(BlockOp op, int error) override;
  void NeedsReset(std::string_view why) override;

 private:
  const std::string disk_;
  DeviceReports* const events_;
  Pauser& pauser_;
  const Logger log_;
  // Of Pauser::Stop. Each is logged once, whichever of the disk's threads comes first; relaxed, as
  // no other data hangs on it.
  std::atomic<uint64_t> logged_{0};
};

}  // namespace ringside
