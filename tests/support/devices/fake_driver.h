// The guest's side of a split virtqueue, as a well-behaved driver plays it: chains from a free
// list, direct or through an indirect table, notifications by flags or EVENT_IDX. Allocates nothing
// once made.
//
//   FakeDriver driver(memory, {.size = 256, .indirect = true, .event_idx = true});
//   uint16_t head = driver.NewChain().AppendReadable(header, 16).AppendWritable(status, 1).Add();
//   driver.Publish();
//   if (driver.NeedsKick()) kick.Signal();
//   while (std::optional<UsedElement> used = driver.TakeUsed()) ...
//
// Threads: one at a time; the other side is the device.
// Units: guest physical addresses, bytes.
// Errors: misuse by the test aborts.
// Source: VIRTIO 1.2, section 2.7.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "devices/virtio_device.h"
#include "devices/virtqueue.h"
#include "tests/support/devices/raw_ring.h"

namespace ringside::testing {

class FakeDriver {
 public:
  struct Options {
    uint16_t size = 256;
    uint64_t address = 0x10000;  // of the rings, then the indirect tables
    bool indirect = false;       // every chain of more than one buffer is in a table
    bool event_idx = false;
    uint16_t table_entries = 32;  // in each indirect table; there is one for each descriptor
  };

  // Buffers of a chain, those to read first. What it holds is given to the device by Add, or taken
  // back by its end.
  class Chain {
   public:
    Chain(Chain&& other) noexcept;
    Chain& operator=(Chain&&) = delete;
    ~Chain();
    Chain& AppendReadable(uint64_t address, uint32_t length) { return Append(address, length, 0); }
    Chain& AppendWritable(uint64_t address, uint32_t length) {
      return Append(address, length, kWrite);
    }
    // What follows goes into an indirect table, which ends the chain.
    Chain& Indirect();
    // Makes the chain available and returns its head. Unseen until Publish.
    uint16_t Add();

   private:
    friend class FakeDriver;
    explicit Chain(FakeDriver& driver) : driver_(&driver) {}
    Chain& Append(uint64_t address, uint32_t length, uint16_t flags);
    uint16_t AppendDirect(const RawDescriptor& descriptor);
    FakeDriver* driver_;
    uint16_t head_ = kNone;
    uint16_t last_ = kNone;       // in the ring
    uint64_t table_ = 0;          // 0: none
    uint16_t table_entries_ = 0;  // in use
  };

  FakeDriver(const GuestMemory& memory, const Options& options);

  // What the device is told.
  Virtqueue::Layout layout() const;
  QueueSetup Setup(uint16_t index, const EventFd& kick, InterruptLine& call) const;
  uint64_t features() const;
  // First address behind rings and tables.
  uint64_t end() const { return tables_ + uint64_t{ring_.size()} * TableBytes(); }
  RawRing& ring() { return ring_; }
  const RawRing& ring() const { return ring_; }

  uint16_t free_descriptors() const { return free_count_; }
  // The head of the next chain.
  uint16_t next_head() const { return first_free_; }
  // Indirect from the first buffer on if Options::indirect.
  Chain NewChain();
  // Shows the device what was added.
  void Publish();
  // What Linux computes after Publish: whether any index since the last call asked for it.
  bool NeedsKick();

  // The next chain the device is done with; its descriptors are free again.
  std::optional<UsedElement> TakeUsed();
  bool HasUsed() const { return ring_.used_index() != next_used_; }
  // Asks for an interrupt for the next element, or for one that comes so many `later` (with
  // EVENT_IDX only), or for none. After EnableInterrupts: HasUsed, or a look at the used index,
  // before anyone relies on an interrupt.
  void EnableInterrupts(uint16_t later = 0);
  void DisableInterrupts();

  uint16_t available_index() const { return next_available_; }
  uint16_t used_index() const { return next_used_; }

 private:
  static constexpr uint16_t kNone = 0xffff;
  uint64_t TableBytes() const { return uint64_t{16} * options_.table_entries; }
  uint64_t TableOf(uint16_t head) const { return tables_ + head * TableBytes(); }
  uint16_t TakeFree();
  void Free(uint16_t head);

  const Options options_;
  RawRing ring_;
  const uint64_t tables_;
  std::vector<uint16_t> next_;  // by descriptor: the next of its chain or of the free list
  std::vector<bool> in_use_;    // by head
  uint16_t first_free_ = 0;
  uint16_t free_count_;
  uint16_t next_available_ = 0;
  uint16_t published_ = 0;
  uint16_t kick_checked_ = 0;  // published_ when NeedsKick was last asked
  uint16_t next_used_ = 0;
};

}  // namespace ringside::testing
