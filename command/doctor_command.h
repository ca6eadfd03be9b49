// `ringside doctor`: what this host can and cannot do for Ringside, in plain words, with what to do
// about each lack; and with --disk the same for a disk.
#pragma once

#include <string>

#include "ringside/log.h"

namespace ringside {

struct DoctorOptions {
  std::string disk;            // a path or a URL; empty: the host as a whole
  std::string io_thread_cpus;  // "0-2+5", of the disk's thread
  std::string memory_nodes;    // "0,2-3", of its guest
  bool json = false;
};

// Prints to stdout. Exit code 0 if Linux guests will run, else 2. Of a disk: 0 if a machine can
// have it and nothing about it is unsafe, else 2; 2 with an error on `log` where it cannot be
// looked at.
int DoctorCommand(const DoctorOptions& options, LogSink& log);

}  // namespace ringside
