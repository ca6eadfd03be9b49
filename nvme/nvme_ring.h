// A submission queue and its completion queue: indices, phase and doorbells, and nothing else.
//
// A doorbell is written once a batch, and only with a value that is not the one it has: controllers
// take a second writing of the same for an error and stop (section 3.1.2.11.1, "Invalid Doorbell
// Write Value"). With shadow doorbells (section 8.5) it is mostly not written at all.
//
// Threads: one at a time. Ownership: the memory is the user's.
// Spec: NVM Express Base Specification 2.0, sections 3.3, 4.1.2 and 8.5.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/counter.h"
#include "nvme/nvme_spec.h"
#include "vfio/mmio.h"

namespace ringside {

// A register, and the memory that may stand in for it.
class NvmeDoorbell {
 public:
  NvmeDoorbell() = default;
  // `event`: where the controller says at which value it wants the register written. Null: always.
  // `shadow`: null: there is none.
  NvmeDoorbell(uint32_t* reg, uint32_t* shadow, uint32_t* event)
      : register_(reg), shadow_(shadow), event_(event) {}

  // While the controller does not have the queue.
  void ClearShadow() const {
    if (shadow_ != nullptr) StoreRelease(shadow_, uint32_t{0});
    if (event_ != nullptr) StoreRelease(event_, uint32_t{0});
  }
  void Restart() { value_ = 0; }
  // Whether the register was written.
  bool Set(uint16_t value) {
    if (value == value_) return false;
    const uint16_t before = value_;
    value_ = value;
    if (shadow_ != nullptr) {
      StoreRelease(shadow_, uint32_t{value});
      if (event_ != nullptr) {
        // Pairs with the controller's, between its writing of the event index and its last look at
        // the shadow: it sees this value or we see that index.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const auto event = static_cast<uint16_t>(LoadAcquire(event_));
        if (!Passes(event, before, value)) return false;
      }
    }
    StoreRelease(register_, uint32_t{value});
    return true;
  }

 private:
  // Whether the step from `before` to `value` goes beyond `event`, in 16 bits that wrap.
  static bool Passes(uint16_t event, uint16_t before, uint16_t value) {
    return static_cast<uint16_t>(value - event - 1) < static_cast<uint16_t>(value - before);
  }

  uint32_t* register_ = nullptr;
  uint32_t* shadow_ = nullptr;
  uint32_t* event_ = nullptr;
  uint16_t value_ = 0;  // as the controller knows it
};

class NvmeRing {
 public:
  struct Parts {
    nvme::Command* submissions;
    nvme::Completion* completions;
    uint16_t entries;  // of either, a power of two; one less commands are in flight at most
    NvmeDoorbell submission_doorbell;
    NvmeDoorbell completion_doorbell;
  };

  NvmeRing() = default;
  explicit NvmeRing(const Parts& parts) : parts_(parts) {}

  uint16_t entries() const { return parts_.entries; }

  // As the controller has them when it has just been given the queues.
  void Restart() {
    tail_ = head_ = 0;
    phase_ = 1;
    std::memset(static_cast<void*>(parts_.completions), 0,
                parts_.entries * sizeof(nvme::Completion));
    parts_.submission_doorbell.Restart();
    parts_.completion_doorbell.Restart();
  }

  // The controller sees it after the next Submit.
  void Push(const nvme::Command& command) {
    parts_.submissions[tail_] = command;
    tail_ = Next(tail_);
  }
  // Whether a register was written.
  bool RingDoorbell() { return parts_.submission_doorbell.Set(tail_); }

  bool HasCompletion() const { return IsNew(parts_.completions[head_]); }
  // The next one, if there is one. Each field is read once: the memory is also the controller's,
  // which may be another process and change what has been looked at. `result`: DW0, if wanted.
  bool Pop(nvme::CompletionEnd& end, uint32_t* result = nullptr) {
    const nvme::Completion& completion = parts_.completions[head_];
    if (!IsNew(completion)) return false;
    using Dword [[gnu::may_alias]] = const uint32_t;
    end = std::bit_cast<nvme::CompletionEnd>(
        __atomic_load_n(reinterpret_cast<Dword*>(&completion.id), __ATOMIC_RELAXED));
    if (result != nullptr) *result = LoadAcquire(&completion.result);
    head_ = Next(head_);
    if (head_ == 0) phase_ ^= 1;
    return true;
  }
  // Whether a register was written.
  bool Acknowledge() { return parts_.completion_doorbell.Set(head_); }

 private:
  bool IsNew(const nvme::Completion& completion) const {
    return (LoadAcquire(&completion.status) & 1) == phase_;
  }
  uint16_t Next(uint16_t index) const {
    return static_cast<uint16_t>((index + 1) & (parts_.entries - 1));
  }

  Parts parts_ = {};
  uint16_t tail_ = 0;
  uint16_t head_ = 0;
  uint16_t phase_ = 1;
};

}  // namespace ringside
