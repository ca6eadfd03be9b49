#include "ringside/io_pool.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "vmm/io_pool_parts.h"
#include "vmm/io_thread_options.h"

namespace ringside {

UringEntries EntriesFor(const std::vector<DiskConfig>& disks) {
  const bool any_commands = std::ranges::any_of(disks, [](const DiskConfig& disk) {
    return disk.backend.As<NvmePassthroughConfig>() != nullptr;
  });
  return any_commands ? UringEntries::kWithCommands : UringEntries::kUsual;
}

absl::StatusOr<std::shared_ptr<IoPool>> IoPool::Create(const IoPoolConfig& config) {
  for (const IoThreadConfig& thread : config.io_threads) {
    RINGSIDE_RETURN_IF_ERROR(CheckIoThread(thread));
  }
  auto parts = std::make_unique<Parts>();
  RINGSIDE_ASSIGN_OR_RETURN(parts->io_threads,
                            IoThreads::Create(config.io_threads, IoThread::Serves::kManyMachines));
  RINGSIDE_RETURN_IF_ERROR(parts->io_threads->Start(
      config.nvme_passthrough ? UringEntries::kWithCommands : UringEntries::kUsual));
  RINGSIDE_ASSIGN_OR_RETURN(parts->housekeeping, IoThread::Start("io", IoThread::Waiter::kEpoll, {},
                                                                 IoThread::Serves::kManyMachines));
  return std::make_shared<IoPool>(std::move(parts));
}

IoPool::IoPool(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}

IoPool::~IoPool() = default;

absl::Status IoPool::SetPoll(const std::string& io_thread, const PollConfig& poll,
                             absl::Duration patience) {
  RINGSIDE_RETURN_IF_ERROR(CheckPoll(io_thread, poll));
  return parts_->io_threads->SetPoll(io_thread, poll, patience);
}

std::vector<IoThreadStatistics> IoPool::Statistics() const {
  return parts_->io_threads->Statistics();
}

absl::StatusOr<std::vector<IoThreadExplanation>> IoPool::Explain(absl::Duration patience) const {
  return parts_->io_threads->Explain(patience);
}

std::shared_ptr<IoThread> IoPool::Parts::Housekeeping(const std::shared_ptr<IoPool>& pool) {
  const auto drain = [pool](IoThread* io_thread) {
    // Twice: what the thread does until the first has run may have posted.
    for (int i = 0; i < 2; ++i) io_thread->RunAndWait([] {});
  };
  return {pool->parts().housekeeping.get(), drain};
}

std::shared_ptr<IoThreads> IoPool::Parts::ForDevices(const std::shared_ptr<IoPool>& pool) {
  return {pool, pool->parts().io_threads.get()};
}

}  // namespace ringside
