// The parts of a machine: what is behind the public class (ringside/machine.h), for this tree
// alone. Its functions are those of Machine, where they are described; here is what is added.
//
// Threads: as Machine. Ownership: a Machine's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sync.h"
#include "boot/boot.h"
#include "devices/device_context.h"
#include "devices/guest_memory.h"
#include "devices/nmi_status_port.h"
#include "devices/panic_port.h"
#include "devices/power.h"
#include "devices/virtio_device.h"
#include "kvm/interrupt_router.h"
#include "kvm/kvm.h"
#include "kvm/memory_layout.h"
#include "kvm/memory_slots.h"
#include "kvm/vcpu.h"
#include "kvm/vcpu_state.h"
#include "poll/io_thread.h"
#include "poll/io_thread_statistics.h"
#include "poll/io_threads.h"
#include "ringside/export.h"
#include "ringside/machine.h"
#include "vmm/agent_watch.h"
#include "vmm/assigned_devices.h"
#include "vmm/console.h"
#include "vmm/device_queues.h"
#include "vmm/disk_growth.h"
#include "vmm/disks.h"
#include "vmm/event_queue.h"
#include "vmm/guest_devices.h"
#include "vmm/machine_state.h"
#include "vmm/memory_handler.h"
#include "vmm/memory_watch.h"
#include "vmm/networks.h"
#include "vmm/pauser.h"
#include "vmm/power_button.h"
#include "vmm/snapshot_writer.h"
#include "vmm/vsock.h"
#include "vmm/write_tracking.h"

namespace ringside {

// What tests and benchmarks give a machine that its configuration cannot name.
struct MachineHooks {
  // A device made of this tree's parts, behind those of MachineConfig::devices. See DeviceConfig.
  struct InnerDevice {
    std::string id;
    std::function<absl::StatusOr<std::unique_ptr<VirtioDevice>>(const DeviceContext&)> create;
  };
  std::vector<InnerDevice> devices;
  // Opens the devices of MachineConfig::assigned; null: the kernel's VFIO does.
  AssignedDevices::Opener open_assigned;
  // How long the handler of MachineConfig::restore_handler may take until the machine is made.
  absl::Duration handler_patience = absl::Seconds(30);
};

class RINGSIDE_HIDDEN Machine::Internals {
 public:
  // As Machine::Create.
  static absl::StatusOr<std::unique_ptr<Machine>> Create(const MachineConfig& config,
                                                         const MachineHooks& hooks);
  ~Internals();
  Internals(const Internals&) = delete;
  Internals& operator=(const Internals&) = delete;

  const MachineConfig& config() const { return config_; }
  IoThreads& io_threads() { return *io_threads_; }
  const GuestMemory& memory() const { return *memory_; }
  // Of the I/O threads with IoThreadTuning::trace_waits. As Machine::Explain.
  absl::StatusOr<std::vector<IoThreadWaits>> Waits(
      absl::Duration patience = absl::InfiniteDuration()) const {
    return io_threads_->Waits(patience);
  }
  // Before the machine starts: has all queues record when their interrupts are raised, for
  // QueueSignalRecords.
  void RecordSignals() { queues_->RecordSignals(); }
  // As Machine::Latencies.
  absl::StatusOr<std::vector<QueueSignals>> QueueSignalRecords(
      absl::Duration patience = absl::InfiniteDuration()) const {
    return queues_->Signals(patience);
  }

  // Of a paused machine, what its devices keep beside what is in guest memory and in KVM.
  // FailedPrecondition: it is not paused, a device of the host is passed through to its guest, or a
  // device is being reset, which is waited for a second each. Not from a callback of BeginPause, on
  // whose thread such a reset may end. Resume does not wait for this, nor for RestoreDevices: it
  // holds when they are done.
  absl::StatusOr<DevicesState> SaveDevices();
  // Of a paused machine: makes its devices anew, as they were when `state` was saved, with queues
  // on the I/O threads where they are; counters and traces begin anew, too. The state may come from
  // anywhere: InvalidArgument is for what could not have been saved here. FailedPrecondition as
  // above. DeadlineExceeded: queues are still being moved, or the storage of the console's output
  // hangs. Other errors are the host's, or DeviceConfig::create's, about the new devices. On an
  // error the machine is as before and paused, unless end_fd tells that it is over. The rings in
  // guest memory fit a state of the same pause only.
  absl::Status RestoreDevices(const DevicesState& state,
                              absl::Duration patience = absl::InfiniteDuration());
  enum class AfterSave { kGoOn, kStop };
  // Of a paused machine: writes all of it into a directory, which is made if it is not there. As
  // SaveDevices; whoever resumes it waits for this. With kStop a machine that was saved is over
  // before a Resume that came meanwhile holds, so that what is on its disks fits what was saved.
  absl::Status Save(const std::string& directory, const SaveOptions& options,
                    const MemoryProgress& progress, AfterSave after = AfterSave::kGoOn);
  // Pauses the machine for that, within `patience`, and lets it go on then, unless others have
  // paused it before or meanwhile.
  absl::Status PauseAndSave(const std::string& directory, const SaveOptions& options,
                            const MemoryProgress& progress, AfterSave after,
                            absl::Duration patience);
  // As Machine::MakeTemplate.
  absl::StatusOr<std::shared_ptr<const MachineTemplate>> MakeTemplate(absl::Duration patience);
  // As Machine::RecordWorkingSet.
  absl::Status RecordWorkingSet() const;

