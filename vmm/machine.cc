#include "vmm/machine.h"

#include <algorithm>
#include <sys/sysinfo.h>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/affinity.h"
#include "base/size.h"
#include "base/status.h"
#include "boot/acpi.h"
#include "boot/boot_cpu.h"
#include "devices/virtio_rng.h"
#include "kvm/cpuid.h"
#include "vmm/io_thread_options.h"
#include "vmm/options.h"
#include "vmm/pci_slots.h"

namespace ringside {
namespace {

constexpr absl::Duration kConsolePatience = absl::Seconds(1);
constexpr absl::Duration kFlushLimit = absl::Seconds(2);  // that included

// What options cannot know (vmm/options.h): the host's limits.
absl::Status CheckHostVcpus(uint32_t cpus, const Kvm& kvm) {
  const auto most = static_cast<uint32_t>(kvm.max_vcpus());
  if (cpus <= most) return absl::OkStatus();
  return BadInput("%d vCPUs are more than this host's KVM has: give 1 to %d", cpus, most);
}

absl::Status CheckHostMemory(uint64_t bytes) {
  struct sysinfo host;
  if (sysinfo(&host) != 0) return absl::OkStatus();
  const uint64_t has = (uint64_t{host.totalram} + host.totalswap) * host.mem_unit;
  if (bytes > has) {
    return BadInput("%s of memory is more than this host has (%s with swap): give less",
                    FormatSize(bytes), FormatSize(has));
  }
  return absl::OkStatus();
}

absl::Status CheckAffinity(const MachineConfig& config) {
  if (config.vcpu_cpus.size() > config.cpus) {
    return BadInput("cpu-affinity names vCPU %d, which is not there: the %d vCPUs count from 0",
                    config.vcpu_cpus.size() - 1, config.cpus);
  }
  for (size_t id = 0; id < config.vcpu_cpus.size(); ++id) {
    if (const absl::Status status = CheckHostCpus(config.vcpu_cpus[id]); !status.ok()) {
      return absl::Status(status.code(), absl::StrFormat("vCPU %d: %s", id, Message(status)));
    }
  }
  return absl::OkStatus();
}

// Linux does without on this machine. There are four things for which it would use the PIT (files
// of arch/x86/kernel, in 6.1 as in 6.12):
// - To learn the frequency of the TSC (tsc.c). CPUID does not give it here, as KVM leaves 0x15 and
//   0x16 zero, but kvmclock.c has taken it from kvmclock by then.
// - To calibrate the local APIC's timer (apic/apic.c). Where CPUID leaf 1 offers the TSC deadline
//   there is nothing to calibrate.
// - As the first clock (time.c, i8253.c). Where the FADT says hardware-reduced, as ours does,
//   acpi/boot.c leaves that out, whether there is a PIT or not.
// - To see which IOAPIC pin its interrupt comes to (check_timer in apic/io_apic.c). That is done
//   only where there are legacy interrupts, and hardware-reduced ACPI has none.
// A Linux with 'no-kvmclock', or built without it, wants Pit::kOn.
bool NeedsPit(Pit pit, bool tsc_deadline) {
  return pit == Pit::kOn || (pit == Pit::kAuto && !tsc_deadline);
}

absl::StatusOr<std::unique_ptr<GuestMemory>> CreateMemory(uint64_t bytes) {
  std::vector<GuestMemory::Range> ranges = {{0, std::min(bytes, kLowMemoryEnd)}};
  if (bytes > kLowMemoryEnd) ranges.push_back({kMemoryAbove4G, bytes - kLowMemoryEnd});
  return GuestMemory::Create(ranges);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Machine>> Machine::Create(const MachineConfig& config) {
  RINGSIDE_RETURN_IF_ERROR(CheckOptions(config));
  RINGSIDE_ASSIGN_OR_RETURN(EventFd end_event, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd serial_interrupt, EventFd::Create());
  // Files first: a wrong path should not cost the making and unmaking of a virtual machine.
  RINGSIDE_ASSIGN_OR_RETURN(const ImageFile kernel, ImageFile::Open("kernel", config.kernel));
  std::optional<ImageFile> initrd;
  if (!config.initrd.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(initrd, ImageFile::Open("initrd", config.initrd));
  }
  std::unique_ptr<Machine> machine(
      new Machine(config, std::move(end_event), std::move(serial_interrupt)));
  RINGSIDE_RETURN_IF_ERROR(machine->Build());
  RINGSIDE_RETURN_IF_ERROR(machine->LoadGuest(kernel, initrd.has_value() ? &*initrd : nullptr));
  return machine;
}

Machine::Machine(const MachineConfig& config, EventFd end_event, EventFd serial_interrupt)
    : config_(config),
      log_(config.log),
      end_event_(std::move(end_event)),
      serial_interrupt_(std::move(serial_interrupt)),
      sleep_registers_([this] { End({EndKind::kPowerOff, ""}); }),
      reset_port_([this] { End({EndKind::kReset, ""}); }),
      assigned_(log_) {}

Machine::~Machine() {
  Stop();
  Wait();
  // A move whose caller has given it up is a task on an I/O thread until it is over.
  if (queues_ != nullptr) (void)queues_->HoldMoves(DeadlineIn(absl::InfiniteDuration()));
}

absl::Status Machine::Build() {
  RINGSIDE_RETURN_IF_ERROR(CheckAffinity(config_));
  RINGSIDE_RETURN_IF_ERROR(AssignedDevices::Check(config_.assigned, config_.disks));
  RINGSIDE_RETURN_IF_ERROR(assigned_.Open(config_.assigned));
  RINGSIDE_ASSIGN_OR_RETURN(io_threads_, IoThreads::Create(config_.io_threads));
  RINGSIDE_ASSIGN_OR_RETURN(disks_, Disks::Open(config_.disks, *io_threads_, config_.cpus, log_));
  // What nobody could use is not started.
  if (!config_.io_threads.empty() || !config_.disks.empty() || !config_.devices.empty()) {
    RINGSIDE_RETURN_IF_ERROR(io_threads_->Start());
  }
  RINGSIDE_RETURN_IF_ERROR(disks_->CheckWaiters(*io_threads_));
  if (const absl::Status status = io_threads_->uring_status(); !status.ok()) {
    log_.Log(Severity::kWarning, "%s", Message(status));
  }
  queues_ = std::make_unique<DeviceQueues>(*io_threads_);

  RINGSIDE_ASSIGN_OR_RETURN(const Kvm kvm, Kvm::Open(config_.kvm_path));
  RINGSIDE_RETURN_IF_ERROR(CheckHostVcpus(config_.cpus, kvm));
  RINGSIDE_RETURN_IF_ERROR(CheckHostMemory(config_.memory));
  RINGSIDE_ASSIGN_OR_RETURN(memory_, CreateMemory(config_.memory));
  RINGSIDE_ASSIGN_OR_RETURN(vm_, kvm.CreateVm());
  RINGSIDE_RETURN_IF_ERROR(vm_->SetMemory(memory_->regions()));
  if (config_.halt_poll) RINGSIDE_RETURN_IF_ERROR(vm_->SetHaltPoll(*config_.halt_poll));
  RINGSIDE_RETURN_IF_ERROR(vm_->SetIntelPages(kKvmTss, kKvmIdentityMap));
  RINGSIDE_RETURN_IF_ERROR(vm_->CreateIrqchip());
  const bool tsc_deadline = kvm.Extension(KVM_CAP_TSC_DEADLINE_TIMER) > 0;
  if (NeedsPit(config_.pit, tsc_deadline)) RINGSIDE_RETURN_IF_ERROR(vm_->CreatePit());
  RINGSIDE_RETURN_IF_ERROR(AddDevices());
  return AddVcpus(kvm, tsc_deadline);
}

absl::Status Machine::AddDevices() {
  RINGSIDE_ASSIGN_OR_RETURN(io_thread_, IoThread::Start("io"));
  pauser_ = std::make_unique<Pauser>(*io_thread_);
  ConsoleConfig console = config_.console;
  if (!console.detached) console.detached = [this] { Stop(); };
  console_ = std::make_unique<Console>(console, serial_interrupt_, *io_thread_, log_);
  pauser_->Add(*console_);
  RINGSIDE_RETURN_IF_ERROR(vm_->AssignIrqFd(serial_interrupt_, kCom1Irq));
  interrupt_router_ = std::make_unique<InterruptRouter>(*vm_, log_);
  RINGSIDE_RETURN_IF_ERROR(disks_->MapMemory(*memory_));
  RINGSIDE_ASSIGN_OR_RETURN(devices_, MakeDevices());
  for (const GuestDevices::Function& function : devices_->functions()) {
    queues_->Add(function);
    pauser_->Add(*function.device);
  }
  memory_slots_ =
      std::make_unique<MemorySlots>(*vm_, static_cast<uint32_t>(memory_->regions().size()), log_);
  return assigned_.Plug(*memory_, *interrupt_router_, *memory_slots_, devices_->pci_host());
}

absl::StatusOr<std::unique_ptr<GuestDevices>> Machine::MakeDevices() {
  auto devices = std::make_unique<GuestDevices>(*interrupt_router_, log_);
  auto& [memory, ports] = devices->buses();
  PciHost& pci_host = devices->pci_host();
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kCom1Port, Serial::kSize, console_->serial()));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kSleepControlPort, SleepRegisters::kSize, sleep_registers_));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kResetPort, ResetPort::kSize, reset_port_));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kNmiStatusPort, NmiStatusPort::kSize, nmi_status_port_));
  RINGSIDE_RETURN_IF_ERROR(ports.Add(kPciConfigPort, PciHost::kPortSize, pci_host.ports()));
  RINGSIDE_RETURN_IF_ERROR(memory.Add(kEcam, kEcamSize, pci_host.ecam()));

  const DeviceContext context = {.memory = *memory_, .io_threads = *io_threads_, .log = log_};
  RINGSIDE_RETURN_IF_ERROR(disks_->Plug(context, *devices));
  for (const DeviceConfig& config : config_.devices) {
    RINGSIDE_ASSIGN_OR_RETURN(auto device, config.create(context));
    RINGSIDE_RETURN_IF_ERROR(devices->Plug(config.name, "", kOwnSlot, std::move(device)));
  }
  // On the console's thread: nobody waits for randomness for long.
  RINGSIDE_RETURN_IF_ERROR(
      devices->Plug(kRngId, "", kRngSlot, std::make_unique<VirtioRng>(*memory_, *io_thread_)));
  return devices;
}

