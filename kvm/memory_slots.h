// DeviceMemory over KVM: a memory slot for each piece.
//
// Threads: any; a mutex guards the numbers. Ownership: the KvmVm outlives it.
// Errors: those of KVM, after which the guest's accesses are exits.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/log.h"
#include "base/sync.h"
#include "devices/device_memory.h"
#include "kvm/kvm.h"

namespace ringside {

class MemorySlots final : public DeviceMemory {
 public:
  // `first`: the number of the first slot that is not the guest's memory.
  MemorySlots(KvmVm& vm, uint32_t first, Logger log) : vm_(vm), first_(first), log_(log) {}

  absl::Status Add(uint64_t address, std::byte* host, uint64_t size) override;
  void Remove(uint64_t address) override;

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};

  KvmVm& vm_;
  const uint32_t first_;
  const Logger log_;
  Mutex mutex_;
  std::vector<uint64_t> addresses_ ABSL_GUARDED_BY(mutex_);  // by slot, from first_; or kFree
};

}  // namespace ringside
