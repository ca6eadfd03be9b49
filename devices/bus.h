// An address space of devices: one Bus for I/O ports, one for memory-mapped registers. A vCPU that
// left the guest for an access nobody in the kernel took asks its bus.
//
// Threads: everything from any thread, also at once: ranges come and go while vCPUs run (a BAR
// moves). A mutex guards the map and no more: handlers are called without it, so a handler may add
// and remove ranges, as the PCI host does, and an access that has begun may still reach the handler
// of a range that has just been removed.
// Ownership: handlers belong to their devices and outlive the bus's last access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync.h"

namespace ringside {

// A device's registers. Called from vCPU threads, so a device guards its own state. `offset` is
// within the range it was added with; data is 1 to 8 bytes, little-endian, guest-controlled in
// size, alignment and content, and the whole access lies within the range.
class IoHandler {
 public:
  virtual ~IoHandler() = default;
  virtual void Read(uint64_t offset, std::span<std::byte> data) = 0;
  virtual void Write(uint64_t offset, std::span<const std::byte> data) = 0;
};

class Bus {
 public:
  // AlreadyExists if the range is empty, wraps or overlaps another.
  absl::Status Add(uint64_t base, uint64_t size, IoHandler& handler);
  // The range that was added with this base. Nothing happens if there is none.
  void Remove(uint64_t base);

  // What nobody claims reads all-ones, as an undriven bus does, and swallows writes.
  void Read(uint64_t address, std::span<std::byte> data) const;
  void Write(uint64_t address, std::span<const std::byte> data) const;

 private:
  struct Range {
    uint64_t base;
    uint64_t size;
    IoHandler* handler;
  };
  // A copy: the range itself may go as soon as the lock is released.
  std::optional<Range> Find(uint64_t address, uint64_t length) const;

  mutable Mutex mutex_;
  std::map<uint64_t, Range> ranges_ ABSL_GUARDED_BY(mutex_);  // by base
};

// Those of a machine.
struct Buses {
  Bus memory;
  Bus ports;
};

}  // namespace ringside