absl::Status Machine::AddVcpus(const Kvm& kvm, bool tsc_deadline) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<kvm_cpuid_entry2> cpuid, kvm.SupportedCpuid());
  for (uint32_t id = 0; id < config_.cpus; ++id) {
    RINGSIDE_ASSIGN_OR_RETURN(KvmVcpu vcpu, vm_->CreateVcpu(id));
    RINGSIDE_RETURN_IF_ERROR(vcpu.SetCpuid(MakeCpuid(cpuid, id, config_.cpus, tsc_deadline)));
    std::vector<int> host_cpus;
    if (id < config_.vcpu_cpus.size()) host_cpus = config_.vcpu_cpus[id];
    vcpus_.push_back(std::make_unique<Vcpu>(id, std::move(vcpu), std::move(host_cpus),
                                            devices_->buses(),
                                            [this](MachineEnd end) { End(std::move(end)); }));
    pauser_->Add(*vcpus_.back());
  }
  return absl::OkStatus();
}

absl::Status Machine::LoadGuest(const ImageFile& kernel, const ImageFile* initrd) {
  const BootRequest request = {.kernel = kernel,
                               .initrd = initrd,
                               .command_line = config_.command_line,
                               .protocol = config_.protocol,
                               .acpi_rsdp = WriteAcpiTables(config_.cpus, *memory_)};
  RINGSIDE_ASSIGN_OR_RETURN(const BootEntry entry, LoadKernel(request, *memory_));
  WriteBootTables(*memory_);
  WriteResetVector(*memory_);
  for (uint32_t id = 0; id < config_.cpus; ++id) {
    RINGSIDE_ASSIGN_OR_RETURN(const int refused, SetBootMsrs(vcpus_[id]->kvm()));
    if (refused > 0) log_.Log(Severity::kDebug, "vCPU %d: %d MSRs refused", id, refused);
  }
  return SetBootRegisters(vcpus_.front()->kvm(), entry);
}

