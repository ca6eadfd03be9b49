#include "tests/support/nvme/nvme_model_bus.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "vfio/mmio.h"

namespace ringside::testing {
namespace {

using nvme::kDataTransferError;
using nvme::kPrpOffsetInvalid;
using nvme::kSuccess;
using nvme::Status;

constexpr uint64_t kHostPage = 4096;

bool IsWholePages(const DmaMapping& mapping) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(mapping.host) | mapping.size | mapping.iova;
  return mapping.size > 0 && bits % kHostPage == 0;
}

}  // namespace

absl::Status NvmeModelMemory::Map(const DmaMapping& mapping) {
  if (!IsWholePages(mapping)) {
    return BadInput("%d bytes at %#x are not whole pages", mapping.size, mapping.iova);
  }
  const uint64_t last = mapping.iova + (mapping.size - 1);
  const bool allowed =
      std::any_of(config_.iova_ranges.begin(), config_.iova_ranges.end(), [&](const auto& range) {
        return range.first <= mapping.iova && mapping.iova <= last && last <= range.last;
      });
  if (!allowed) {
    return BadInput("%#x to %#x is in no range of I/O addresses", mapping.iova, last);
  }
  if (mappings_.size() >= config_.max_mappings) {
    return absl::ResourceExhaustedError("no more DMA mappings");
  }
  const auto next =
      std::upper_bound(mappings_.begin(), mappings_.end(), mapping.iova,
                       [](uint64_t iova, const DmaMapping& other) { return iova < other.iova; });
  const bool overlaps =
      (next != mappings_.end() && next->iova <= last) ||
      (next != mappings_.begin() && std::prev(next)->iova + std::prev(next)->size > mapping.iova);
  if (overlaps) {
    return absl::AlreadyExistsError(
        absl::StrFormat("something is mapped between %#x and %#x", mapping.iova, last));
  }
  mappings_.insert(next, mapping);
  return absl::OkStatus();
}

absl::Status NvmeModelMemory::Unmap(uint64_t iova, uint64_t size) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const DmaMapping& other) {
    return other.iova == iova && other.size == size;
  });
  if (found == mappings_.end()) {
    return BadInput("%d bytes at %#x were not mapped like that", size, iova);
  }
  mappings_.erase(found);
  return absl::OkStatus();
}

std::byte* NvmeModelMemory::At(uint64_t iova, uint64_t size, const char* what) {
  const auto contains = [&](const DmaMapping& mapping) {
    const uint64_t offset = iova - mapping.iova;  // wraps to huge if below
    return offset < mapping.size && size <= mapping.size - offset;
  };
  if (bus_master_ || config_.ignores_bus_master) {
    if (last_ < mappings_.size() && contains(mappings_[last_])) {
      return mappings_[last_].host + (iova - mappings_[last_].iova);
    }
    const auto next =
        std::upper_bound(mappings_.begin(), mappings_.end(), iova,
                         [](uint64_t at, const DmaMapping& other) { return at < other.iova; });
    if (next != mappings_.begin() && contains(*std::prev(next))) {
      last_ = static_cast<size_t>(std::prev(next) - mappings_.begin());
      return mappings_[last_].host + (iova - mappings_[last_].iova);
    }
  }
  if (stuck_) {
    ++record_.counters.blocked;
  } else {
    record_.Violate("DMA %s: %s, %d bytes at %#x",
                    bus_master_ ? "outside of the mappings" : "without bus mastering", what, size,
                    iova);
  }
  return nullptr;
}

Status NvmeModelMemory::Gather(const nvme::Command& command, uint64_t size,
                               std::span<const NvmeModelPiece>& pieces) {
  pieces_.clear();
  if (command.prp1 % 4 != 0) return BadOffset("PRP1", command.prp1);
  const uint64_t first = std::min(size, page_size_ - command.prp1 % page_size_);
  Status status = AddPiece(command.prp1, first);
  const uint64_t remaining = size - first;
  if (status == kSuccess && remaining > 0) {
    if (remaining > page_size_) {
      status = FollowList(command.prp2, remaining);
    } else if (command.prp2 % page_size_ != 0) {
      status = BadOffset("PRP2", command.prp2);
    } else {
      status = AddPiece(command.prp2, remaining);
    }
  }
  pieces = pieces_;
  return status;
}

