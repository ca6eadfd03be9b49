#include "vmm/guest_devices.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/status.h"
#include "base/sync.h"

namespace ringside {
namespace {

constexpr absl::Duration kStopPatience = absl::Seconds(1);
// Its queues are down by then: a task or two are left.
constexpr absl::Duration kResetPatience = absl::Seconds(1);

}  // namespace

absl::Status GuestDevices::Plug(std::string name, std::string path, uint32_t slot,
                                std::unique_ptr<VirtioDevice> device) {
  std::string label = path.empty() ? name : absl::StrFormat("%s (%s)", name, path);
  RINGSIDE_ASSIGN_OR_RETURN(auto pci, VirtioPci::Create(*device, label, platform_, log_));
  pci->transport().ReportTo(events_.Of(name));
  RINGSIDE_RETURN_IF_ERROR(pci_host_.Add(*pci, slot));
  auto* const queued = dynamic_cast<QueuedDevice*>(device.get());
  functions_.push_back({.name = std::move(name),
                        .path = std::move(path),
                        .label = std::move(label),
                        .device = std::move(device),
                        .pci = std::move(pci),
                        .queued = queued});
  return absl::OkStatus();
}

absl::StatusOr<DevicesState> GuestDevices::Save() const {
  DevicesState state = {.serial = {}, .pci_host = pci_host_.Save(), .functions = {}};
  for (const Function& function : functions_) {
    function.pci->transport().ResetEnds(kResetPatience);
    RINGSIDE_ASSIGN_OR_RETURN(VirtioPci::State pci, function.pci->Save());
    state.functions.push_back({.name = function.name, .pci = std::move(pci)});
  }
  return state;
}

absl::Status GuestDevices::Check(const DevicesState& state) const {
  RINGSIDE_RETURN_IF_ERROR(Serial::Check(state.serial));
  RINGSIDE_RETURN_IF_ERROR(pci_host_.Check(state.pci_host));
  if (state.functions.size() != functions_.size()) {
    return BadInput("the saved machine has %d virtio devices; this one has %d",
                    state.functions.size(), functions_.size());
  }
  for (size_t i = 0; i < functions_.size(); ++i) {
    const std::string& name = functions_[i].name;
    if (state.functions[i].name != name) {
      return BadInput("virtio device %d of the saved machine is '%s'; here it is '%s'", i,
                      state.functions[i].name, name);
    }
    RINGSIDE_RETURN_IF_ERROR(functions_[i].pci->Check(state.functions[i].pci));
  }
  return absl::OkStatus();
}

absl::Status GuestDevices::Restore(const DevicesState& state) {
  RINGSIDE_RETURN_IF_ERROR(Check(state));
  for (size_t i = 0; i < functions_.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(functions_[i].pci->Restore(state.functions[i].pci));
  }
  return pci_host_.Restore(state.pci_host);
}

void GuestDevices::Rest() {
  for (const Function& function : functions_) {
    Event rests;
    TaskOf notify([&rests] { rests.Notify(); });
    function.device->Pause(notify);
    rests.Wait();
  }
}

void GuestDevices::Begin() {
  for (const Function& function : functions_) function.device->Resume();
}

void GuestDevices::Reset() {
  for (const Function& function : functions_) function.pci->transport().ResetAndWait();
}

void GuestDevices::BeginStop() {
  for (const Function& function : functions_) {
    function.pci->transport().SetStatus(0);
    function.device->Cancel();
  }
}

void GuestDevices::Stop() {
  const absl::Time patience_ends = absl::Now() + kStopPatience;
  for (const Function& function : functions_) {
    if (!function.pci->transport().ResetEnds(patience_ends - absl::Now())) LogWaitingFor(function);
  }
  Reset();
}

void GuestDevices::LogWaitingFor(const Function& function) const {
  const uint64_t in_flight = function.queued != nullptr ? function.queued->in_flight() : 0;
  if (in_flight == 0) {
    log_.Log(Severity::kWarning,
             "%s: its I/O thread waits for the storage or server of another disk; the machine ends "
             "when that has answered",
             function.label);
    return;
  }
  log_.Log(
      Severity::kWarning,
      "%s: its storage has %d requests and does not give them back; the machine ends when it has "
      "(is the file system frozen, or the storage gone?)",
      function.label, in_flight);
}

}  // namespace ringside
