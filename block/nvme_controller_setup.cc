// How a controller is brought up, and what it tells of itself.

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "block/nvme_controller.h"

namespace ringside {
namespace {

// What asynchronous events are asked for, section 5.27.1.8: the critical warnings of the health
// log, changed namespaces and firmware that is to be activated.
constexpr uint32_t kAsyncEvents = 0x1f | 1U << 8 | 1U << 9;

const char* DescribeEvent(uint32_t event) {
  const uint32_t type = event & 7;
  const uint32_t info = (event >> 8) & 0xff;
  if (type == 0) {
    constexpr const char* kErrors[] = {"a write to a doorbell that is not there",
                                       "a doorbell value that cannot be",
                                       "a diagnostic failure",
                                       "a persistent internal error",
                                       "a transient internal error",
                                       "firmware that could not be loaded"};
    return info < std::size(kErrors) ? kErrors[info] : "an error";
  }
  if (type == 1) return "a health warning (see its SMART log)";
  if (type == 2 && info == 0) return "a changed namespace";
  return "a notice";
}

}  // namespace

absl::Status NvmeController::SetUp() {
  RINGSIDE_ASSIGN_OR_RETURN(admin_,
                            NvmeAdmin::Create(*device_, space_, interrupts_[0], settings_.timeout));
  RINGSIDE_RETURN_IF_ERROR(admin_->Disable());
  queue_entries_ = admin_->capabilities().queue_entries(NvmeQueue::kEntries);
  RINGSIDE_RETURN_IF_ERROR(admin_->Enable());
  admin_->TakeSubsystemReset();
  RINGSIDE_RETURN_IF_ERROR(IdentifyController());
  RINGSIDE_RETURN_IF_ERROR(AskForQueues());
  RINGSIDE_RETURN_IF_ERROR(MapDoorbells());
  return SetFeatures();
}

// Once more. What it told at first is taken to hold.
absl::Status NvmeController::BringUp() {
  RINGSIDE_RETURN_IF_ERROR(admin_->Enable());
  if (admin_->TakeSubsystemReset() && has_cache_) LoseCache("the whole subsystem was reset");
  const uint16_t before = queue_count_;
  RINGSIDE_RETURN_IF_ERROR(AskForQueues());
  if (queue_count_ < before) {
    return absl::UnavailableError(
        absl::StrFormat("it has only %d queues after the reset", queue_count_));
  }
  queue_count_ = before;
  return SetFeatures();
}

absl::Status NvmeController::IdentifyController() {
  RINGSIDE_ASSIGN_OR_RETURN(const auto data, admin_->Identify(nvme::kCnsController, 0));
  const NvmeFeatures features = ParseNvmeController(data);
  most_bytes_ = std::min(features.most_bytes, kMostPrpBytes);
  has_cache_ = features.volatile_cache;
  has_discard_ = features.discard;
  has_shadows_ = features.doorbell_buffers;
  return absl::OkStatus();
}

// As many as there are vectors for, section 5.27.1.5.
absl::Status NvmeController::AskForQueues() {
  const auto wanted = static_cast<uint32_t>(interrupts_.size() - 1);
  RINGSIDE_ASSIGN_OR_RETURN(
      const uint32_t granted,
      admin_->SetFeature(nvme::kFeatureQueueCount, (wanted - 1) << 16 | (wanted - 1)));
  queue_count_ =
      static_cast<uint16_t>(std::min({wanted, (granted & 0xffff) + 1, (granted >> 16) + 1}));
  return absl::OkStatus();
}

absl::Status NvmeController::MapDoorbells() {
  const uint64_t bytes =
      nvme::DoorbellOffset(queue_count_ + 1U, false, admin_->capabilities().doorbell_stride());
  RINGSIDE_ASSIGN_OR_RETURN(doorbells_, device_->MapBar(NvmeAdmin::kBar, nvme::kDoorbells, bytes));
  has_shadows_ = has_shadows_ && bytes <= nvme::kPageSize;
  if (!has_shadows_) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(shadows_, space_.Allocate(uint64_t{2} * nvme::kPageSize));
  return absl::OkStatus();
}

absl::Status NvmeController::SetFeatures() {
  if (has_cache_) {
    // A reset may have set it to whatever is saved.
    RINGSIDE_RETURN_IF_ERROR(admin_->SetFeature(nvme::kFeatureWriteCache, 1).status());
  }
  if (has_shadows_) {
    std::memset(shadows_.data(), 0, size_t{2} * nvme::kPageSize);
    RINGSIDE_RETURN_IF_ERROR(
        admin_
            ->Execute({.opcode = static_cast<uint8_t>(nvme::AdminOp::kDoorbellBuffers),
                       .prp1 = shadows_.iova(),
                       .prp2 = shadows_.iova() + nvme::kPageSize})
            .status());
  }
  // Not all know all of them, and none is needed.
  if (!admin_->SetFeature(nvme::kFeatureAsyncEvents, kAsyncEvents).ok()) {
    log_.Log(Severity::kDebug, "%s tells of errors only", name());
  }
  AskForEvent();
  return absl::OkStatus();
}

void NvmeController::AskForEvent() {
  admin_->AskForEvent([this](uint32_t event) { events_.push_back(event); });
}

// Reading the log lets the controller tell of the next event of its kind, section 5.2.
void NvmeController::HearEvents() {
  const auto events = std::exchange(events_, {});
  for (const uint32_t event : events) {
    constexpr uint8_t kChangedNamespaces = 4;
    const auto log = static_cast<uint8_t>(event >> 16);
    log_.Log(Severity::kWarning, "%s tells of %s (event 0x%x)", name(), DescribeEvent(event),
             event);
    const auto read = admin_->GetLogPage(log, log == kChangedNamespaces ? 4096 : 512);
    if (!read.ok()) log_.Log(Severity::kDebug, "%s", Message(read.status()));
    AskForEvent();
  }
}

absl::StatusOr<NvmeNamespace> NvmeController::Identify(uint32_t nsid) {
  absl::StatusOr<NvmeNamespace> result;
  OnControllerThread([&] {
    result = given_up_ ? GivenUp() : IdentifyHere(nsid);
    if (result.ok()) namespaces_[nsid] = *result;
  });
  return result;
}

absl::StatusOr<NvmeNamespace> NvmeController::IdentifyHere(uint32_t nsid) {
  const auto answer = admin_->Identify(nvme::kCnsNamespace, nsid);
  // Of one that is not there all fields are zero, or the controller refuses.
  if (absl::IsInternal(answer.status())) return NoSuchNamespace(nsid);
  RINGSIDE_RETURN_IF_ERROR(answer.status());
  absl::StatusOr<NvmeNamespace> result = ParseNvmeNamespace(
      name(), nsid,
      {.most_bytes = most_bytes_, .volatile_cache = has_cache_, .discard = has_discard_}, *answer);
  return absl::IsNotFound(result.status()) ? NoSuchNamespace(nsid) : result;
}

absl::Status NvmeController::NoSuchNamespace(uint32_t nsid) {
  RINGSIDE_ASSIGN_OR_RETURN(const auto data, admin_->Identify(nvme::kCnsActiveNamespaces, 0));
  std::string there;
  for (size_t at = 0; at < data.size(); at += sizeof(uint32_t)) {
    const auto id = nvme::Field<uint32_t>(data, at);
    if (id == 0) break;
    there += absl::StrFormat("%s%d", there.empty() ? "" : ", ", id);
  }
  return absl::NotFoundError(absl::StrFormat("%s has no namespace %d; there is: %s", name(), nsid,
                                             there.empty() ? "none" : there));
}

}  // namespace ringside