Status NvmeModelMemory::FollowList(uint64_t list, uint64_t remaining) {
  if (list % 8 != 0) return BadOffset("the address of a PRP list", list);
  while (remaining > 0) {
    const std::byte* at = At(list, 8, "an entry of a PRP list");
    if (at == nullptr) return kDataTransferError;
    const uint64_t entry = LoadAcquire(reinterpret_cast<const uint64_t*>(at));
    if (entry % page_size_ != 0) return BadOffset("an entry of a PRP list", entry);
    list += 8;
    // The last entry of a page leads to the next one, unless it is the last of all.
    if (list % page_size_ == 0 && remaining > page_size_) {
      list = entry;
      continue;
    }
    const uint64_t size = std::min(remaining, page_size_);
    if (const Status status = AddPiece(entry, size); status != kSuccess) return status;
    remaining -= size;
  }
  return kSuccess;
}

Status NvmeModelMemory::AddPiece(uint64_t iova, uint64_t size) {
  std::byte* host = At(iova, size, "data");
  if (host == nullptr) return kDataTransferError;
  pieces_.push_back({host, size});
  return kSuccess;
}

Status NvmeModelMemory::BadOffset(const char* what, uint64_t prp) {
  record_.Violate("%s has an offset that it must not have: %#x", what, prp);
  return kPrpOffsetInvalid;
}

Status NvmeModelMemory::Write(const nvme::Command& command, std::span<const std::byte> data) {
  std::span<const NvmeModelPiece> pieces;
  const Status status = Gather(command, data.size(), pieces);
  if (status != kSuccess) return status;
  for (const NvmeModelPiece& piece : pieces) {
    std::memcpy(piece.host, data.data(), piece.size);
    data = data.subspan(piece.size);
  }
  return kSuccess;
}

Status NvmeModelMemory::Read(const nvme::Command& command, std::span<std::byte> data) {
  std::span<const NvmeModelPiece> pieces;
  const Status status = Gather(command, data.size(), pieces);
  if (status != kSuccess) return status;
  for (const NvmeModelPiece& piece : pieces) {
    std::memcpy(data.data(), piece.host, piece.size);
    data = data.subspan(piece.size);
  }
  return kSuccess;
}

NvmeModelVectors::NvmeModelVectors(const NvmeModelConfig& config, NvmeModelRecord& record)
    : config_(config), record_(record), masks_(config.vectors), unmask_calls_(config.vectors) {}

absl::Status NvmeModelVectors::Set(std::span<const int> eventfds) {
  if (eventfds.size() > masks_.size()) {
    return BadInput("%d vectors are more than the %d there are", eventfds.size(), masks_.size());
  }
  std::vector<Vector> vectors(eventfds.size());
  for (size_t i = 0; i < eventfds.size(); ++i) {
    if (eventfds[i] < 0) continue;
    // The kernel, too, keeps an eventfd that the driver closes.
    vectors[i].eventfd = UniqueFd(fcntl(eventfds[i], F_DUPFD_CLOEXEC, 0));
    if (!vectors[i].eventfd.valid()) return ErrnoError(errno, "eventfd of a vector");
  }
  vectors_ = std::move(vectors);
  raised_ = 0;
  for (uint32_t& mask : masks_) StoreRelease(&mask, uint32_t{0});
  return absl::OkStatus();
}

void NvmeModelVectors::SetMask(uint32_t vector, uint32_t mask) {
  if (vector < masks_.size()) StoreRelease(&masks_[vector], mask);
}

bool NvmeModelVectors::Unmask(uint32_t vector) {
  if (vector < masks_.size() && ++unmask_calls_[vector] % config_.unmask_calls != 0) return false;
  SetMask(vector, 0);
  return true;
}

void NvmeModelVectors::Raise(uint16_t vector) {
  if (vector >= vectors_.size() || vectors_[vector].raised) return;
  vectors_[vector].raised = true;
  ++raised_;
}

void NvmeModelVectors::DeliverRaised() {
  for (size_t i = 0; i < vectors_.size(); ++i) {
    Vector& vector = vectors_[i];
    if (!vector.raised || (LoadAcquire(&masks_[i]) & 1) != 0) continue;
    vector.raised = false;
    --raised_;
    if (!vector.eventfd.valid()) continue;
    const uint64_t one = 1;
    if (write(vector.eventfd.get(), &one, sizeof one) == sizeof one) ++record_.counters.interrupts;
  }
}

}  // namespace ringside::testing
