// Watches the memory of a machine that goes on from a file: where the file no longer gives what the
// guest has there, the machine is to end, and nothing else of the process (base/mapping_guard.h).
// Where a vCPU is the first to touch such a page KVM_RUN fails instead, and this says why.
//
// Threads: made and ended on any but the I/O thread, on which `lost` is called, once; Loss for any.
// Ownership: the memory and the I/O thread outlive it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapping_guard.h"
#include "devices/guest_memory.h"
#include "poll/io_thread.h"

namespace ringside {

class MemoryWatch {
 public:
  // `path`: of the file, to be named.
  static absl::StatusOr<std::unique_ptr<MemoryWatch>> Create(const GuestMemory& memory,
                                                             std::string path, IoThread& io_thread,
                                                             std::function<void()> lost);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // FailedPrecondition once memory is lost, or will be where it is touched: why, and what to do.
  absl::Status Loss() const;

 private:
  MemoryWatch(const GuestMemory& memory, std::string path, IoThread& io_thread,
              std::function<void()> lost)
      : memory_(memory), path_(std::move(path)), io_thread_(io_thread), lost_(std::move(lost)) {}
  // In the handler of a signal.
  static void Touched(void* watch);
  void Tell();

  const GuestMemory& memory_;
  const std::string path_;
  IoThread& io_thread_;
  const std::function<void()> lost_;
  std::atomic<bool> is_lost_{false};
  bool is_told_ = false;  // on the I/O thread
  std::vector<MappingGuard> guards_;
  TaskTo<MemoryWatch, &MemoryWatch::Tell> tell_{*this};
};

}  // namespace ringside
