// What a virtio-pci function saves, and what it takes back.
#include <cstring>
#include <utility>

#include "base/status.h"
#include "devices/state_check.h"
#include "devices/virtio_pci.h"

namespace ringside {

absl::StatusOr<VirtioPci::State> VirtioPci::Save() const {
  RINGSIDE_ASSIGN_OR_RETURN(VirtioTransport::State transport, transport_->Save());
  return State{
      .config = SaveConfig(),
      .msix = msix_->Save(),
      .transport = std::move(transport),
      .device_feature_select = device_feature_select_.load(std::memory_order_relaxed),
      .driver_feature_select = driver_feature_select_.load(std::memory_order_relaxed),
      .queue_select = queue_select_.load(std::memory_order_relaxed),
  };
}

absl::Status VirtioPci::Check(const State& state) const {
  RINGSIDE_RETURN_IF_ERROR(Of(name_, CheckConfig(state.config)));
  RINGSIDE_RETURN_IF_ERROR(Of(name_, msix_->Check(state.msix)));
  // The one register that is in two places.
  uint16_t control;
  std::memcpy(&control, &state.config.bytes[msix_capability_ + Msix::kControlOffset],
              sizeof control);
  control &= Msix::kEnable | Msix::kFunctionMask;
  if (control != state.msix.control) {
    return BadInput("%s: the saved MSI-X message control is %#x; configuration space has %#x",
                    name_, state.msix.control, control);
  }
  return transport_->Check(state.transport);
}

absl::Status VirtioPci::Restore(const State& state) {
  RINGSIDE_RETURN_IF_ERROR(Check(state));
  RINGSIDE_RETURN_IF_ERROR(RestoreConfig(state.config));
  RINGSIDE_RETURN_IF_ERROR(msix_->Restore(state.msix));
  device_feature_select_.store(state.device_feature_select, std::memory_order_relaxed);
  driver_feature_select_.store(state.driver_feature_select, std::memory_order_relaxed);
  queue_select_.store(state.queue_select, std::memory_order_relaxed);
  // The device comes last: with its vectors connected, no interrupt of it goes astray.
  ApplyMsixControl();
  mastered_bus_ = MastersBus();
  return transport_->Restore(state.transport);
}

}  // namespace ringside
