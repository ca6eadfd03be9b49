// Notes which pages of the guest's memory the host has written: its devices, and the kernel for
// them. What the guest itself writes KVM notes.
//
// Threads: any may note; who reads or clears it knows that nobody does meanwhile.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_region.h"
#include "base/pages.h"

namespace ringside {

class WriteLog {
 public:
  // The regions outlive it.
  explicit WriteLog(std::span<const MemoryRegion> regions)
      : regions_(regions),
        words_((regions.back().guest_address + regions.back().size) / kPageSize / kBits + 1) {}

  // What is in no region is nobody's.
  void Note(const std::byte* host, uint64_t length) {
    const auto region = std::ranges::find_if(regions_, [host](const MemoryRegion& each) {
      return static_cast<uint64_t>(host - each.host) < each.size;  // huge if below
    });
    if (region == regions_.end() || length == 0) return;
    const uint64_t address = region->guest_address + static_cast<uint64_t>(host - region->host);
    const uint64_t first = address / kPageSize, last = (address + length - 1) / kPageSize;
    for (uint64_t word = first / kBits; word <= last / kBits; ++word) {
      uint64_t bits = ~uint64_t{0};
      if (word == first / kBits) bits &= ~uint64_t{0} << first % kBits;
      if (word == last / kBits) bits &= ~uint64_t{0} >> (kBits - 1 - last % kBits);
      Set(words_[word], bits);
    }
  }
  void Clear() { std::ranges::fill(words_, uint64_t{0}); }
  // A bit for each page of the guest's addresses from 0 on, as vhost's kernel thread sets them, too
  // (Linux, include/uapi/linux/vhost.h: VHOST_SET_LOG_BASE).
  std::span<uint64_t> words() { return words_; }

 private:
  static constexpr uint64_t kBits = 64;

  static void Set(uint64_t& word, uint64_t bits) {
    // Relaxed: whoever reads it has waited for those who note.
    const std::atomic_ref shared(word);
    if ((shared.load(std::memory_order_relaxed) & bits) != bits) {
      shared.fetch_or(bits, std::memory_order_relaxed);
    }
  }

  const std::span<const MemoryRegion> regions_;
  std::vector<uint64_t> words_;
};

}  // namespace ringside
