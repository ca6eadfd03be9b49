#include "tests/support/nvme/nvme_model_admin.h"

#include <algorithm>

#include "tests/support/nvme/nvme_model_identify.h"
#include "tests/support/nvme/nvme_model_spec.h"

namespace ringside::testing {
namespace {

using nvme::AdminOp;
using nvme::kInvalidField;
using nvme::kInvalidQueueId;
using nvme::kSuccess;
using nvme::Status;

uint16_t LowOf(uint32_t dword) {
  return static_cast<uint16_t>(dword);
}
uint16_t HighOf(uint32_t dword) {
  return static_cast<uint16_t>(dword >> 16);
}
uint32_t TypeOf(uint32_t event) {
  return event & 7;
}

}  // namespace

NvmeModelAdmin::NvmeModelAdmin(const NvmeModelConfig& config, NvmeModelMemory& memory,
                               NvmeModelQueues& queues, NvmeModelIo& io)
    : config_(config), memory_(memory), queues_(queues), io_(io), granted_(config.queues) {}

void NvmeModelAdmin::Reset() {
  granted_ = config_.queues;
  event_config_ = 0;
  event_requests_.clear();
  events_.clear();
  is_masked_ = {};
}

NvmeModelOutcome NvmeModelAdmin::Execute(const nvme::Command& command) {
  switch (static_cast<AdminOp>(command.opcode)) {
    case AdminOp::kDeleteSq:
      return DeleteSq(command);
    case AdminOp::kCreateSq:
      return CreateSq(command);
    case AdminOp::kGetLogPage:
      return GetLogPage(command);
    case AdminOp::kDeleteCq:
      return DeleteCq(command);
    case AdminOp::kCreateCq:
      return CreateCq(command);
    case AdminOp::kIdentify:
      return Identify(command);
    case AdminOp::kSetFeatures:
      return SetFeatures(command);
    case AdminOp::kGetFeatures:
      return GetFeatures(command);
    case AdminOp::kAsyncEvent:
      return TakeEventRequest(command);
    case AdminOp::kDoorbellBuffers:
      return SetDoorbellBuffers(command);
    default:
      return {nvme::kInvalidOpcode};
  }
}

NvmeModelOutcome NvmeModelAdmin::Identify(const nvme::Command& command) {
  switch (command.cdw10 & 0xff) {
    case nvme::kCnsNamespace:
      if (command.nsid == 0 || command.nsid > config_.namespaces.size()) {
        return {nvme::kInvalidNamespace};
      }
      return {memory_.Write(
          command, Patched(IdentifyNamespace(config_.namespaces[command.nsid - 1]), false))};
    case nvme::kCnsController:
      return {memory_.Write(command, Patched(IdentifyController(config_), true))};
    case nvme::kCnsActiveNamespaces:
      return {memory_.Write(command, ListActiveNamespaces(config_, command.nsid))};
    default:
      return {kInvalidField};
  }
}

NvmeModelPage NvmeModelAdmin::Patched(NvmeModelPage page, bool of_controller) const {
  for (const NvmeModelPatch& patch : config_.patches) {
    if (patch.of_controller == of_controller) page.at(patch.offset) = std::byte{patch.value};
  }
  return page;
}

Status NvmeModelAdmin::CheckNewQueue(const nvme::Command& command, bool exists) const {
  const uint16_t id = LowOf(command.cdw10);
  if (id == 0 || id > granted_ || exists) return kInvalidQueueId;
  const uint32_t size = HighOf(command.cdw10) + 1U;
  const bool fits = size >= 2 && size <= config_.queue_entries;
  if (!fits && !config_.takes_any_queue) return nvme::kInvalidQueueSize;
  if ((command.cdw11 & nvme::kQueueContiguous) == 0) return kInvalidField;
  if (command.prp1 % memory_.page_size() != 0) return nvme::kPrpOffsetInvalid;
  return kSuccess;
}

NvmeModelOutcome NvmeModelAdmin::CreateCq(const nvme::Command& command) {
  const uint16_t id = LowOf(command.cdw10);
  const Status status = CheckNewQueue(command, queues_.completion(id) != nullptr);
  if (status != kSuccess) return {status};
  const uint16_t vector = HighOf(command.cdw11);
  const bool interrupts = (command.cdw11 & nvme::kQueueInterrupts) != 0;
  if (interrupts && vector >= config_.vectors) return {nvme::kInvalidVector};
  NvmeModelCompletionQueue queue;
  queue.id = id;
  queue.size = HighOf(command.cdw10) + 1U;
  queue.base = command.prp1;
  queue.interrupts = interrupts;
  queue.vector = vector;
  queues_.AddCompletion(queue);
  return {};
}

NvmeModelOutcome NvmeModelAdmin::CreateSq(const nvme::Command& command) {
  const uint16_t id = LowOf(command.cdw10);
  const Status status = CheckNewQueue(command, queues_.submission(id) != nullptr);
  if (status != kSuccess) return {status};
  const uint16_t completion_queue = HighOf(command.cdw11);
  if (completion_queue == 0) return {kInvalidQueueId};
  if (queues_.completion(completion_queue) == nullptr) return {kCompletionQueueInvalid};
  queues_.AddSubmission(id, HighOf(command.cdw10) + 1U, command.prp1, completion_queue);
  return {};
}

NvmeModelOutcome NvmeModelAdmin::DeleteSq(const nvme::Command& command) {
  const uint16_t id = LowOf(command.cdw10);
  if (id == 0 || queues_.submission(id) == nullptr) return {kInvalidQueueId};
  queues_.RemoveSubmission(id);
  return {};
}

NvmeModelOutcome NvmeModelAdmin::DeleteCq(const nvme::Command& command) {
  const uint16_t id = LowOf(command.cdw10);
  if (id == 0 || queues_.completion(id) == nullptr) return {kInvalidQueueId};
  const auto& users = queues_.submissions();
  if (std::any_of(users.begin(), users.end(),
                  [&](const auto& user) { return user->completion_queue == id; })) {
    return {kInvalidQueueDeletion};
  }
  queues_.RemoveCompletion(id);
  return {};
}

NvmeModelOutcome NvmeModelAdmin::GrantQueues(uint32_t asked) {
  // Only before there are any.
  if (queues_.submissions().size() > 1) return {kSequenceError};
  if (LowOf(asked) == 0xffff || HighOf(asked) == 0xffff) return {kInvalidField};
  const uint32_t most = std::max(LowOf(asked), HighOf(asked)) + 1U;
  granted_ = static_cast<uint16_t>(std::min<uint32_t>(most, config_.queues));
  const uint32_t granted = granted_ - 1U;
  return {kSuccess, granted | granted << 16};
}

NvmeModelOutcome NvmeModelAdmin::SetFeatures(const nvme::Command& command) {
  switch (command.cdw10 & 0xff) {
    case nvme::kFeatureWriteCache:
      if (!config_.write_cache) return {kInvalidField};
      io_.SetWriteCache((command.cdw11 & 1) != 0);
      return {};
    case nvme::kFeatureQueueCount:
      return GrantQueues(command.cdw11);
    case nvme::kFeatureAsyncEvents:
      event_config_ = command.cdw11;
      return {};
    default:
      return {kInvalidField};
  }
}

NvmeModelOutcome NvmeModelAdmin::GetFeatures(const nvme::Command& command) {
  if ((command.cdw10 & 0x700) != 0) return {kInvalidField};  // other than the current value
  switch (command.cdw10 & 0xff) {
    case nvme::kFeatureWriteCache:
      if (!config_.write_cache) return {kInvalidField};
      return {kSuccess, io_.write_cache() ? 1U : 0U};
    case nvme::kFeatureQueueCount:
      return {kSuccess, (granted_ - 1U) | (granted_ - 1U) << 16};
    case nvme::kFeatureAsyncEvents:
      return {kSuccess, event_config_};
    default:
      return {kInvalidField};
  }
}

NvmeModelOutcome NvmeModelAdmin::GetLogPage(const nvme::Command& command) {
  const uint32_t page = command.cdw10 & 0xff;
  if (page != kLogErrors && page != kLogHealth && page != kLogChangedNamespaces) {
    return {kInvalidLogPage};
  }
  const uint64_t dwords = (HighOf(command.cdw10) | uint64_t{LowOf(command.cdw11)} << 16) + 1;
  if (dwords * 4 > nvme::kIdentifyBytes) return {kInvalidField};
  const std::vector<std::byte> zeroes(dwords * 4);
  if (const Status status = memory_.Write(command, zeroes); status != kSuccess) return {status};
  constexpr uint32_t kRetainEvent = 1 << 15;
  if ((command.cdw10 & kRetainEvent) == 0) {
    for (size_t type = 0; type < is_masked_.size(); ++type) {
      if (log_pages_[type] == page) is_masked_[type] = false;
    }
    DeliverEvents();
  }
  return {};
}

NvmeModelOutcome NvmeModelAdmin::SetDoorbellBuffers(const nvme::Command& command) {
  if (!config_.shadow_doorbells) return {nvme::kInvalidOpcode};
  if ((command.prp1 | command.prp2) % memory_.page_size() != 0) return {kInvalidField};
  const bool is_there =
      memory_.At(command.prp1, memory_.page_size(), "shadow doorbells") != nullptr &&
      memory_.At(command.prp2, memory_.page_size(), "event indices") != nullptr;
  if (!is_there) return {nvme::kDataTransferError};
  queues_.SetShadows(command.prp1, command.prp2);
  return {};
}

NvmeModelOutcome NvmeModelAdmin::TakeEventRequest(const nvme::Command& command) {
  if (event_requests_.size() == kNvmeModelEventRequests) return {kEventLimitExceeded};
  event_requests_.push_back(command.id);
  DeliverEvents();
  return {.completes = false};
}

void NvmeModelAdmin::SendEvent(uint32_t event) {
  const uint32_t notice = 1U << (8 + ((event >> 8) & 0xf));
  if (TypeOf(event) == kEventNotice && (event_config_ & notice) == 0) return;
  events_.push_back(event);
  DeliverEvents();
}

void NvmeModelAdmin::DeliverEvents() {
  // In their order, but for those whose type the driver has not yet looked into.
  for (size_t i = 0; i < events_.size() && !event_requests_.empty();) {
    const uint32_t event = events_[i];
    if (is_masked_[TypeOf(event)]) {
      ++i;
      continue;
    }
    is_masked_[TypeOf(event)] = true;
    log_pages_[TypeOf(event)] = (event >> 16) & 0xff;
    const uint16_t id = event_requests_.front();
    event_requests_.pop_front();
    events_.erase(events_.begin() + static_cast<ptrdiff_t>(i));
    queues_.submission(0)->in_flight[id] = false;
    queues_.Post({.result = event, .sq_id = 0, .id = id, .status = kSuccess});
  }
}

}  // namespace ringside::testing
