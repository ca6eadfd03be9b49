// The machine that a command line and its `--config` file describe together.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "command/run_options.h"
#include "vmm/options.h"

namespace ringside {

// All ranges are checked. Errors are in one line, as the user wrote it: "--disk queues=0 ...", or
// "--config 'vm.json': disks[0].queues=0 ...".
absl::StatusOr<MachineOptions> MakeMachineOptions(const RunOptions& options);
// How often --metrics is written.
absl::StatusOr<absl::Duration> MetricsInterval(const RunOptions& options);

}  // namespace ringside
