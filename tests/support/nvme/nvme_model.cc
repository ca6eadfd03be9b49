#include "tests/support/nvme/nvme_model.h"

#include <algorithm>

#include "tests/support/nvme/nvme_model_machine.h"
#include "tests/support/wait.h"

namespace ringside::testing {
namespace {

using Locked = NvmeModelMachine::Locked;

// The handle.
class NvmeModelDevice final : public PciDevice {
 public:
  explicit NvmeModelDevice(NvmeModelMachine& machine)
      : machine_(machine),
        name_(Locked(machine_)->config().name),
        ranges_(Locked(machine_)->config().iova_ranges) {}
  ~NvmeModelDevice() override {
    Locked(machine_)->Detached();
    machine_.SetAttached(false);
  }

  const std::string& name() const override { return name_; }

  uint32_t ReadConfig(uint32_t offset, uint32_t size) override {
    return Locked(machine_)->ReadConfig(offset, size);
  }
  void WriteConfig(uint32_t offset, uint32_t size, uint32_t value) override {
    Locked(machine_)->WriteConfig(offset, size, value);
  }

  uint32_t ReadBar(int bar, uint64_t offset) override {
    return bar == 0 ? Locked(machine_)->ReadRegister(offset) : nvme::kGone;
  }
  void WriteBar(int bar, uint64_t offset, uint32_t value) override {
    if (bar == 0) Locked(machine_)->WriteRegister(offset, value);
  }
  absl::StatusOr<std::byte*> MapBar(int bar, uint64_t offset, uint64_t size) override {
    const Locked locked(machine_);
    const uint64_t end = nvme::kDoorbells + locked->queues().registers_size();
    if (bar != 0 || offset < nvme::kDoorbells || offset > end || size > end - offset) {
      return BadInput(
          "%s: only doorbells are memory, %#x to %#x of BAR 0; not %d bytes at %#x of %d", name_,
          nvme::kDoorbells, end - 1, size, offset, bar);
    }
    return reinterpret_cast<std::byte*>(locked->queues().registers()) + offset - nvme::kDoorbells;
  }

  std::span<const IovaRange> iova_ranges() const override { return ranges_; }
  absl::Status MapDma(const DmaMapping& mapping) override {
    return Locked(machine_)->memory().Map(mapping);
  }
  absl::Status UnmapDma(uint64_t iova, uint64_t size) override {
    return Locked(machine_)->memory().Unmap(iova, size);
  }

  uint32_t vectors() const override { return Locked(machine_)->config().vectors; }
  absl::Status SetVectors(std::span<const int> eventfds) override {
    return Locked(machine_)->vectors().Set(eventfds);
  }
  void MaskVector(uint32_t vector) override { Locked(machine_)->vectors().Mask(vector); }
  bool UnmaskVector(uint32_t vector) override { return Locked(machine_)->vectors().Unmask(vector); }

  absl::Status Reset() override { return Locked(machine_)->ResetFunction(); }
  int gone_fd() const override { return Locked(machine_)->gone_fd(); }

 private:
  NvmeModelMachine& machine_;
  const std::string name_;
  const std::vector<IovaRange> ranges_;
};

}  // namespace

NvmeModel::NvmeModel(const NvmeModelConfig& config)
    : machine_(std::make_unique<NvmeModelMachine>(config)) {}

NvmeModel::~NvmeModel() = default;

std::unique_ptr<PciDevice> NvmeModel::Attach() {
  if (!machine_->SetAttached(true)) return nullptr;
  return std::make_unique<NvmeModelDevice>(*machine_);
}

int NvmeModel::bar_fd() const {
  return Locked(*machine_)->queues().bar().fd();
}

void NvmeModel::Add(const NvmeModelFault& fault) {
  Locked(*machine_)->work().faults().push_back(fault);
}

void NvmeModel::ClearFaults() {
  Locked(*machine_)->work().faults().clear();
}

size_t NvmeModel::held() const {
  return Locked(*machine_)->work().held();
}

bool NvmeModel::WaitForHeld(size_t count) const {
  return SpinUntil([&] { return held() >= count; });
}

void NvmeModel::Release() {
  const Locked locked(*machine_);
  locked->work().Release();
  locked->vectors().Deliver();
}

void NvmeModel::SetAbort(NvmeModelAbort abort) {
  Locked(*machine_)->work().SetAbort(abort);
}

void NvmeModel::SetReady(NvmeModelReady ready) {
  Locked(*machine_)->SetReady(ready);
}

void NvmeModel::FailFunctionReset(bool fail) {
  Locked(*machine_)->FailFunctionReset(fail);
}

void NvmeModel::SetFatal() {
  Locked(*machine_)->SetFatal();
}

void NvmeModel::PlugIn() {
  Locked(*machine_)->PlugIn();
}

void NvmeModel::AnnounceBlocks(uint32_t nsid, uint64_t blocks) {
  Locked(*machine_)->AnnounceBlocks(nsid, blocks);
}

void NvmeModel::BecomeLike(const NvmeModelConfig& other) {
  Locked(*machine_)->BecomeLike(other);
}

size_t NvmeModel::mappings() const {
  return Locked(*machine_)->memory().count();
}

void NvmeModel::Unplug() {
  Locked(*machine_)->Unplug();
}

bool NvmeModel::is_gone() const {
  return Locked(*machine_)->is_gone();
}

void NvmeModel::SendAsyncEvent(uint32_t event) {
  const Locked locked(*machine_);
  locked->admin().SendEvent(event);
  locked->vectors().Deliver();
}

void NvmeModel::PowerCut(std::optional<uint64_t> seed) {
  Locked(*machine_)->PowerCut(seed);
}

std::vector<std::byte> NvmeModel::Durable(uint32_t nsid) const {
  const Locked locked(*machine_);
  NvmeModelMedia* const media = locked->io().media(nsid);
  return media == nullptr ? std::vector<std::byte>() : media->Durable();
}

std::vector<std::byte> NvmeModel::Contents(uint32_t nsid) const {
  const Locked locked(*machine_);
  NvmeModelMedia* const media = locked->io().media(nsid);
  return media == nullptr ? std::vector<std::byte>() : media->Contents();
}

void NvmeModel::SetContents(uint32_t nsid, uint64_t offset, const std::vector<std::byte>& bytes) {
  const Locked locked(*machine_);
  NvmeModelMedia& media = *locked->io().media(nsid);
  std::copy(bytes.begin(), bytes.end(), media.contents(offset));
  media.Written(offset, bytes.size(), /*durable=*/true);
}

std::vector<std::string> NvmeModel::violations() const {
  return Locked(*machine_)->record().violations;
}

std::vector<NvmeModelExecuted> NvmeModel::log() const {
  return Locked(*machine_)->record().log;
}

size_t NvmeModel::executed(nvme::IoOp op, uint64_t start, uint32_t nsid) const {
  const Locked locked(*machine_);
  const auto& log = locked->record().log;
  return static_cast<size_t>(std::count_if(log.begin(), log.end(), [&](const auto& one) {
    return one.queue != 0 && one.opcode == static_cast<uint8_t>(op) && one.nsid == nsid &&
           one.start == start && one.status == nvme::kSuccess;
  }));
}

void NvmeModel::ClearLog() {
  Locked(*machine_)->record().log.clear();
}

NvmeModelCounters NvmeModel::counters() const {
  return Locked(*machine_)->record().counters;
}

}  // namespace ringside::testing
