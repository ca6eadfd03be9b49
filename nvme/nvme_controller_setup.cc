// How a controller is brought up, and what it tells of itself.

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/slow_notice.h"
#include "base/status.h"
#include "nvme/nvme_controller.h"

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
  RINGSIDE_ASSIGN_OR_RETURN(admin_, NvmeAdmin::Create({.device = *device_,
                                                       .space = space_,
                                                       .interrupt = interrupts_[0],
                                                       .timeout = settings_.timeout,
                                                       .deadline_ns = open_until_ns_,
                                                       .end_ns = watch_.end_ns}));
  RINGSIDE_RETURN_IF_ERROR(admin_->Disable());
  queue_entries_ = admin_->capabilities().queue_entries(NvmeQueue::kEntries);
  RINGSIDE_RETURN_IF_ERROR(admin_->Enable());
  admin_->TakeSubsystemReset();
  RINGSIDE_ASSIGN_OR_RETURN(const NvmeFeatures features, IdentifyFeatures());
  most_bytes_ = features.most_bytes;
  has_cache_ = features.volatile_cache;
  has_discard_ = features.discard;
  has_shadows_ = features.doorbell_buffers;
  RINGSIDE_ASSIGN_OR_RETURN(queue_count_, AskForQueues());
  RINGSIDE_RETURN_IF_ERROR(MapDoorbells());
  RINGSIDE_RETURN_IF_ERROR(SetFeatures());
  admin_->SetDeadline(NvmeAdmin::kNever);
  return absl::OkStatus();
}

// Once more. What it told at first is taken to hold.
absl::Status NvmeController::BringUp() {
  RINGSIDE_RETURN_IF_ERROR(admin_->Enable());
  if (admin_->TakeSubsystemReset() && has_cache_) LoseCache("the whole subsystem was reset");
  RINGSIDE_ASSIGN_OR_RETURN(const uint16_t count, AskForQueues());
  if (count < queue_count_) {
    return absl::UnavailableError(absl::StrFormat("it has only %d queues after the reset", count));
  }
  return SetFeatures();
}

absl::StatusOr<NvmeFeatures> NvmeController::IdentifyFeatures() {
  RINGSIDE_ASSIGN_OR_RETURN(const auto data, admin_->Identify(nvme::kCnsController, 0));
  NvmeFeatures features = ParseNvmeController(data);
  features.most_bytes = std::min(features.most_bytes, kMostPrpBytes);
  return features;
}

// As many as there are vectors for, section 5.27.1.5.
absl::StatusOr<uint16_t> NvmeController::AskForQueues() {
  const auto wanted = static_cast<uint32_t>(interrupts_.size() - 1);
  RINGSIDE_ASSIGN_OR_RETURN(
      const uint32_t granted,
      admin_->SetFeature(nvme::kFeatureQueueCount, (wanted - 1) << 16 | (wanted - 1)));
  return static_cast<uint16_t>(std::min({wanted, (granted & 0xffff) + 1, (granted >> 16) + 1}));
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
    log_limit_.Log(Severity::kDebug, "%s tells of errors only", name());
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
    log_limit_.Log(Severity::kWarning, "%s tells of %s (event 0x%x)", name(), DescribeEvent(event),
                   event);
    const auto read = admin_->GetLogPage(log, log == kChangedNamespaces ? 4096 : 512);
    // What has no answer keeps its place in the queue: only a reset gives that back.
    if (absl::IsDeadlineExceeded(read.status())) {
      return Recover(std::string(Message(read.status())));
    }
    if (!read.ok()) log_limit_.Log(Severity::kDebug, "%s", Message(read.status()));
    AskForEvent();
  }
}

absl::StatusOr<NvmeNamespace> NvmeController::Identify(uint32_t nsid) {
  const SlowNotice notice(log_, absl::StrFormat("%s to describe namespace %d, %s at most", name(),
                                                nsid, absl::FormatDuration(settings_.open_limit)));
  absl::StatusOr<NvmeNamespace> result;
  OnControllerThread([&] {
    if (given_up_) {
      result = GivenUp();
      return;
    }
    const int64_t limit_ns = MonotonicNs() + absl::ToInt64Nanoseconds(settings_.open_limit);
    admin_->SetDeadline(std::min(limit_ns, recover_until_ns_));
    result = IdentifyHere(nsid);
    admin_->SetDeadline(recover_until_ns_);
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
  constexpr size_t kMostNamed = 16;  // of up to 1024
  std::string there;
  for (size_t i = 0; i < data.size() / sizeof(uint32_t); ++i) {
    const auto id = nvme::Field<uint32_t>(data, i * sizeof(uint32_t));
    if (id == 0) break;
    there += i == kMostNamed ? ", ..." : absl::StrFormat("%s%d", i == 0 ? "" : ", ", id);
    if (i == kMostNamed) break;
  }
  return absl::NotFoundError(absl::StrFormat("%s has no namespace %d; there is: %s", name(), nsid,
                                             there.empty() ? "none" : there));
}

}  // namespace ringside