 private:
  friend class Machine;

  // What has a descriptor of its own from the beginning.
  struct Signals {
    EventFd end;
    EventFd serial_interrupt;
    EventFd power_interrupt;
  };
  Internals(const MachineConfig& config, const MachineHooks& hooks, Signals signals);

  // machine_build.cc
  static absl::StatusOr<std::unique_ptr<Internals>> Boot(const MachineConfig& config,
                                                         const MachineHooks& hooks,
                                                         Signals signals);
  static absl::StatusOr<std::unique_ptr<Internals>> Restore(const MachineConfig& config,
                                                            const MachineHooks& hooks,
                                                            Signals signals);
  absl::Status Build();
  absl::Status TakeIoThreads();
  std::optional<SnapshotIdentity> CopiedSnapshot() const;
  // A saved vCPU brings its own: null.
  using CpuidOf = std::function<std::vector<kvm_cpuid_entry2>(uint32_t id)>;
  absl::Status AddVcpus(const CpuidOf& cpuid_of);
  absl::Status LoadGuest(const BootFile& kernel, const BootFile* initrd);

  // machine_save.cc
  absl::Status SaveState(SavedMachine& state);
  absl::Status SaveMemory(const SnapshotWriter& writer, const MemoryProgress& progress,
                          SavedMachine& state);
  // An error ends a save that is under way: its memory is lost, or the machine is over.
  absl::Status CheckSaves() const;
  absl::Status FlushDisks(Deadline deadline);
  absl::Status SettleInterrupts();
  absl::StatusOr<VcpuStateShape> ShapeOf(const SavedMachine& state) const;
  absl::Status FreezeMemory(Snapshot& snapshot);
  // Where it comes from a file, which may become shorter, or from another process.
  absl::Status WatchMemory();
  // Into one that is built and has not started: instead of LoadGuest. Its devices rest until Start.
  absl::Status Load(const SavedMachine& state);

  // machine_devices.cc
  absl::Status AddDevices();
  void WatchAgent(const VsockConfig& vsock);
  // All but those that are passed through.
  absl::StatusOr<std::unique_ptr<GuestDevices>> MakeDevices();
  absl::Status ReplaceDevices(std::unique_ptr<GuestDevices> devices, const DevicesState& state);

  // FailedPrecondition: they are a pool's.
  absl::Status CheckHasOwnIoThreads() const;

  // machine_run.cc
  absl::Status Start();
  const MachineEnd& Wait();
  void End(MachineEnd end);
  // As MemoryWatch::Loss and MemoryHandler::Loss.
  absl::Status MemoryLoss() const;
  void AwaitRelease();
  void FlushConsole();
  MachineStatistics Statistics();

  const MachineConfig config_;
  const MachineHooks hooks_;
  const Logger log_;
  const EventFd end_event_;
  const EventFd serial_interrupt_;
  const EventFd power_interrupt_;
  // These outlive the threads whose callbacks may call Stop.
  Mutex mutex_;
  std::optional<MachineEnd> end_ ABSL_GUARDED_BY(mutex_);
  Event ended_;

  // What its memory is a copy of; null: it has its own.
  std::shared_ptr<const MachineTemplate> from_;
  std::unique_ptr<GuestMemory> memory_;  // outlives disks_ and assigned_, which reach it by DMA
  // Outlives vm_, whose end may wait for pages. Null: no other process gives the memory.
  std::unique_ptr<MemoryHandler> memory_handler_;
  std::optional<KvmVm> vm_;
  std::optional<WriteTracking> writes_;
  bool has_pit_ = false;
  std::vector<std::vector<kvm_cpuid_entry2>> cpuids_;  // by vCPU, as they were given
  std::unique_ptr<EventQueue> events_;  // these two outlive the thread on which they tell
  std::unique_ptr<Pauser> pauser_;
  std::shared_ptr<IoThread> io_thread_;        // its own or a pool's: for all but devices
  std::unique_ptr<MemoryWatch> memory_watch_;  // null: the memory comes from no file

  std::unique_ptr<Console> console_;
  std::unique_ptr<PowerButton> power_button_;
  bool flushed_ = false;
  SleepRegisters sleep_registers_;
  ResetPort reset_port_;
  PanicPort panic_port_;
  NmiStatusPort nmi_status_port_;
  std::unique_ptr<InterruptRouter> interrupt_router_;
  std::unique_ptr<MemorySlots> memory_slots_;
  std::shared_ptr<IoThreads> io_threads_;  // likewise
  std::unique_ptr<DeviceQueues> queues_;
  std::unique_ptr<Disks> disks_;
  std::unique_ptr<Networks> networks_;
  std::unique_ptr<Vsock> vsock_;             // null: it has none
  std::unique_ptr<AgentWatch> agent_watch_;  // null: it is not needed; until Wait
  AssignedDevices assigned_;
  // For whoever holds the machine (Pauser::Hold), and where it does not run.
  std::unique_ptr<GuestDevices> devices_;

  std::unique_ptr<DiskGrowth> disk_growth_;  // null: no disk is on a block device

  // Last: their threads use what is above.
  std::vector<std::unique_ptr<Vcpu>> vcpus_;
};

}  // namespace ringside
