#include "vfio/dma_limits.h"

#include <cerrno>
#include <fstream>
#include <linux/capability.h>
#include <sstream>
#include <sys/resource.h>

#include "absl/strings/numbers.h"
#include "base/size.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr char kEntryLimit[] = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit";

bool TooMuchLocked(const DmaMapping& mapping, const LockedMemory& memory) {
  return !memory.exempt && memory.locked + mapping.size > memory.limit;
}

std::string MemlockRemedy(const DmaMapping& mapping, const LockedMemory& memory) {
  const uint64_t needed_kib = (memory.locked + mapping.size) / 1024;
  return absl::StrFormat(
      "the limit on locked memory is %s, of which %s are in use, and guest memory that a device "
      "reaches is locked; raise it to %s or more: 'ulimit -l %d' as root, or LimitMEMLOCK=%dK of "
      "a systemd unit",
      FormatSize(memory.limit), FormatSize(memory.locked), FormatSize(needed_kib * 1024),
      needed_kib, needed_kib);
}

}  // namespace

LockedMemory ParseLockedMemory(const std::string& status, uint64_t limit) {
  LockedMemory memory{.limit = limit};
  std::istringstream words(status);
  std::string word;
  uint64_t value = 0;
  while (words >> word) {
    if (word == "VmLck:" && words >> word && absl::SimpleAtoi(word, &value)) {
      memory.locked = value * 1024;
    } else if (word == "CapEff:" && words >> word && absl::SimpleHexAtoi(word, &value)) {
      memory.exempt = ((value >> CAP_IPC_LOCK) & 1) != 0;
    }
  }
  return memory;
}

LockedMemory ReadLockedMemory() {
  rlimit limit = {.rlim_cur = RLIM_INFINITY};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  std::ostringstream status;
  status << std::ifstream("/proc/self/status").rdbuf();
  return ParseLockedMemory(status.str(), limit.rlim_cur);
}

std::string ReadDmaEntryLimit() {
  std::ifstream file(kEntryLimit);
  std::string value;
  file >> value;
  return value;
}

absl::Status MapDmaError(int error, const std::string& device, const DmaMapping& mapping,
                         const LockedMemory& memory, std::string_view entry_limit) {
  const std::string what = absl::StrFormat("cannot let PCI device '%s' reach %s of memory", device,
                                           FormatSize(mapping.size));
  switch (error) {
    case ENOMEM:
      if (TooMuchLocked(mapping, memory)) {
        return absl::ResourceExhaustedError(what + ": " + MemlockRemedy(mapping, memory));
      }
      return ErrnoError(error, what, "the host lacks free memory: all of it is taken at once");
    case ENOSPC:
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s: all DMA mappings that the kernel allows are in use%s; raise the parameter "
          "dma_entry_limit of the module vfio_iommu_type1 (%s)",
          what, entry_limit.empty() ? "" : absl::StrFormat(" (%s)", entry_limit), kEntryLimit));
    default:
      // The caller's own doing: it chose the addresses.
      return absl::InternalError(
          ErrnoError(error, absl::StrFormat("%s at I/O address %#x", what, mapping.iova))
              .message());
  }
}

}  // namespace ringside