absl::Status Machine::Start() {
  console_->Start();
  for (const auto& vcpu : vcpus_) {
    if (absl::Status status = vcpu->Start(); !status.ok()) {
      End({EndKind::kFailure, std::string(Message(status))});
      return status;
    }
  }
  return absl::OkStatus();
}

void Machine::Stop() {
  End({EndKind::kStopped, ""});
}

void Machine::End(MachineEnd end) {
  const MutexLock lock(mutex_);
  if (end_.has_value()) return;  // the first reason counts
  end_ = std::move(end);
  for (const auto& vcpu : vcpus_) vcpu->RequestStop();
  if (pauser_ != nullptr) pauser_->End();
  end_event_.Signal();
  ended_.Notify();
}

absl::StatusOr<DevicesState> Machine::SaveDevices() {
  RINGSIDE_RETURN_IF_ERROR(pauser_->Hold());
  const absl::Cleanup release = [this] { pauser_->Release(); };
  RINGSIDE_RETURN_IF_ERROR(assigned_.CheckSaved());
  RINGSIDE_ASSIGN_OR_RETURN(DevicesState state, devices_->Save());
  state.serial = console_->serial().Save();
  return state;
}

absl::Status Machine::RestoreDevices(const DevicesState& state, absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  RINGSIDE_RETURN_IF_ERROR(pauser_->Hold());
  const absl::Cleanup release = [this] { pauser_->Release(); };
  RINGSIDE_RETURN_IF_ERROR(assigned_.CheckSaved());
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

absl::Status Machine::ReplaceDevices(std::unique_ptr<GuestDevices> devices,
                                     const DevicesState& state) {
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

const MachineEnd& Machine::Wait() {
  ended_.Wait();
  // First: they write into memory that nobody else can keep them from.
  assigned_.LeaveBus();
  for (const auto& vcpu : vcpus_) vcpu->Join();
  // Before those are waited for who make devices anew: what their disks have may end slowly.
  if (disks_ != nullptr) disks_->EndSoon();
  if (pauser_ != nullptr) pauser_->AwaitRelease();
  if (devices_ != nullptr) devices_->BeginStop();
  // Before devices are waited for: the storage of the console's output may hold those on its
  // thread.
  if (console_ != nullptr && !std::exchange(flushed_, true)) FlushConsole();
  if (devices_ != nullptr) devices_->Stop();
  assigned_.Stop();
  const MutexLock lock(mutex_);
  return *end_;
}

void Machine::FlushConsole() {
  size_t unwritten = console_->Flush(kConsolePatience);
  if (unwritten > 0 && console_->IsWriting()) {
    log_.Log(Severity::kWarning,
             "%s: its storage does not take what the guest has said; the machine ends when it "
             "does (is the file system frozen, or the storage gone?)",
             console_->OutputName());
  }
  do {
    unwritten = console_->Flush(kFlushLimit - kConsolePatience);
  } while (unwritten > 0 && console_->IsWriting());
  if (unwritten > 0) {
    log_.Log(Severity::kWarning, "%d bytes of console output found no reader", unwritten);
  }
  if (const uint64_t dropped = console_->statistics().dropped; dropped > 0) {
    log_.Log(Severity::kWarning, "%d bytes of console output were dropped", dropped);
  }
}

absl::StatusOr<std::string> Machine::AddIoThread(const IoThreadConfig& config) {
  RINGSIDE_RETURN_IF_ERROR(
      CheckIoThread(absl::StrFormat("I/O thread '%s': ", config.name), config));
  return io_threads_->Add(config);
}

absl::Status Machine::SetPoll(const std::string& io_thread, const PollConfig& poll,
                              absl::Duration patience) {
  RINGSIDE_RETURN_IF_ERROR(
      CheckIoThread(absl::StrFormat("I/O thread '%s': ", io_thread), {.tuning = {.poll = poll}}));
  return io_threads_->SetPoll(io_thread, poll, patience);
}

MachineStatistics Machine::Statistics() {
  MachineStatistics statistics;
  statistics.console = console_->statistics();
  disks_->Collect(*queues_, statistics);
  for (const DeviceConfig& device : config_.devices) {
    statistics.devices.push_back({device.name, queues_->Statistics(device.name)});
  }
  statistics.devices.push_back({kRngId, queues_->Statistics(kRngId)});
  statistics.io_threads = io_threads_->Statistics();
  assigned_.Collect(statistics);
  for (const auto& vcpu : vcpus_) statistics.vcpus.push_back(vcpu->statistics());
  return statistics;
}

int64_t Machine::first_run_ns() const {
  return vcpus_.empty() ? 0 : vcpus_.front()->first_run_ns();
}

}  // namespace ringside
