#include "nvme/nvme_device.h"

#include <optional>

#include "base/log_limit.h"
#include "base/status.h"
#include "nvme/nvme_controller.h"

namespace ringside {

struct NvmeDevice::Parts {
  std::shared_ptr<NvmeController> controller;
  NvmeNamespace ns;
  const IovaOffsets* offsets = nullptr;
  std::optional<LogLimit> failures;
  // By queue, of which one channel has one at a time.
  std::array<NvmeCounters, NvmeController::kMaxQueues + 1> counters;
};

NvmeDevice::NvmeDevice(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

NvmeDevice::~NvmeDevice() = default;

absl::StatusOr<std::unique_ptr<NvmeDevice>> NvmeDevice::Create(
    std::shared_ptr<NvmeController> controller, const NvmeConfig& config) {
  auto parts = std::make_unique<Parts>();
  RINGSIDE_ASSIGN_OR_RETURN(parts->ns, controller->Identify(config.namespace_id));
  parts->ns.info.read_only = config.read_only;
  parts->failures.emplace(controller->logger());
  parts->controller = std::move(controller);
  return std::unique_ptr<NvmeDevice>(new NvmeDevice(std::move(parts)));
}

const BlockInfo& NvmeDevice::info() const {
  return parts_->ns.info;
}

absl::Status NvmeDevice::MapMemory(std::span<const MemoryRegion> regions) {
  RINGSIDE_ASSIGN_OR_RETURN(parts_->offsets, parts_->controller->MapMemory(regions));
  return absl::OkStatus();
}

void NvmeDevice::EndSoon() {
  parts_->controller->EndSoon();
}

absl::Status NvmeDevice::Resize(std::optional<uint64_t> size) {
  RINGSIDE_RETURN_IF_ERROR(CheckNamespaceResize(size));
  RINGSIDE_ASSIGN_OR_RETURN(const NvmeNamespace now, parts_->controller->Identify(parts_->ns.id));
  return GrowNamespace(parts_->ns, now);
}

absl::StatusOr<std::unique_ptr<BlockChannel>> NvmeDevice::Open(IoThread& io_thread) {
  if (parts_->offsets == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s reaches no memory yet; call MapMemory", parts_->controller->name()));
  }
  RINGSIDE_ASSIGN_OR_RETURN(NvmeQueue * queue, parts_->controller->OpenQueue(io_thread));
  return NvmeChannel::Create({.io_thread = io_thread,
                              .queue = *queue,
                              .ns = parts_->ns,
                              .counters = parts_->counters[queue->id()],
                              .offsets = *parts_->offsets,
                              .cache_lost = parts_->controller->cache_lost(),
                              .name = parts_->controller->name(),
                              .log = *parts_->failures});
}

BlockStatistics NvmeDevice::Statistics() const {
  BlockStatistics statistics = {.engine = "nvme"};
  for (const NvmeCounters& counters : parts_->counters) counters.AddTo(statistics.counters);
  statistics.counters.push_back({"resets", parts_->controller->resets()});
  // Completions that nobody had noticed by the time-out.
  statistics.counters.push_back({"lost_interrupts", parts_->controller->lost_interrupts()});
  return statistics;
}

}  // namespace ringside
