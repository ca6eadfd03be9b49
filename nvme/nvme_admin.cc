#include "nvme/nvme_admin.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <poll.h>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "nvme/nvme_names.h"

namespace ringside {
namespace {

constexpr uint32_t kPciCommand = 4;  // PCI Local Bus 3.0, section 6.2.2
constexpr uint32_t kPciMemorySpace = 2;
constexpr uint32_t kPciBusMaster = 4;
constexpr absl::Duration kRegisterPeriod = absl::Milliseconds(1);
// A controller whose CAP.TO says less takes longer all the same.
constexpr absl::Duration kLeastReadyTimeout = absl::Seconds(1);

}  // namespace

// Each part in pages of its own, as queues have to begin at one.
struct NvmeAdmin::Memory {
  alignas(nvme::kPageSize) std::array<nvme::Command, kEntries> submissions;
  alignas(nvme::kPageSize) std::array<nvme::Completion, kEntries> completions;
  alignas(nvme::kPageSize) std::array<std::byte, nvme::kPageSize> data;
};

NvmeAdmin::Memory& NvmeAdmin::memory() const {
  return *reinterpret_cast<Memory*>(buffer_.data());
}

absl::StatusOr<std::unique_ptr<NvmeAdmin>> NvmeAdmin::Create(const Parts& parts) {
  std::unique_ptr<NvmeAdmin> admin(new NvmeAdmin(parts));
  admin->JoinBus();
  admin->capabilities_ = nvme::Capabilities(admin->ReadRegister64(nvme::kCap));
  RINGSIDE_RETURN_IF_ERROR(admin->CheckUsable());
  RINGSIDE_ASSIGN_OR_RETURN(admin->buffer_, parts.space.Allocate(sizeof(Memory)));
  const uint32_t stride = admin->capabilities_.doorbell_stride();
  RINGSIDE_ASSIGN_OR_RETURN(std::byte * doorbells,
                            parts.device.MapBar(kBar, nvme::kDoorbells, 2 * uint64_t{stride}));
  auto* registers = reinterpret_cast<uint32_t*>(doorbells);
  // Of as many entries whatever MQES says: that is about the other queues (section 3.1.3.8).
  admin->ring_ = NvmeRing({.submissions = admin->memory().submissions.data(),
                           .completions = admin->memory().completions.data(),
                           .entries = kEntries,
                           .submission_doorbell = {registers, nullptr, nullptr},
                           .completion_doorbell = {registers + stride / 4, nullptr, nullptr}});
  return admin;
}

absl::Status NvmeAdmin::CheckUsable() const {
  if (status() == nvme::kGone) {
    return IsTooLate()
               ? Gone()
               : absl::UnavailableError(absl::StrFormat("%s does not answer", device_.name()));
  }
  if (!capabilities_.has_nvm_command_set() || capabilities_.min_page_shift() > 12) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: this controller knows no pages of 4 KiB or no NVM commands (CAP is "
                        "0x%x); use it through the kernel's driver",
                        device_.name(), capabilities_.cap));
  }
  if (!capabilities_.has_usable_queues()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: this controller's queues have one entry, so no command fits in (CAP "
                        "is 0x%x, of which MQES is 0); it is broken or set up wrongly",
                        device_.name(), capabilities_.cap));
  }
  return absl::OkStatus();
}

absl::Status NvmeAdmin::CheckCapabilities(uint16_t queue_entries) {
  const nvme::Capabilities now(ReadRegister64(nvme::kCap));
  if (status() == nvme::kGone) return Gone();
  if (now.doorbell_stride() == capabilities_.doorbell_stride() &&
      now.queue_entries(queue_entries) == queue_entries) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("it came back as another controller (CAP is 0x%x instead of 0x%x)", now.cap,
                      capabilities_.cap));
}

// Registers answer, and DMA is permitted.
void NvmeAdmin::JoinBus() {
  if (IsTooLate()) return;
  device_.WriteConfig(kPciCommand, 2,
                      device_.ReadConfig(kPciCommand, 2) | kPciMemorySpace | kPciBusMaster);
}

void NvmeAdmin::LeaveBus() {
  device_.WriteConfig(kPciCommand, 2, device_.ReadConfig(kPciCommand, 2) & ~kPciBusMaster);
}

