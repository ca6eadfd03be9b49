// Accesses to memory that a device reads and writes too: its registers, and what it fills by DMA.
// Each is one load or store of that width, at its place in the program's order:
//
// - Acquire: nothing behind the load is read before it. Pairs with the device's writing the rest of
//   an entry before its flag (PCI Express Base, 2.4.1: posted writes stay in order).
// - Release: what was stored before is seen before it. Pairs with the device's reading memory after
//   it has seen a doorbell. On x86 an ordinary store does, also from write-back memory to a
//   register, which is uncached.
#pragma once

#include <cstdint>

namespace ringside {

static_assert(__x86_64__, "elsewhere a register needs stronger barriers than an atomic");

template <typename T>
T LoadAcquire(const volatile T* address) {
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

template <typename T>
void StoreRelease(volatile T* address, T value) {
  __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

}  // namespace ringside
