#include "tests/support/nvme/nvme_model_queues.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "vfio/mmio.h"

namespace ringside::testing {
namespace {

// No driver writes it: the upper half of a doorbell is reserved.
constexpr uint32_t kUnwritten = 0xffffffff;

uint32_t TailOf(uint16_t queue) {
  return uint32_t{2} * queue;
}
uint32_t HeadOf(uint16_t queue) {
  return uint32_t{2} * queue + 1;
}
const char* NameOf(uint32_t doorbell) {
  return doorbell % 2 == 0 ? "tail of submission queue" : "head of completion queue";
}

template <typename Queues>
auto* Find(const Queues& queues, uint32_t id) {
  for (const auto& queue : queues) {
    if (queue->id == id) return queue.get();
  }
  return static_cast<typename Queues::value_type::element_type*>(nullptr);
}

}  // namespace

NvmeModelQueues::NvmeModelQueues(const NvmeModelConfig& config, NvmeModelMemory& memory,
                                 NvmeModelVectors& vectors, NvmeModelRecord& record)
    : memory_(memory),
      vectors_(vectors),
      record_(record),
      doorbells_(2 * (config.queues + 1U)),
      stride_(4U << config.doorbell_stride) {
  RenewRegisters();
}

void NvmeModelQueues::RenewRegisters() {
  bar_ = std::make_unique<SharedPages>(nvme::kDoorbells + registers_size());
  ClearRegisters();
}

void NvmeModelQueues::ClearRegisters() {
  for (uint64_t i = 0; i < registers_size() / sizeof(uint32_t); ++i) {
    StoreRelease(&registers()[i], kUnwritten);
  }
}

void NvmeModelQueues::WriteRegister(uint64_t offset, uint32_t value) {
  if (offset < registers_size()) StoreRelease(&registers()[offset / sizeof(uint32_t)], value);
}

void NvmeModelQueues::Reset() {
  submissions_.clear();
  completions_.clear();
  has_shadows_ = false;
  broken_ = false;
  awake_ = true;
  errors_.clear();
  ClearRegisters();
}

void NvmeModelQueues::AddSubmission(uint16_t id, uint32_t size, uint64_t base,
                                    uint16_t completion_queue) {
  auto queue = std::make_unique<NvmeModelSubmissionQueue>();
  queue->id = id;
  queue->size = size;
  queue->base = base;
  queue->limit = size - 1;
  queue->completion_queue = completion_queue;
  submissions_.push_back(std::move(queue));
}

void NvmeModelQueues::AddCompletion(const NvmeModelCompletionQueue& queue) {
  completions_.push_back(std::make_unique<NvmeModelCompletionQueue>(queue));
}

void NvmeModelQueues::RemoveSubmission(uint16_t id) {
  std::erase_if(submissions_, [&](const auto& queue) { return queue->id == id; });
}

void NvmeModelQueues::RemoveCompletion(uint16_t id) {
  std::erase_if(completions_, [&](const auto& queue) { return queue->id == id; });
}

NvmeModelSubmissionQueue* NvmeModelQueues::submission(uint32_t id) const {
  return Find(submissions_, id);
}

NvmeModelCompletionQueue* NvmeModelQueues::completion(uint32_t id) const {
  return Find(completions_, id);
}

void NvmeModelQueues::SetShadows(uint64_t shadows, uint64_t events) {
  shadows_ = shadows;
  events_ = events;
  has_shadows_ = true;
}

bool NvmeModelQueues::LookAtDoorbells() {
  bool found = false;
  // Queue 0 first: what was written before an admin command's doorbell, to a queue that the command
  // deletes, is then seen before it.
  for (const auto& queue : submissions_) found |= LookAt(*queue, TailOf(queue->id));
  for (const auto& queue : completions_) {
    if (!LookAt(*queue, HeadOf(queue->id))) continue;
    found = true;
    FillRoom(*queue);
  }
  if (++looks_ % 64 == 0) LookForStrangers("there is no such queue");
  return found;
}

void NvmeModelQueues::LookForStrangers(const char* why) {
  for (uint32_t doorbell = 0; doorbell < doorbells_; ++doorbell) {
    const uint32_t id = doorbell / 2;
    const bool is_known = doorbell % 2 == 0 ? submission(id) != nullptr : completion(id) != nullptr;
    uint32_t value;
    if (is_known || !TakeRegister(doorbell, value)) continue;
    record_.Violate("doorbell %s %d: %s", NameOf(doorbell), id, why);
    errors_.push_back(kInvalidRegister);
  }
}

bool NvmeModelQueues::TakeRegister(uint32_t doorbell, uint32_t& value) {
  uint32_t* cell = registers() + doorbell * (stride_ / sizeof(uint32_t));
  if (LoadAcquire(cell) == kUnwritten) return false;
  value = __atomic_exchange_n(cell, kUnwritten, __ATOMIC_ACQ_REL);
  ++record_.counters.doorbells;
  return true;
}

// A page of shadows has the layout of the registers.
bool NvmeModelQueues::IsShadowed(uint32_t doorbell) const {
  return has_shadows_ && doorbell >= 2 && doorbell * stride_ < memory_.page_size();
}

uint32_t* NvmeModelQueues::Shadow(uint64_t page, uint32_t doorbell) {
  std::byte* at = memory_.At(page + doorbell * stride_, sizeof(uint32_t), "shadow doorbell");
  broken_ |= at == nullptr;
  return reinterpret_cast<uint32_t*>(at);
}

bool NvmeModelQueues::LookAt(NvmeModelQueue& queue, uint32_t doorbell) {
  bool found = false;
  uint32_t value;
  if (TakeRegister(doorbell, value)) {
    RegisterWritten(queue, doorbell, value);
    found = true;
  }
  if (awake_ && IsShadowed(doorbell)) found |= LookAtShadow(queue, doorbell);
  return found;
}

bool NvmeModelQueues::LookAtShadow(NvmeModelQueue& queue, uint32_t doorbell) {
  const uint32_t* shadow = Shadow(shadows_, doorbell);
  if (shadow == nullptr) return false;
  ++record_.counters.shadow_checks;
  const uint32_t value = LoadAcquire(shadow);
  if (value == queue.index || value == queue.refused) return false;
  const bool moved = Move(queue, doorbell, value);
  queue.refused = moved ? std::nullopt : std::optional(value);
  return moved;
}

void NvmeModelQueues::RegisterWritten(NvmeModelQueue& queue, uint32_t doorbell, uint32_t value) {
  if (value >= queue.size) {
    BadValue(doorbell, value, "out of range");
    return;
  }
  if (IsShadowed(doorbell)) {
    // Its shadow is what counts, which may have gone on since. The register only wakes.
    awake_ = true;
    LookAtShadow(queue, doorbell);
    if (value == queue.written && queue.moved == queue.moved_at_written) {
      BadValue(doorbell, value, "written twice");
    }
  } else if (value == queue.index) {
    BadValue(doorbell, value, "written twice");
  } else {
    Move(queue, doorbell, value);
  }
  queue.written = value;
  queue.moved_at_written = queue.moved;
}

bool NvmeModelQueues::Move(NvmeModelQueue& queue, uint32_t doorbell, uint32_t value) {
  if (value >= queue.size) {
    BadValue(doorbell, value, "out of range");
    return false;
  }
  const uint32_t entries = queue.Distance(queue.index, value);
  if (entries > queue.Distance(queue.index, queue.limit)) {
    BadValue(doorbell, value,
             doorbell % 2 == 0 ? "more commands than there is room for"
                               : "beyond the entries there are");
    return false;
  }
  queue.index = value;
  queue.moved += entries;
  return true;
}

void NvmeModelQueues::BadValue(uint32_t doorbell, uint32_t value, const char* why) {
  record_.Violate("doorbell %s %d: %d, %s", NameOf(doorbell), doorbell / 2, value, why);
  errors_.push_back(kInvalidValue);
}

bool NvmeModelQueues::FallAsleep() {
  if (!has_shadows_) return true;
  const auto for_each = [&](auto&& body) {
    for (const auto& queue : submissions_) {
      if (IsShadowed(TailOf(queue->id))) body(*queue, TailOf(queue->id));
    }
    for (const auto& queue : completions_) {
      if (IsShadowed(HeadOf(queue->id))) body(*queue, HeadOf(queue->id));
    }
  };
  for_each([&](NvmeModelQueue& queue, uint32_t doorbell) {
    if (uint32_t* event = Shadow(events_, doorbell)) StoreRelease(event, queue.index);
  });
  // Pairs with the driver's between its shadow and its look at the event index.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool moved = false;
  for_each(
      [&](NvmeModelQueue& queue, uint32_t doorbell) { moved |= LookAtShadow(queue, doorbell); });
  awake_ = moved;
  return !moved;
}

bool NvmeModelQueues::Fetch(NvmeModelSubmissionQueue& queue, nvme::Command& command) {
  if (queue.head == queue.index || broken_) return false;
  const std::byte* at = memory_.At(queue.base + queue.head * sizeof command, sizeof command,
                                   "an entry of a submission queue");
  if (at == nullptr) {
    broken_ = true;
    return false;
  }
  std::memcpy(&command, at, sizeof command);
  queue.head = queue.Next(queue.head);
  return true;
}

void NvmeModelQueues::Post(const nvme::Completion& completion, bool wrong_phase) {
  const NvmeModelSubmissionQueue& from = *submission(completion.sq_id);
  NvmeModelCompletionQueue& queue = *this->completion(from.completion_queue);
  // Room may have been made since the last look.
  if (queue.IsFull()) LookAt(queue, HeadOf(queue.id));
  FillRoom(queue);
  if (queue.IsFull()) {
    record_.Violate("completion queue %d is full", queue.id);
    queue.waiting.push_back(completion);
    return;
  }
  PutEntry(queue, completion, wrong_phase);
}

void NvmeModelQueues::FillRoom(NvmeModelCompletionQueue& queue) {
  while (!queue.waiting.empty() && !queue.IsFull()) {
    PutEntry(queue, queue.waiting.front(), false);
    queue.waiting.pop_front();
  }
}

void NvmeModelQueues::PutEntry(NvmeModelCompletionQueue& queue, nvme::Completion completion,
                               bool wrong_phase) {
  std::byte* at = memory_.At(queue.base + queue.limit * sizeof completion, sizeof completion,
                             "an entry of a completion queue");
  if (at == nullptr) {
    broken_ = true;
    return;
  }
  NvmeModelSubmissionQueue* from = submission(completion.sq_id);
  if (from != nullptr) {
    completion.sq_head = static_cast<uint16_t>(from->head);
    from->limit = from->head == 0 ? from->size - 1 : from->head - 1;
  }
  const uint16_t phase = wrong_phase ? queue.phase ^ 1 : queue.phase;
  constexpr size_t kStatus = offsetof(nvme::Completion, status);
  std::memcpy(at, &completion, kStatus);
  StoreRelease(reinterpret_cast<uint16_t*>(at + kStatus),
               static_cast<uint16_t>(completion.status << 1 | phase));
  queue.limit = queue.Next(queue.limit);
  if (queue.limit == 0) queue.phase ^= 1;
  if (queue.interrupts) vectors_.Raise(queue.vector);
}

}  // namespace ringside::testing
