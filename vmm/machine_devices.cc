// The devices of a machine: how they are made, saved, and made anew from a state.
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"
#include "devices/virtio_rng.h"
#include "vmm/device_ids.h"
#include "vmm/machine.h"
#include "vmm/own_devices.h"
#include "vmm/pci_slots.h"

namespace ringside {

absl::Status Machine::Internals::AddDevices() {
  RINGSIDE_ASSIGN_OR_RETURN(events_, EventQueue::Create(config_.events, *io_thread_));
  pauser_ = std::make_unique<Pauser>(*io_thread_, *events_);
  ConsoleConfig console = config_.console;
  if (!console.detached) console.detached = [this] { End({EndKind::kStopped, ""}); };
  console_ = std::make_unique<Console>(console, serial_interrupt_, *io_thread_, log_,
                                       [this] { events_->Put(EventKind::kConsoleSpoke); });
  pauser_->Add(*console_);
  RINGSIDE_RETURN_IF_ERROR(vm_->AssignIrqFd(serial_interrupt_, kCom1Irq));
  power_button_ = std::make_unique<PowerButton>(
      PowerButton::Parts{.interrupt = power_interrupt_,
                         .io_thread = *io_thread_,
                         .events = *events_,
                         .log = log_,
                         .pull_plug = [this] { End({EndKind::kStopped, ""}); }});
  RINGSIDE_RETURN_IF_ERROR(vm_->AssignIrqFd(power_interrupt_, kPowerButtonPin));
  if (config_.vsock.has_value()) WatchAgent(*config_.vsock);
  interrupt_router_ = std::make_unique<InterruptRouter>(*vm_, log_);
  RINGSIDE_RETURN_IF_ERROR(disks_->MapMemory(*memory_));
  RINGSIDE_ASSIGN_OR_RETURN(devices_, MakeDevices());
  for (const GuestDevices::Function& function : devices_->functions()) {
    queues_->Add(function);
    pauser_->Add(*function.device);
  }
  if (!disks_->OnHostDevice(0).empty()) {
    disk_growth_ = DiskGrowth::Create(
        {.disks = *disks_, .queues = *queues_, .io_thread = *io_thread_, .log = log_});
  }
  memory_slots_ =
      std::make_unique<MemorySlots>(*vm_, static_cast<uint32_t>(memory_->regions().size()), log_);
  return assigned_.Plug(*memory_, *interrupt_router_, *memory_slots_, devices_->pci_host());
}

void Machine::Internals::WatchAgent(const VsockConfig& vsock) {
  AgentWatch::Config watch = {.path = vsock.path, .renews = from_ != nullptr, .log = log_};
  if (vsock.watch_agent && config_.events != nullptr) {
    watch.told = [this](bool up) {
      events_->Put(up ? EventKind::kAgentUp : EventKind::kAgentLost);
    };
  }
  if (!watch.told && !watch.renews) return;
  const bool renews = watch.renews;
  agent_watch_ = std::make_unique<AgentWatch>(std::move(watch), *io_thread_);
  // It waits at the socket, which is there by now, so that it is before whoever comes later.
  if (renews) agent_watch_->Begin();
}

absl::StatusOr<std::unique_ptr<GuestDevices>> Machine::Internals::MakeDevices() {
  auto devices = std::make_unique<GuestDevices>(*interrupt_router_, *events_, log_);
  auto& [memory, ports] = devices->buses();
  PciHost& pci_host = devices->pci_host();
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kCom1Port, Serial::kSize, console_->serial()));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kSleepControlPort, SleepRegisters::kSize, sleep_registers_));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kResetPort, ResetPort::kSize, reset_port_));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kPanicPort, PanicPort::kSize, panic_port_));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kNmiStatusPort, NmiStatusPort::kSize, nmi_status_port_));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kPciConfigPort, PciHost::kPortSize, pci_host.ports()));
  RINGSIDE_RETURN_IF_ERROR(memory.Add(kEcam, kEcamSize, pci_host.ecam()));

  const DeviceContext context = {.memory = *memory_, .io_threads = *io_threads_, .log = log_};
  RINGSIDE_RETURN_IF_ERROR(disks_->Plug(context, *events_, *pauser_, *devices));
  RINGSIDE_RETURN_IF_ERROR(networks_->Plug(context, *devices));
  if (vsock_ != nullptr) RINGSIDE_RETURN_IF_ERROR(vsock_->Plug(context, *devices));
  for (const DeviceConfig& config : config_.devices) {
    RINGSIDE_ASSIGN_OR_RETURN(auto device, MakeOwnDevice(config, context));
    RINGSIDE_RETURN_IF_ERROR(devices->Plug(config.id, "", kOwnSlot, std::move(device)));
  }
  for (const MachineHooks::InnerDevice& inner : hooks_.devices) {
    RINGSIDE_ASSIGN_OR_RETURN(auto device, inner.create(context));
    RINGSIDE_RETURN_IF_ERROR(devices->Plug(inner.id, "", kOwnSlot, std::move(device)));
  }
  // On the console's thread: nobody waits for randomness for long.
  RINGSIDE_RETURN_IF_ERROR(
      devices->Plug(kRngId, "", kRngSlot, std::make_unique<VirtioRng>(*memory_, *io_thread_)));
  return devices;
}

