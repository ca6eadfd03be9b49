// MSI-X of a PCI function: the vector table and the pending bits, both guest memory-mapped, and the
// capability's enable and mask bits.
//
// A masked vector is one whose MsiVector is masked: its eventfd then keeps what is signalled, and
// that is the pending bit.
//
// Threads: any vCPU's; a mutex guards the table. event() from any.
// Ownership: the platform outlives it.
// Spec: PCI Local Bus 3.0, section 6.8.2.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "devices/bus.h"
#include "devices/interrupt.h"

namespace ringside {

class Msix {
 public:
  static constexpr uint64_t kPageSize = 4096;   // of table() and of pending_bits()
  static constexpr uint16_t kMaxVectors = 256;  // 16 bytes each: a page

  // Message Control (section 6.8.2.3), and where the capability has it.
  static constexpr uint32_t kControlOffset = 2;
  static constexpr uint16_t kEnable = 1 << 15;
  static constexpr uint16_t kFunctionMask = 1 << 14;

  // The table and the pending bits as the guest reads them. A vector that delivers has nothing
  // pending: what was signalled is with the guest's interrupt controller.
  struct EntryState {
    uint32_t address_low = 0;
    uint32_t address_high = 0;
    uint32_t data = 0;
    uint32_t control = 1;
    uint32_t pending = 0;  // 1 or 0
    bool operator==(const EntryState&) const = default;
  };
  struct State {
    uint16_t control = 0;             // kEnable and kFunctionMask
    std::vector<EntryState> entries;  // one per vector
    bool operator==(const State&) const = default;
  };

  // All masked, MSI-X off. InvalidArgument unless 1 to kMaxVectors.
  static absl::StatusOr<std::unique_ptr<Msix>> Create(uint16_t vectors, PciPlatform& platform);

  uint16_t size() const { return static_cast<uint16_t>(entries_.size()); }
  // Null if there is no such vector.
  const EventFd* event(uint16_t vector) const;

  // The Message Control word's upper two bits (section 6.8.2.3), whenever the guest wrote them.
  void SetControl(bool enabled, bool function_masked);

  // Takes nothing: what is pending stays so. While devices signal nothing.
  State Save() const;
  // Restore into one that is new and has as many vectors, before any device signals one. What was
  // pending is delivered when its vector is unmasked. InvalidArgument for what a table cannot hold;
  // nothing has changed then.
  absl::Status Check(const State& state) const;
  absl::Status Restore(const State& state);

  // Whole words of 4 or 8 bytes, aligned (section 6.8.2): others read 0 and write nothing.
  IoHandler& table() { return table_; }
  IoHandler& pending_bits() { return pending_bits_; }

 private:
  struct Entry {
    std::unique_ptr<MsiVector> vector;
    uint32_t address_low = 0;
    uint32_t address_high = 0;
    uint32_t data = 0;
    uint32_t control = 1;   // bit 0: masked
    bool delivers = false;  // the vector is unmasked
  };
  class Table final : public IoHandler {
   public:
    explicit Table(Msix& msix) : msix_(msix) {}
    void Read(uint64_t offset, std::span<std::byte> data) override;
    void Write(uint64_t offset, std::span<const std::byte> data) override;

   private:
    Msix& msix_;
  };
  class PendingBits final : public IoHandler {
   public:
    explicit PendingBits(Msix& msix) : msix_(msix) {}
    void Read(uint64_t offset, std::span<std::byte> data) override;
    void Write(uint64_t, std::span<const std::byte>) override {}

   private:
    Msix& msix_;
  };

  Msix() = default;
  // The word of the table at this offset; 0 and ignored beyond the last vector.
  uint32_t ReadWord(uint64_t offset) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether it changed the message.
  bool WriteWord(uint64_t offset, uint32_t value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Bits of the vectors from `first` on.
  uint64_t Pending(size_t first, size_t count) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool Delivers(uint16_t control, uint32_t vector_control);
  // Brings the vector into the state that the registers ask for.
  void Apply(Entry& entry, bool new_message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::vector<Entry> entries_;  // the vector itself is constant, its entries are guarded by mutex_
  uint16_t control_ ABSL_GUARDED_BY(mutex_) = 0;  // kEnable and kFunctionMask
  Table table_{*this};
  PendingBits pending_bits_{*this};
};

}  // namespace ringside
