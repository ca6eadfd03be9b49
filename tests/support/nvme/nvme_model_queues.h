// The queues of an NvmeModel and their doorbells, registers and shadows, as nvme_model.h describes.
//
// Threads: under the model's lock; the registers are memory.
// Source: NVM Express Base Specification 2.0, sections 3.1.3.24, 3.3 and 5.8.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/nvme/nvme_model_bus.h"
#include "tests/support/shared_pages.h"

namespace ringside::testing {

// The index that the driver moves: tail of a submission queue, head of a completion queue.
struct NvmeModelQueue {
  uint16_t id = 0;
  uint32_t size = 0;
  uint64_t base = 0;
  uint32_t index = 0;
  uint32_t limit = 0;  // as far as the index may go now: there is no room, or no entry, behind it
  uint64_t moved = 0;  // ever
  std::optional<uint32_t> refused = {};  // a shadow's value, until there is another
  // When the register was written last.
  uint32_t written = 0;
  uint64_t moved_at_written = 0;

  uint32_t Next(uint32_t at) const { return at + 1 == size ? 0 : at + 1; }
  uint32_t Distance(uint32_t from, uint32_t to) const {
    return to >= from ? to - from : to + size - from;
  }
};

struct NvmeModelSubmissionQueue : NvmeModelQueue {
  uint16_t completion_queue = 0;
  uint32_t head = 0;
  std::vector<bool> in_flight = std::vector<bool>(1 << 16);  // by command identifier
};

struct NvmeModelCompletionQueue : NvmeModelQueue {
  bool interrupts = false;
  uint16_t vector = 0;
  uint16_t phase = 1;
  std::deque<nvme::Completion> waiting = {};  // for room

  bool IsFull() const { return Next(limit) == index; }  // the limit is the tail
};

class NvmeModelQueues {
 public:
  // What an asynchronous event of type 0 says, section 5.2.
  enum DoorbellError : uint8_t { kInvalidRegister = 0, kInvalidValue = 1 };

  NvmeModelQueues(const NvmeModelConfig& config, NvmeModelMemory& memory, NvmeModelVectors& vectors,
                  NvmeModelRecord& record);

  // What was mapped of them is mapped no longer.
  void RenewRegisters();
  uint32_t* registers() const {
    return reinterpret_cast<uint32_t*>(bar_->host() + nvme::kDoorbells);
  }
  // BAR 0, whose doorbells are memory.
  const SharedPages& bar() const { return *bar_; }
  // Whole pages, as a BAR has.
  uint64_t registers_size() const {
    return (doorbells_ * stride_ + nvme::kPageSize - 1) & ~uint64_t{nvme::kPageSize - 1};
  }
  void WriteRegister(uint64_t offset, uint32_t value);
  // Forgets what was written to them.
  void ClearRegisters();

  // No queues, no shadow doorbells.
  void Reset();
  void AddSubmission(uint16_t id, uint32_t size, uint64_t base, uint16_t completion_queue);
  void AddCompletion(const NvmeModelCompletionQueue& queue);
  void RemoveSubmission(uint16_t id);
  void RemoveCompletion(uint16_t id);
  // Null if there is none.
  NvmeModelSubmissionQueue* submission(uint32_t id) const;
  NvmeModelCompletionQueue* completion(uint32_t id) const;
  const std::vector<std::unique_ptr<NvmeModelSubmissionQueue>>& submissions() const {
    return submissions_;
  }
  // The addresses of both pages. I/O queues have shadows.
  void SetShadows(uint64_t shadows, uint64_t events);

  // Whether any doorbell had something new.
  bool LookAtDoorbells();
  // At registers of which none may be written now.
  void LookForStrangers(const char* why);
  // False if a shadow doorbell has moved in the meantime.
  bool FallAsleep();
  bool awake() const { return awake_; }

  bool Fetch(NvmeModelSubmissionQueue& queue, nvme::Command& command);
  // `completion` names its submission queue; its status has no phase bit yet, and its SQ head comes
  // here.
  void Post(const nvme::Completion& completion, bool wrong_phase = false);

  bool has_errors() const { return !errors_.empty(); }
  // Since the last call.
  std::vector<DoorbellError> TakeErrors() { return std::exchange(errors_, {}); }
  // A queue, or what belongs to it, could not be reached by DMA: nothing can go on.
  bool broken() const { return broken_; }

 private:
  bool TakeRegister(uint32_t doorbell, uint32_t& value);
  uint32_t* Shadow(uint64_t page, uint32_t doorbell);
  bool LookAt(NvmeModelQueue& queue, uint32_t doorbell);
  bool LookAtShadow(NvmeModelQueue& queue, uint32_t doorbell);
  void RegisterWritten(NvmeModelQueue& queue, uint32_t doorbell, uint32_t value);
  bool Move(NvmeModelQueue& queue, uint32_t doorbell, uint32_t value);
  void BadValue(uint32_t doorbell, uint32_t value, const char* why);
  bool IsShadowed(uint32_t doorbell) const;
  void FillRoom(NvmeModelCompletionQueue& queue);
  void PutEntry(NvmeModelCompletionQueue& queue, nvme::Completion completion, bool wrong_phase);

  NvmeModelMemory& memory_;
  NvmeModelVectors& vectors_;
  NvmeModelRecord& record_;
  const uint32_t doorbells_;  // two a queue, the tail of submissions first
  const uint64_t stride_;     // bytes
  std::unique_ptr<SharedPages> bar_;
  // In the order they were made.
  std::vector<std::unique_ptr<NvmeModelSubmissionQueue>> submissions_;
  std::vector<std::unique_ptr<NvmeModelCompletionQueue>> completions_;
  uint64_t shadows_ = 0;
  uint64_t events_ = 0;
  bool has_shadows_ = false;
  bool awake_ = true;
  bool broken_ = false;
  uint32_t looks_ = 0;
  std::vector<DoorbellError> errors_;
};

}  // namespace ringside::testing