absl::StatusOr<DevicesState> Machine::Internals::SaveDevices() {
  RINGSIDE_RETURN_IF_ERROR(pauser_->Hold());
  const absl::Cleanup release = [this] { pauser_->Release(); };
  RINGSIDE_RETURN_IF_ERROR(assigned_.CheckSaved());
  RINGSIDE_ASSIGN_OR_RETURN(DevicesState state, devices_->Save());
  state.serial = console_->serial().Save();
  return state;
}

absl::Status Machine::Internals::RestoreDevices(const DevicesState& state,
                                                absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  RINGSIDE_RETURN_IF_ERROR(pauser_->Hold(deadline));
  const absl::Cleanup release = [this] { pauser_->Release(); };
  RINGSIDE_RETURN_IF_ERROR(assigned_.CheckSaved());
  const FaultsAllowed faults;
  RINGSIDE_RETURN_IF_ERROR(queues_->HoldMoves(deadline));
  const absl::Cleanup let_move = [this] { queues_->LetMove(); };
  // The other I/O threads have nothing in flight that could hold them.
  if (!io_thread_->Begin([] {})->WaitUntil(deadline)) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "the devices were not made anew within %s: the storage of %s holds their thread",
        absl::FormatDuration(patience), console_->OutputName()));
  }
  RINGSIDE_ASSIGN_OR_RETURN(auto devices, MakeDevices());
  RINGSIDE_RETURN_IF_ERROR(devices->Check(state));
  RINGSIDE_RETURN_IF_ERROR(queues_->Replace(devices->functions()));
  absl::Status status = ReplaceDevices(std::move(devices), state);
  if (!status.ok()) End({EndKind::kFailure, std::string(Message(status))});
  return status;
}

absl::Status Machine::Internals::ReplaceDevices(std::unique_ptr<GuestDevices> devices,
                                                const DevicesState& state) {
  devices->Rest();
  const auto& functions = devices->functions();
  for (size_t i = 0; i < functions.size(); ++i) {
    pauser_->Replace(*devices_->functions()[i].device, *functions[i].device);
  }
  for (const auto& vcpu : vcpus_) vcpu->Connect(devices->buses());
  devices.swap(devices_);
  // With their doorbells, in whose places the others want theirs.
  devices->Reset();
  devices.reset();
  RINGSIDE_RETURN_IF_ERROR(console_->RestorePort(state.serial));
  return devices_->Restore(state);
}

}  // namespace ringside
