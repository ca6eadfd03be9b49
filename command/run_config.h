// The machine that a command line and its `--config` file describe together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "command/run_options.h"
#include "ringside/machine_template.h"
#include "vmm/options.h"

namespace ringside {

// All ranges are checked. Errors are in one line, as the user wrote it: "--disk queues=0 ...", or
// "--config 'vm.json': disks[0].queues=0 ...".
// What is served need not be complete yet. `from`: what it goes on from; null: the options say.
absl::StatusOr<MachineOptions> MakeMachineOptions(
    const RunOptions& options, const std::shared_ptr<const MachineTemplate>& from = nullptr);
// Of a machine that is about to be made: whether it has all that it and `options` need, and what
// they want to be traced.
absl::Status CompleteOptions(const RunOptions& options, MachineOptions& machine);

// What is in the file that `option` names, up to a byte more than a configuration may have.
absl::StatusOr<std::string> ReadConfigText(const char* option, const std::string& path);

struct ForkCounts {
  uint32_t forks = 1;
  uint32_t per_process = 50;
};
// Of a run that has a template.
absl::StatusOr<ForkCounts> CheckForks(const RunOptions& options);

// How often --metrics is written.
absl::StatusOr<absl::Duration> MetricsInterval(const RunOptions& options);

}  // namespace ringside