bool NvmeAdmin::IsTooLate() const {
  const int64_t end_ns = shuts_down_ ? kNever : end_ns_.load(std::memory_order_relaxed);
  return MonotonicNs() >= std::min(deadline_ns_, end_ns);
}

absl::Status NvmeAdmin::Gone() const {
  if (!IsTooLate()) return absl::UnavailableError(absl::StrFormat("%s is gone", device_.name()));
  return absl::DeadlineExceededError(
      absl::StrFormat("%s answers too slowly: it has been waited for long enough", device_.name()));
}

uint32_t NvmeAdmin::ReadRegister(uint64_t offset) const {
  return IsTooLate() ? nvme::kGone : device_.ReadBar(kBar, offset);
}

void NvmeAdmin::WriteRegister(uint64_t offset, uint32_t value) {
  if (!IsTooLate()) device_.WriteBar(kBar, offset, value);
}

uint64_t NvmeAdmin::ReadRegister64(uint64_t offset) const {
  return ReadRegister(offset) | uint64_t{ReadRegister(offset + 4)} << 32;
}

void NvmeAdmin::WriteRegister64(uint64_t offset, uint64_t value) {
  WriteRegister(offset, static_cast<uint32_t>(value));
  WriteRegister(offset + 4, static_cast<uint32_t>(value >> 32));
}

// Section 3.5.1.
absl::Status NvmeAdmin::Enable() {
  ring_.Restart();
  next_id_ = 0;
  heard_ = nullptr;
  interrupt_.Clear();
  JoinBus();  // a reset of the function has ended that
  const uint32_t last = ring_.entries() - 1U;
  WriteRegister(nvme::kAqa, last << 16 | last);
  WriteRegister64(nvme::kAsq, buffer_.IovaOf(&memory().submissions));
  WriteRegister64(nvme::kAcq, buffer_.IovaOf(&memory().completions));
  WriteRegister(nvme::kCc, nvme::kCcEntrySizes | nvme::kCcEnable);
  return WaitForReady(true);
}

absl::Status NvmeAdmin::Disable() {
  if (status() == nvme::kGone) return Gone();
  const uint32_t configuration = ReadRegister(nvme::kCc);
  // CC.EN may not be cleared before the controller has come up; one that does not is reset below.
  WriteRegister(nvme::kCc, configuration & ~(nvme::kCcEnable | nvme::kCcShutdownMask));
  if (absl::Status status = WaitForReady(false); status.ok() || IsTooLate()) return status;
  RINGSIDE_RETURN_IF_ERROR(device_.Reset());
  return WaitForReady(false);
}

absl::Status NvmeAdmin::WaitForReady(bool ready) {
  const absl::Duration limit =
      std::max(absl::Milliseconds(capabilities_.timeout_ms()), kLeastReadyTimeout);
  const int64_t end_ns = MonotonicNs() + absl::ToInt64Nanoseconds(limit);
  while (true) {
    const bool over = MonotonicNs() > end_ns;
    const uint32_t now = status();
    if (now == nvme::kGone) return Gone();
    if (((now & nvme::kCstsReady) != 0) == ready) return absl::OkStatus();
    if (over || (ready && (now & nvme::kCstsFatal) != 0)) {
      return absl::DeadlineExceededError(absl::StrFormat("%s does not %s within %s (CSTS is 0x%x)",
                                                         device_.name(), ready ? "come up" : "stop",
                                                         absl::FormatDuration(limit), now));
    }
    absl::SleepFor(kRegisterPeriod);
  }
}

// Section 3.6.1.
void NvmeAdmin::ShutDown(absl::Duration limit) {
  shuts_down_ = true;
  deadline_ns_ = MonotonicNs() + absl::ToInt64Nanoseconds(limit);
  const uint32_t configuration = ReadRegister(nvme::kCc);
  if (configuration == nvme::kGone || (configuration & nvme::kCcEnable) == 0) return;
  WriteRegister(nvme::kCc, configuration | nvme::kCcShutdownNormal);
  for (uint32_t now = status(); now != nvme::kGone; now = status()) {
    if ((now & nvme::kCstsShutdownMask) == nvme::kCstsShutdownComplete) break;
    absl::SleepFor(kRegisterPeriod);
  }
  Disable().IgnoreError();  // the end of the device ends its DMA all the same
}

bool NvmeAdmin::TakeSubsystemReset() {
  const uint32_t now = status();
  if (now == nvme::kGone || (now & nvme::kCstsSubsystemReset) == 0) return false;
  WriteRegister(nvme::kCsts, nvme::kCstsSubsystemReset);
  return true;
}

