#include "vmm/memory_watch.h"

#include <sys/stat.h>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<MemoryWatch>> MemoryWatch::Create(const GuestMemory& memory,
                                                                 std::string path,
                                                                 IoThread& io_thread,
                                                                 std::function<void()> lost) {
  std::unique_ptr<MemoryWatch> watch(
      new MemoryWatch(memory, std::move(path), io_thread, std::move(lost)));
  for (const MemoryRegion& region : memory.regions()) {
    RINGSIDE_ASSIGN_OR_RETURN(MappingGuard guard,
                              MappingGuard::Of({region.host, region.size}, Touched, watch.get()));
    watch->guards_.push_back(std::move(guard));
  }
  return watch;
}

MemoryWatch::~MemoryWatch() {
  guards_.clear();
  // Twice: what the thread does until the first has run may have touched the memory, and posted.
  for (int i = 0; i < 2; ++i) io_thread_.RunAndWait([] {});
}

void MemoryWatch::Touched(void* watch) {
  auto& self = *static_cast<MemoryWatch*>(watch);
  self.is_lost_.store(true, std::memory_order_relaxed);
  self.io_thread_.Post(self.tell_);
}

void MemoryWatch::Tell() {
  if (!std::exchange(is_told_, true)) lost_();
}

absl::Status MemoryWatch::Loss() const {
  const MemoryRegion& last = memory_.regions().back();
  const uint64_t expected = last.fd_offset + last.size;
  struct stat status;
  if (fstat(last.fd, &status) == 0 && static_cast<uint64_t>(status.st_size) < expected) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the saved memory '%s' has become shorter, %d bytes, under the machine that goes on from "
        "it: leave it as it is until the machine has ended",
        path_, status.st_size));
  }
  if (!is_lost_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("the saved memory '%s' cannot be read any more: look at its storage", path_));
}

}  // namespace ringside
