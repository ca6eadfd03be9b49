// What a machine keeps of its host beside its devices' states: by which KVM it was saved, how far
// limits are used up, and which content disks have, as far as that can be told.
//
// Threads: none. Ownership: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "block/block_device.h"
#include "block/throttle.h"
#include "kvm/kvm.h"

namespace ringside {

struct HostState {
  // Of a disk, a network or, apart from those, a throttle group, by its id.
  struct Debts {
    std::string id;
    uint8_t is_group = 0;
    ThrottleDebts ticks = {};
  };
  struct Content {
    std::string disk;
    ContentId id;
  };
  KvmIdentity kvm;
  std::vector<Debts> debts;  // of those that have any
  std::vector<Content> contents;

  // None for those that are not there.
  ThrottleDebts DebtsOf(const std::string& id, bool is_group) const {
    for (const Debts& each : debts) {
      if (each.id == id && (each.is_group != 0) == is_group) return each.ticks;
    }
    return {};
  }
  void AddDebts(std::string id, bool is_group, const ThrottleDebts& ticks) {
    if (ticks != ThrottleDebts{}) debts.push_back({std::move(id), is_group, ticks});
  }
};

}  // namespace ringside
