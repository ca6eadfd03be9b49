// A DeviceMemory without KVM: notes what is where.
#pragma once

#include <map>

#include "devices/device_memory.h"

namespace ringside::testing {

// Threads: as its user's; nothing is guarded.
class FakeDeviceMemory final : public DeviceMemory {
 public:
  struct Piece {
    std::byte* host;
    uint64_t size;
    bool operator==(const Piece&) const = default;
  };
  absl::Status Add(uint64_t address, std::byte* host, uint64_t size) override {
    if (refuses) return absl::InternalError("no more slots");
    const auto above = pieces.lower_bound(address);
    const bool hits_above = above != pieces.end() && above->first - address < size;
    const bool hits_below = above != pieces.begin() &&
                            address - std::prev(above)->first < std::prev(above)->second.size;
    if (hits_above || hits_below) return absl::AlreadyExistsError("overlaps");
    pieces[address] = {host, size};
    return absl::OkStatus();
  }
  void Remove(uint64_t address) override { pieces.erase(address); }

  std::map<uint64_t, Piece> pieces;  // by address
  bool refuses = false;
};

}  // namespace ringside::testing
