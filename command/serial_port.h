// What COM1 leads to, opened.
//
// A file is appended to: a mistyped path then destroys nothing, and what a guest said before it
// crashed outlives its restart. Its limit counts all that is in it, whoever wrote it and whenever.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "vmm/console.h"
#include "vmm/options.h"

namespace ringside {

struct SerialPort {
  UniqueFd file;  // has to stay open as long as the machine is there
  ConsoleConfig config;
  bool on_stdio = false;
  bool truncates = false;

  // InvalidArgument if the file that is there by this path, which is `what`, is the console's, too.
  absl::Status CheckIsNot(const char* what, const std::string& path) const;
  // The same of all files that the machine runs from: its kernel, its snapshot, its disks.
  absl::Status CheckIsNoneOf(const MachineConfig& config, const std::string& snapshot) const;
  // Once all else is in order: empties the file if that is asked for.
  absl::Status Begin() const;
};

absl::StatusOr<SerialPort> OpenSerial(const SerialOptions& options);

}  // namespace ringside
