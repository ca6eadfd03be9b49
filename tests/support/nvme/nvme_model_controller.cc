#include "tests/support/nvme/nvme_model_controller.h"

#include <array>
#include <cstring>

#include "tests/support/nvme/nvme_model_identify.h"
#include "tests/support/nvme/nvme_model_spec.h"

namespace ringside::testing {
namespace {

using Kind = NvmeModelFault::Kind;

// Configuration space, PCI Local Bus 3.0, section 6.1.
constexpr uint32_t kIdentity = 0x00101b36;
constexpr uint32_t kClass = 0x01080200;
constexpr uint16_t kMemorySpace = 1 << 1;
constexpr uint16_t kBusMaster = 1 << 2;
constexpr uint16_t kInterruptDisable = 1 << 10;

constexpr uint32_t kPageSizeMask = 0xf << 7;  // CC.MPS
constexpr uint32_t kEntrySizesMask = 0xff << 16;
constexpr uint32_t kCommandSetMask = 7 << 4;
constexpr uint32_t kQueueSize = 0xfff;

uint32_t HalfOf(uint64_t value, bool high) {
  return static_cast<uint32_t>(high ? value >> 32 : value);
}

}  // namespace

NvmeModelController::NvmeModelController(const NvmeModelConfig& config) : config_(config) {
  if (!config_.returns) return;
  if (auto gone = EventFd::Create(); gone.ok()) gone_ = *std::move(gone);
}

bool NvmeModelController::Turn() {
  if (is_gone_) return false;
  bool found = !follows_cc_ && FollowCc();
  if (Runs()) {
    found |= queues_.LookAtDoorbells();
    found |= work_.Run();
    if (queues_.has_errors()) {
      for (const auto error : queues_.TakeErrors()) {
        admin_.SendEvent(kEventError | uint32_t{error} << 8 | kLogErrors << 16);
      }
    }
    if (queues_.broken()) SetFatal();
    if (const auto end = work_.TakeEnd()) {
      if (*end == Kind::kGone) {
        Unplug();
      } else {
        SetFatal();
      }
    }
  } else if (!is_enabled()) {
    LookForStrangers();
    queues_.TakeErrors();
  }
  vectors_.Deliver();
  return found;
}

uint32_t NvmeModelController::ReadConfig(uint32_t offset, uint32_t size) const {
  const uint32_t all = size == 4 ? nvme::kGone : (1U << (8 * size)) - 1;
  if (is_gone_) return all;
  const std::array<uint32_t, 4> registers = {kIdentity, command_, kClass, 0};
  const uint32_t value = offset / 4 < registers.size() ? registers[offset / 4] : 0;
  return value >> (8 * (offset % 4)) & all;
}

void NvmeModelController::WriteConfig(uint32_t offset, uint32_t size, uint32_t value) {
  if (is_gone_ || offset != 4 || size == 1) return;
  command_ = value & (kMemorySpace | kBusMaster | kInterruptDisable);
  memory_.SetBusMaster((command_ & kBusMaster) != 0);
}

uint32_t NvmeModelController::ReadRegister(uint64_t offset) const {
  if (is_gone_) return nvme::kGone;
  const bool high = offset % 8 != 0;
  switch (offset) {
    case nvme::kCap:
    case nvme::kCap + 4:
      return HalfOf(NvmeModelCap(config_), high);
    case nvme::kVersion:
      return 0x10400;
    case nvme::kCc:
      return cc_;
    case nvme::kCsts:
      return csts_;
    case nvme::kAqa:
      return aqa_;
    case nvme::kAsq:
    case nvme::kAsq + 4:
      return HalfOf(asq_, high);
    case nvme::kAcq:
    case nvme::kAcq + 4:
      return HalfOf(acq_, high);
    default:
      return 0;
  }
}

void NvmeModelController::WriteRegister(uint64_t offset, uint32_t value) {
  if (is_gone_) return;
  const bool high = offset % 8 != 0;
  if (offset >= nvme::kDoorbells) {
    queues_.WriteRegister(offset - nvme::kDoorbells, value);
    return;
  }
  switch (offset) {
    case nvme::kCc:
      WriteCc(value);
      break;
    case nvme::kCsts:
      csts_ &= ~(value & nvme::kCstsSubsystemReset);
      break;
    case nvme::kAqa:
      if (is_enabled()) record_.Violate("AQA is written while the controller is enabled");
      aqa_ = value;
      break;
    case nvme::kAsq:
    case nvme::kAsq + 4:
      WriteQueueAddress(asq_, high, value);
      break;
    case nvme::kAcq:
    case nvme::kAcq + 4:
      WriteQueueAddress(acq_, high, value);
      break;
    default:
      // Interrupt masks among them: not with MSI-X, section 3.1.3.3.
      record_.Violate("register %#x must not be written", offset);
  }
}

void NvmeModelController::WriteQueueAddress(uint64_t& address, bool high, uint32_t value) {
  if (is_enabled()) record_.Violate("ASQ or ACQ is written while the controller is enabled");
  const unsigned shift = high ? 32 : 0;
  address = (address & ~(uint64_t{0xffffffff} << shift)) | uint64_t{value} << shift;
}

void NvmeModelController::WriteCc(uint32_t value) {
  const bool was_enabled = is_enabled();
  cc_ = value;
  follows_cc_ = false;
  if (is_enabled() && !was_enabled) Enable();
  if (!is_enabled() && was_enabled) {
    if (ready_ == NvmeModelReady::kNeverCleared) {
      memory_.SetStuck(true);
      return;
    }
    ForgetAll();
    csts_ &= nvme::kCstsReady | nvme::kCstsSubsystemReset;
  }
}

void NvmeModelController::LookForStrangers() {
  if (lost_power_) return queues_.ClearRegisters();
  queues_.LookForStrangers("the controller is disabled");
}

void NvmeModelController::Enable() {
  if (is_ready()) {
    record_.Violate("CC.EN is set before CSTS.RDY was cleared");
    return;
  }
  csts_ &= ~nvme::kCstsShutdownMask;
  LookForStrangers();
  lost_power_ = false;
  queues_.TakeErrors();
  const uint32_t page_shift = (cc_ & kPageSizeMask) >> 7;
  memory_.SetPageSize(uint64_t{nvme::kPageSize} << page_shift);
  const char* wrong = nullptr;
  if (page_shift < config_.min_page || page_shift > config_.min_page + 4U) wrong = "CC.MPS";
  if ((cc_ & kEntrySizesMask) != nvme::kCcEntrySizes) wrong = "CC.IOSQES or CC.IOCQES";
  if ((cc_ & kCommandSetMask) != 0) wrong = "CC.CSS";
  if ((asq_ | acq_) % memory_.page_size() != 0) wrong = "ASQ or ACQ";
  const uint32_t sq_size = (aqa_ & kQueueSize) + 1;
  const uint32_t cq_size = (aqa_ >> 16 & kQueueSize) + 1;
  if (sq_size < 2 || cq_size < 2) wrong = "AQA";
  if (wrong != nullptr) {
    record_.Violate("%s is wrong when the controller is enabled", wrong);
    SetFatal();
    return;
  }
  NvmeModelCompletionQueue completions;
  completions.size = cq_size;
  completions.base = acq_;
  completions.interrupts = true;
  queues_.AddCompletion(completions);
  queues_.AddSubmission(0, sq_size, asq_, 0);
}

bool NvmeModelController::FollowCc() {
  follows_cc_ = true;
  if (is_enabled() && ready_ != NvmeModelReady::kNeverSet && (csts_ & nvme::kCstsFatal) == 0) {
    csts_ |= nvme::kCstsReady;
  }
  if (!is_enabled() && ready_ != NvmeModelReady::kNeverCleared) {
    if (memory_.is_stuck()) ForgetAll();
    csts_ &= ~nvme::kCstsReady;
  }
  if ((cc_ & nvme::kCcShutdownMask) != 0 && (csts_ & nvme::kCstsShutdownMask) == 0) {
    io_.FlushAll();
    csts_ |= nvme::kCstsShutdownComplete;
  }
  return true;
}

void NvmeModelController::ForgetAll() {
  work_.Reset();
  queues_.Reset();
  admin_.Reset();
  memory_.SetStuck(false);
  io_.SetWriteCache(config_.write_cache);  // features are as they were at first
}

void NvmeModelController::ResetRegisters() {
  cc_ = aqa_ = 0;
  asq_ = acq_ = 0;
  csts_ &= nvme::kCstsSubsystemReset;
  follows_cc_ = true;
}

void NvmeModelController::SetReady(NvmeModelReady ready) {
  ready_ = ready;
  follows_cc_ = false;
}

absl::Status NvmeModelController::ResetFunction() {
  ++record_.counters.resets;
  if (!config_.function_reset) {
    return absl::FailedPreconditionError(config_.name + ": has no function reset");
  }
  if (reset_fails_ || is_gone_) return absl::UnavailableError(config_.name + ": reset failed");
  if (gone_) gone_->Clear();
  ForgetAll();
  ResetRegisters();
  return absl::OkStatus();
}

void NvmeModelController::Detached() {
  WriteConfig(4, 2, 0);
  if (!ResetFunction().ok()) ForgetAll();  // without the bus it can do nothing of it
  memory_.UnmapAll();
  vectors_.Clear();
  queues_.RenewRegisters();
}

void NvmeModelController::PowerCut(std::optional<uint64_t> seed) {
  io_.PowerCut(seed);
  ForgetAll();
  ResetRegisters();
  csts_ = nvme::kCstsSubsystemReset;
  lost_power_ = true;
  WriteConfig(4, 2, 0);
}

void NvmeModelController::Unplug() {
  ForgetAll();
  is_gone_ = true;
  if (gone_) gone_->Signal();
}

void NvmeModelController::PlugIn() {
  is_gone_ = false;
  command_ = 0;
  queues_.ClearRegisters();  // what was written while it was away went nowhere
  ResetRegisters();
}

}  // namespace ringside::testing
