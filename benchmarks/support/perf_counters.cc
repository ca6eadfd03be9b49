#include "benchmarks/support/perf_counters.h"

#include <cerrno>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside::benchmarks {
namespace {

enum class Space { kUser, kKernel };

// Of the calling thread, on any processor. It counts from the moment its group is enabled.
UniqueFd OpenEvent(uint64_t event, Space space, int leader) {
  perf_event_attr attributes = {};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = event;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  attributes.disabled = leader < 0 ? 1 : 0;
  attributes.exclude_user = space == Space::kKernel ? 1 : 0;
  attributes.exclude_kernel = space == Space::kUser ? 1 : 0;
  attributes.exclude_hv = 1;
  const long fd = syscall(SYS_perf_event_open, &attributes, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
  return UniqueFd(static_cast<int>(fd));
}

std::optional<uint64_t> Read(const UniqueFd& event) {
  struct {
    uint64_t value, enabled, running;
  } count = {};
  if (!event.valid() || read(event.get(), &count, sizeof count) != sizeof count) return {};
  // Of a counter that had to share its place there would be an estimate only.
  if (count.running == 0 || count.running != count.enabled) return {};
  return count.value;
}

}  // namespace

const std::string& PerfCounters::WhyNot() {
  static const std::string why_not = [] {
    if (OpenEvent(PERF_COUNT_HW_INSTRUCTIONS, Space::kUser, -1).valid()) return std::string();
    const char* remedy = errno == EACCES || errno == EPERM
                             ? "set 'sysctl kernel.perf_event_paranoid' to 2 or less"
                             : "";
    return std::string(Message(ErrnoError(errno, "perf_event_open", remedy)));
  }();
  return why_not;
}

void PerfCounters::Start() {
  events_[0] = OpenEvent(PERF_COUNT_HW_INSTRUCTIONS, Space::kUser, -1);
  if (!events_[0].valid()) return;
  const int leader = events_[0].get();
  events_[1] = OpenEvent(PERF_COUNT_HW_CPU_CYCLES, Space::kUser, leader);
  events_[2] = OpenEvent(PERF_COUNT_HW_INSTRUCTIONS, Space::kKernel, leader);
  events_[3] = OpenEvent(PERF_COUNT_HW_CPU_CYCLES, Space::kKernel, leader);
  ioctl(leader, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
}

PerfCounters::Figures PerfCounters::Stop() {
  if (!events_[0].valid()) return {};
  ioctl(events_[0].get(), PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
  const Figures figures = {Read(events_[0]), Read(events_[1]), Read(events_[2]), Read(events_[3])};
  events_ = {};
  return figures;
}

}  // namespace ringside::benchmarks
