// How a machine is made: its configuration is checked, what it needs of the host is taken, and its
// guest is loaded.
#include <algorithm>
#include <sys/sysinfo.h>
#include <utility>

#include "base/affinity.h"
#include "base/host_nodes.h"
#include "base/huge_pages.h"
#include "base/size.h"
#include "base/status.h"
#include "boot/acpi.h"
#include "boot/boot_cpu.h"
#include "boot/generation.h"
#include "kvm/cpu_baseline.h"
#include "kvm/cpuid.h"
#include "vmm/io_pool_parts.h"
#include "vmm/machine.h"
#include "vmm/options.h"
#include "vmm/own_devices.h"

namespace ringside {
namespace {

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
    RINGSIDE_RETURN_IF_ERROR(
        Of(absl::StrFormat("vCPU %d", id), CheckHostCpus(config.vcpu_cpus[id])));
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

// `from`: what it is a copy of; null: it is new.
absl::StatusOr<std::unique_ptr<GuestMemory>> CreateMemory(const MachineConfig& config,
                                                          const MachineTemplate* from) {
  static_assert(kLowMemoryEnd % kHugePageSize == 0 && kMemoryAbove4G % kHugePageSize == 0);
  const uint64_t bytes = config.memory;
  std::vector<GuestMemory::Range> ranges = {{0, std::min(bytes, kLowMemoryEnd)}};
  if (bytes > kLowMemoryEnd) ranges.push_back({kMemoryAbove4G, bytes - kLowMemoryEnd});
  if (from == nullptr) {
    return GuestMemory::Create(ranges, config.memory_nodes, config.huge_pages);
  }
  if (!config.restore_handler.empty()) return GuestMemory::OnDemand(ranges, config.memory_nodes);
  const Snapshot& saved = from->parts().snapshot;
  if (IsMemoryCopied(config)) {
    if (saved.path.empty()) {
      return absl::FailedPreconditionError(
          "memory is copied from the directory of a snapshot alone, and restore-memory=copied or a "
          "disk that reaches memory by DMA want that: save the machine instead");
    }
    RINGSIDE_ASSIGN_OR_RETURN(auto memory,
                              GuestMemory::Create(ranges, config.memory_nodes, config.huge_pages));
    RINGSIDE_RETURN_IF_ERROR(
        CopyMemoryImage(saved.state.memory, saved.memory, saved.path, memory->regions()));
    return memory;
  }
  return GuestMemory::CopyOnWrite(saved.memory, ranges, config.memory_nodes);
}

absl::StatusOr<std::shared_ptr<const MachineTemplate>> LoadBeginning(const MachineConfig& config) {
  if (config.restore_handler.empty()) return MachineTemplate::Load(config.restore);
  return MachineTemplate::Parts::Of(OpenSnapshotState(config.restore), config.restore);
}

// With what the template decides. Who gives something else expects it: what is as usual may not
// have been given at all.
absl::StatusOr<MachineConfig> AsSaved(const MachineConfig& config, const SavedMachine& state) {
  MachineConfig saved = config;
  saved.cpus = static_cast<uint32_t>(state.vcpus.size());
  saved.memory = state.memory.size;
  saved.pit = state.vm.pit.has_value() ? Pit::kOn : Pit::kOff;
  const MachineConfig usual;
  if (config.cpus != saved.cpus && config.cpus != usual.cpus) {
    return BadInput("cpus=%d cannot be had, as the saved machine has %d: leave it out", config.cpus,
                    saved.cpus);
  }
  if (config.memory != saved.memory && config.memory != usual.memory) {
    return BadInput("memory=%d cannot be had, as the saved machine has %d bytes: leave it out",
                    config.memory, saved.memory);
  }
  return saved;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Machine>> Machine::Internals::Create(const MachineConfig& config,
                                                                    const MachineHooks& hooks) {
  RINGSIDE_RETURN_IF_ERROR(CheckOptions(config));
  RINGSIDE_ASSIGN_OR_RETURN(EventFd end_event, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd serial_interrupt, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd power_interrupt, EventFd::Create());
  Signals signals = {std::move(end_event), std::move(serial_interrupt), std::move(power_interrupt)};
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<Internals> machine,
                            config.kernel.empty() ? Restore(config, hooks, std::move(signals))
                                                  : Boot(config, hooks, std::move(signals)));
  machine->events_->Begin();
  return std::unique_ptr<Machine>(new Machine(std::move(machine)));
}

absl::StatusOr<std::unique_ptr<Machine::Internals>> Machine::Internals::Boot(
    const MachineConfig& config, const MachineHooks& hooks, Signals signals) {
  // Files first: a wrong path should not cost the making and unmaking of a virtual machine.
  RINGSIDE_ASSIGN_OR_RETURN(const BootFile kernel, BootFile::Open("kernel", config.kernel));
  std::optional<BootFile> initrd;
  if (!config.initrd.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(initrd, BootFile::Open("initrd", config.initrd));
  }
  std::unique_ptr<Internals> machine(new Internals(config, hooks, std::move(signals)));
  RINGSIDE_RETURN_IF_ERROR(machine->Build());
  RINGSIDE_RETURN_IF_ERROR(machine->LoadGuest(kernel, initrd.has_value() ? &*initrd : nullptr));
  return machine;
}

absl::StatusOr<std::unique_ptr<Machine::Internals>> Machine::Internals::Restore(
    const MachineConfig& config, const MachineHooks& hooks, Signals signals) {
  std::shared_ptr<const MachineTemplate> from = config.from;
  if (from == nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(from, LoadBeginning(config));
  }
  const MachineTemplate::Parts& parts = from->parts();
  const absl::StatusOr<MachineConfig> as_saved = AsSaved(config, parts.snapshot.state);
  if (!as_saved.ok()) return Of(parts.name, as_saved.status());
  if (const absl::Status status = CheckOptions(*as_saved); !status.ok()) {
    return Of(parts.name, status);
  }
  if (!config.assigned.empty()) {
    return absl::FailedPreconditionError(
        "a device that is passed through has nothing of a saved machine, and the guest did not "
        "have it: give the machine none");
  }
  std::unique_ptr<Internals> machine(new Internals(*as_saved, hooks, std::move(signals)));
  machine->from_ = from;
  RINGSIDE_RETURN_IF_ERROR(machine->Build());
  RINGSIDE_RETURN_IF_ERROR(machine->WatchMemory());
  const absl::Status loaded = machine->Load(parts.snapshot.state);
  RINGSIDE_RETURN_IF_ERROR(machine->MemoryLoss());  // which other errors may come of
  RINGSIDE_RETURN_IF_ERROR(loaded);
  if (machine->memory_handler_ != nullptr) machine->memory_handler_->IsMade();
  if (machine->memory_->is_shared()) machine->from_ = nullptr;  // its file is not needed any more
  return machine;
}

Machine::Internals::Internals(const MachineConfig& config, const MachineHooks& hooks,
                              Signals signals)
    : config_(config),
      hooks_(hooks),
      log_(config.log),
      end_event_(std::move(signals.end)),
      serial_interrupt_(std::move(signals.serial_interrupt)),
      power_interrupt_(std::move(signals.power_interrupt)),
      sleep_registers_([this] { End({EndKind::kPowerOff, ""}); }),
      reset_port_([this] { End({EndKind::kReset, ""}); }),
      panic_port_([this](bool crash_loaded) {
        events_->Panicked(crash_loaded ? "its crash kernel takes over" : "");
      }),
      assigned_(log_) {}

absl::Status Machine::Internals::Build() {
  RINGSIDE_RETURN_IF_ERROR(CheckAffinity(config_));
  RINGSIDE_RETURN_IF_ERROR(AssignedDevices::Check(config_.assigned, config_.disks));
  RINGSIDE_RETURN_IF_ERROR(assigned_.Open(config_.assigned, hooks_.open_assigned));
  RINGSIDE_RETURN_IF_ERROR(TakeIoThreads());
  for (const DeviceConfig& device : config_.devices) {
    RINGSIDE_RETURN_IF_ERROR(CheckOwnDevice(device, *io_threads_));
  }
  RINGSIDE_ASSIGN_OR_RETURN(disks_, Disks::Open(config_, *io_threads_, log_));
  RINGSIDE_ASSIGN_OR_RETURN(networks_, Networks::Open(config_, *io_threads_, log_));
  if (config_.vsock.has_value()) {
    RINGSIDE_ASSIGN_OR_RETURN(vsock_, Vsock::Open(*config_.vsock, *io_threads_, log_));
  }
  // What nobody could use is not started.
  if (config_.io_pool == nullptr &&
      (!config_.io_threads.empty() || !config_.disks.empty() || !config_.networks.empty() ||
       config_.vsock.has_value() || !config_.devices.empty() || !hooks_.devices.empty())) {
    RINGSIDE_RETURN_IF_ERROR(io_threads_->Start(EntriesFor(config_.disks)));
  }
  RINGSIDE_RETURN_IF_ERROR(disks_->CheckWaiters(*io_threads_));
  if (const absl::Status status = io_threads_->uring_status(); !status.ok()) {
    log_.Log(Severity::kWarning, "%s", Message(status));
  }
  queues_ = std::make_unique<DeviceQueues>(*io_threads_);

  RINGSIDE_ASSIGN_OR_RETURN(const Kvm kvm, Kvm::Open(config_.kvm_path));
  RINGSIDE_RETURN_IF_ERROR(CheckHostVcpus(config_.cpus, kvm));
  RINGSIDE_RETURN_IF_ERROR(CheckHostMemory(config_.memory));
  if (!config_.memory_nodes.empty()) {  // reading them takes 60 us
    RINGSIDE_RETURN_IF_ERROR(CheckHostNodes(config_.memory_nodes, config_.memory, ReadHostNodes()));
  }
  if (config_.huge_pages == HugePages::kTransparent) {
    const std::string why = WhyNoSharedHugePages();
    if (!why.empty()) log_.Log(Severity::kWarning, "hugepages transparent has no effect: %s", why);
  }
  RINGSIDE_ASSIGN_OR_RETURN(memory_, CreateMemory(config_, from_.get()));
  if (from_ != nullptr && !memory_->is_shared() && config_.restore_working_set) {
    const Snapshot& snapshot = from_->parts().snapshot;
    RINGSIDE_RETURN_IF_ERROR(snapshot.working_set_status);
    PrepareMemory(snapshot.working_set, memory_->regions());
  }
  RINGSIDE_ASSIGN_OR_RETURN(vm_, kvm.CreateVm());
  RINGSIDE_RETURN_IF_ERROR(vm_->SetMemory(memory_->regions()));
  writes_.emplace(*memory_, *vm_, CopiedSnapshot());
  if (config_.halt_poll) RINGSIDE_RETURN_IF_ERROR(vm_->SetHaltPoll(*config_.halt_poll));
  RINGSIDE_RETURN_IF_ERROR(vm_->SetIntelPages(kKvmTss, kKvmIdentityMap));
  RINGSIDE_RETURN_IF_ERROR(vm_->CreateIrqchip());
  const bool tsc_deadline = kvm.Extension(KVM_CAP_TSC_DEADLINE_TIMER) > 0;
  has_pit_ = NeedsPit(config_.pit, tsc_deadline);
  if (has_pit_) RINGSIDE_RETURN_IF_ERROR(vm_->CreatePit());
  RINGSIDE_RETURN_IF_ERROR(AddDevices());
  if (from_ != nullptr) return AddVcpus(nullptr);
  RINGSIDE_ASSIGN_OR_RETURN(std::vector<kvm_cpuid_entry2> supported, kvm.SupportedCpuid());
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<kvm_cpuid_entry2> cpuid,
                            LimitCpuid(std::move(supported), config_.cpu_baseline));
  return AddVcpus([&](uint32_t id) { return MakeCpuid(cpuid, id, config_.cpus, tsc_deadline); });
}

absl::Status Machine::Internals::TakeIoThreads() {
  const std::shared_ptr<IoPool>& pool = config_.io_pool;
  if (pool != nullptr && !config_.io_threads.empty()) {
    return BadInput("iothreads: there are %d, and the machine has those of a pool: give them to it",
                    config_.io_threads.size());
  }
  if (pool != nullptr && !config_.restore_handler.empty()) {
    return BadInput(
        "restore-handler: the machine's I/O threads wait for its pages, and those of a pool serve "
        "others, too: give it threads of its own");
  }
  if (pool != nullptr && !Console::MayWait(config_.console)) {
    io_thread_ = IoPool::Parts::Housekeeping(pool);
  } else {
    RINGSIDE_ASSIGN_OR_RETURN(io_thread_, IoThread::Start("io"));
  }
  if (pool != nullptr) {
    io_threads_ = IoPool::Parts::ForDevices(pool);
    return absl::OkStatus();
  }
  RINGSIDE_ASSIGN_OR_RETURN(io_threads_, IoThreads::Create(config_.io_threads));
  return absl::OkStatus();
}

absl::Status Machine::Internals::CheckHasOwnIoThreads() const {
  if (config_.io_pool == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the machine's I/O threads are a pool's, which other machines have, too: change them there");
}

// The snapshot whose memory it has as a copy on write. A template that was never written is none.
std::optional<SnapshotIdentity> Machine::Internals::CopiedSnapshot() const {
  if (from_ == nullptr || memory_->is_shared()) return std::nullopt;
  const Snapshot& snapshot = from_->parts().snapshot;
  const bool is_written = !snapshot.path.empty() || memory_->userfault() != nullptr;
  return is_written ? std::optional(snapshot.state.memory.identity) : std::nullopt;
}

absl::Status Machine::Internals::AddVcpus(const CpuidOf& cpuid_of) {
  for (uint32_t id = 0; id < config_.cpus; ++id) {
    RINGSIDE_ASSIGN_OR_RETURN(KvmVcpu vcpu, vm_->CreateVcpu(id));
    cpuids_.push_back(cpuid_of ? cpuid_of(id) : std::vector<kvm_cpuid_entry2>());
    if (cpuid_of) {
      RINGSIDE_RETURN_IF_ERROR(vcpu.SetCpuid(cpuids_.back()));
      RINGSIDE_RETURN_IF_ERROR(CheckIsLimited(vcpu, cpuids_.back(), config_.cpu_baseline));
    }
    std::vector<int> host_cpus;
    if (id < config_.vcpu_cpus.size()) host_cpus = config_.vcpu_cpus[id];
    vcpus_.push_back(std::make_unique<Vcpu>(id, std::move(vcpu), std::move(host_cpus),
                                            devices_->buses(),
                                            [this](MachineEnd end) { End(std::move(end)); }));
    pauser_->Add(*vcpus_.back());
  }
  return absl::OkStatus();
}

absl::Status Machine::Internals::LoadGuest(const BootFile& kernel, const BootFile* initrd) {
  const BootRequest request = {.kernel = kernel,
                               .initrd = initrd,
                               .command_line = config_.command_line,
                               .protocol = config_.protocol,
                               .acpi_rsdp = WriteAcpiTables(config_.cpus, *memory_)};
  RINGSIDE_ASSIGN_OR_RETURN(const BootEntry entry, LoadKernel(request, *memory_));
  WriteBootTables(*memory_);
  WriteResetVector(*memory_);
  RINGSIDE_RETURN_IF_ERROR(WriteGeneration(*memory_));
  for (uint32_t id = 0; id < config_.cpus; ++id) {
    RINGSIDE_ASSIGN_OR_RETURN(const int refused, SetBootMsrs(vcpus_[id]->kvm()));
    if (refused > 0) log_.Log(Severity::kDebug, "vCPU %d: %d MSRs refused", id, refused);
  }
  return SetBootRegisters(vcpus_.front()->kvm(), entry);
}

}  // namespace ringside
