// What an NvmeModel reaches of its host: memory by DMA, as far as it is mapped and the function may
// master the bus, and eventfds by MSI-X.
//
// Threads: under the model's lock; the vectors' control words are memory.
// Errors: what must not be reached is a violation, and null or an NVMe status.
// Source: NVM Express Base Specification 2.0, section 4.1.1 (PRP); PCI Local Bus 3.0,
// section 6.8.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "tests/support/nvme/nvme_model_record.h"

namespace ringside::testing {

// A piece of a transfer.
struct NvmeModelPiece {
  std::byte* host;
  uint64_t size;
};

class NvmeModelMemory {
 public:
  NvmeModelMemory(const NvmeModelConfig& config, NvmeModelRecord& record)
      : config_(config), record_(record) {}

  absl::Status Map(const DmaMapping& mapping);
  absl::Status Unmap(uint64_t iova, uint64_t size);
  void UnmapAll() { mappings_.clear(); }
  size_t count() const { return mappings_.size(); }

  void SetBusMaster(bool bus_master) { bus_master_ = bus_master; }
  bool bus_master() const { return bus_master_; }
  // The driver has disabled a controller that does not stop: it may cut it off as it likes.
  void SetStuck(bool stuck) { stuck_ = stuck; }
  bool is_stuck() const { return stuck_; }
  // CC.MPS
  void SetPageSize(uint64_t page_size) { page_size_ = page_size; }
  uint64_t page_size() const { return page_size_; }

  // `what` is for the violation.
  std::byte* At(uint64_t iova, uint64_t size, const char* what);
  // The memory that a command's PRPs name. Stays until the next call.
  nvme::Status Gather(const nvme::Command& command, uint64_t size,
                      std::span<const NvmeModelPiece>& pieces);
  // The transfer of a data structure.
  nvme::Status Write(const nvme::Command& command, std::span<const std::byte> data);
  nvme::Status Read(const nvme::Command& command, std::span<std::byte> data);

 private:
  nvme::Status AddPiece(uint64_t iova, uint64_t size);
  nvme::Status FollowList(uint64_t list, uint64_t remaining);
  nvme::Status BadOffset(const char* what, uint64_t prp);

  const NvmeModelConfig& config_;
  NvmeModelRecord& record_;
  std::vector<DmaMapping> mappings_;  // ascending
  size_t last_ = 0;                   // where the mapping that was used last was
  bool bus_master_ = false;
  bool stuck_ = false;
  uint64_t page_size_ = nvme::kPageSize;
  std::vector<NvmeModelPiece> pieces_;
};

class NvmeModelVectors {
 public:
  NvmeModelVectors(const NvmeModelConfig& config, NvmeModelRecord& record);

  absl::Status Set(std::span<const int> eventfds);
  // No eventfds any more.
  void Clear() { vectors_.clear(); }
  void Mask(uint32_t vector) { SetMask(vector, 1); }
  // Whether it is in force: each `unmask_calls`-th time.
  bool Unmask(uint32_t vector);

  // At the next Deliver, if the vector is there and not masked; else when it is unmasked.
  void Raise(uint16_t vector);
  // What was raised since the last time, each vector once.
  void Deliver() {
    if (raised_ > 0) DeliverRaised();
  }

 private:
  struct Vector {
    UniqueFd eventfd;
    bool raised = false;
  };
  void DeliverRaised();

  const NvmeModelConfig& config_;
  NvmeModelRecord& record_;
  std::vector<Vector> vectors_;
  void SetMask(uint32_t vector, uint32_t mask);

  std::vector<uint32_t> masks_;
  std::vector<uint32_t> unmask_calls_;  // so far, the vector's owner alone
  size_t raised_ = 0;
};

}  // namespace ringside::testing
