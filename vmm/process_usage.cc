#include "vmm/process_usage.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

namespace ringside {

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  timespec cpu = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  usage.cpu_seconds = static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9;
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    if (key == "Threads:") {
      status >> usage.threads;
    } else if (uint64_t kib = 0; key == "VmRSS:" && status >> kib) {
      usage.resident_bytes = kib * 1024;
    }
  }
  std::error_code failed;
  for (std::filesystem::directory_iterator fd("/proc/self/fd", failed), end; !failed && fd != end;
       fd.increment(failed)) {
    ++usage.open_descriptors;
  }
  // One is the look's own.
  if (usage.open_descriptors > 0) --usage.open_descriptors;
  return usage;
}

}  // namespace ringside
