// A PciPlatform without KVM: notes what it is asked for.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "devices/interrupt.h"

namespace ringside::testing {

// Threads: as its user's; nothing is guarded.
class FakePciPlatform final : public PciPlatform {
 public:
  class Vector final : public MsiVector {
   public:
    explicit Vector(EventFd event) : MsiVector(std::move(event)) {}
    void Unmask(uint64_t new_address, uint32_t new_data) override {
      unmasked = true;
      ++unmasks;
      address = new_address;
      data = new_data;
    }
    void Mask() override {
      unmasked = false;
      ++masks;
    }

    bool unmasked = false;
    int unmasks = 0;
    int masks = 0;
    uint64_t address = 0;
    uint32_t data = 0;
  };

  absl::StatusOr<std::unique_ptr<MsiVector>> NewMsiVector() override {
    if (vectors.size() == vectors_there_are) return absl::ResourceExhaustedError("no more vectors");
    RINGSIDE_ASSIGN_OR_RETURN(EventFd event, EventFd::Create());
    auto vector = std::make_unique<Vector>(std::move(event));
    vectors.push_back(vector.get());
    return vector;
  }
  absl::Status AddDoorbell(uint64_t address, const EventFd& kick) override {
    if (!doorbells.emplace(address, &kick).second) return absl::AlreadyExistsError("taken");
    return absl::OkStatus();
  }
  void RemoveDoorbell(uint64_t address, const EventFd& kick) override {
    const auto found = doorbells.find(address);
    if (found != doorbells.end() && found->second == &kick) doorbells.erase(found);
  }

  size_t vectors_there_are = 4096;
  std::vector<Vector*> vectors;  // in the order they were asked for; their owners' to delete
  std::map<uint64_t, const EventFd*> doorbells;
};

}  // namespace ringside::testing