absl::StatusOr<uint32_t> NvmeAdmin::Execute(nvme::Command command, absl::Duration limit) {
  next_id_ = static_cast<uint16_t>((next_id_ + 1) % kEventId);
  command.id = next_id_;
  ring_.Push(command);
  ring_.RingDoorbell();
  const int64_t end_ns = MonotonicNs() + absl::ToInt64Nanoseconds(limit);
  while (true) {
    nvme::CompletionEnd end;
    uint32_t result;
    // The answer to an earlier command comes too late for anyone. A ring's worth at a time: who
    // writes them without end is not to hold us here.
    for (unsigned left = kEntries; left > 0 && TakeCompletion(end, result); --left) {
      if (end.id != command.id) continue;
      const nvme::Status status = nvme::StatusOf(end.status);
      if ((status & nvme::kStatusCode) == 0) return result;
      return absl::InternalError(absl::StrFormat("%s refuses %s: %s", device_.name(),
                                                 nvme::AdminText(command.opcode),
                                                 nvme::StatusText(status)));
    }
    const int64_t left_ns = end_ns - MonotonicNs();
    if (status() == nvme::kGone) return Gone();
    if (left_ns <= 0) {
      return absl::DeadlineExceededError(
          absl::StrFormat("%s has not answered %s within %s", device_.name(),
                          nvme::AdminText(command.opcode), absl::FormatDuration(limit)));
    }
    // Not only by the interrupt: one that is lost or masked is to cost a moment, not the command.
    constexpr int64_t kMostMs = 10;
    pollfd interrupt = {.fd = interrupt_.fd(), .events = POLLIN};
    ::poll(&interrupt, 1, static_cast<int>(std::min(left_ns / 1'000'000 + 1, kMostMs)));
    interrupt_.Clear();
  }
}

// The next one. An event is heard on the way.
bool NvmeAdmin::TakeCompletion(nvme::CompletionEnd& end, uint32_t& result) {
  if (!ring_.Pop(end, &result)) return false;
  ring_.Acknowledge();
  if (end.id == kEventId) {
    const auto heard = std::exchange(heard_, nullptr);
    if (heard && (nvme::StatusOf(end.status) & nvme::kStatusCode) == 0) heard(result);
  }
  return true;
}

void NvmeAdmin::Poll() {
  nvme::CompletionEnd end;
  uint32_t result;
  for (unsigned left = kEntries; left > 0 && TakeCompletion(end, result); --left) {
  }
}

void NvmeAdmin::AskForEvent(std::function<void(uint32_t)> heard) {
  heard_ = std::move(heard);
  ring_.Push({.opcode = static_cast<uint8_t>(nvme::AdminOp::kAsyncEvent), .id = kEventId});
  ring_.RingDoorbell();
}

absl::StatusOr<std::span<const std::byte>> NvmeAdmin::Identify(uint32_t what, uint32_t nsid) {
  RINGSIDE_RETURN_IF_ERROR(Execute({.opcode = static_cast<uint8_t>(nvme::AdminOp::kIdentify),
                                    .nsid = nsid,
                                    .prp1 = buffer_.IovaOf(&memory().data),
                                    .cdw10 = what})
                               .status());
  return CopyData(nvme::kIdentifyBytes);
}

absl::StatusOr<std::span<const std::byte>> NvmeAdmin::GetLogPage(uint8_t log, uint32_t bytes) {
  RINGSIDE_RETURN_IF_ERROR(Execute({.opcode = static_cast<uint8_t>(nvme::AdminOp::kGetLogPage),
                                    .nsid = 0xffffffff,
                                    .prp1 = buffer_.IovaOf(&memory().data),
                                    .cdw10 = log | (bytes / 4 - 1) << 16})
                               .status());
  return CopyData(bytes);
}

std::span<const std::byte> NvmeAdmin::CopyData(size_t bytes) {
  std::memcpy(data_.data(), memory().data.data(), bytes);
  return std::span(data_).first(bytes);
}

absl::StatusOr<uint32_t> NvmeAdmin::SetFeature(uint32_t feature, uint32_t value) {
  return Execute({.opcode = static_cast<uint8_t>(nvme::AdminOp::kSetFeatures),
                  .cdw10 = feature,
                  .cdw11 = value});
}

}  // namespace ringside
