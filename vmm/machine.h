// The public interface: a virtual machine that boots a kernel, from build to end.
//
//   MachineConfig config;
//   config.kernel = "vmlinuz";
//   absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
//   if (machine.ok() && (*machine)->Start().ok()) {
//     const MachineEnd& end = (*machine)->Wait();
//   }
//
// Any number of machines live in one process. Nothing here is global, installs a signal handler,
// changes a working directory, writes to stdout or stderr, or calls exit.
//
// Threads: one thread owns the machine: it creates it, starts it, waits for its end and destroys
// it. All else may be called from any thread but the machine's own, also at once; what may be
// called from those, too, says so. A machine brings a thread a vCPU, an I/O thread for its console
// and those of its disks, if it has any, all with every signal blocked. Errors: InvalidArgument,
// NotFound, PermissionDenied, FailedPrecondition and ResourceExhausted mean that the configuration
// or the host needs mending, and say how; others are failures.
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
#include "devices/power.h"
#include "devices/virtio_device.h"
#include "kvm/interrupt_router.h"
#include "kvm/kvm.h"
#include "kvm/machine_end.h"
#include "kvm/memory_layout.h"
#include "kvm/memory_slots.h"
#include "kvm/vcpu.h"
#include "poll/io_thread.h"
#include "vmm/assigned_devices.h"
#include "vmm/console.h"
#include "vmm/device_queues.h"
#include "vmm/disks.h"
#include "vmm/guest_devices.h"
#include "vmm/pauser.h"
#include "vmm/statistics.h"

namespace ringside {

// A virtio device of the embedder's own. The queues of one that is a QueuedDevice are moved,
// counted and traced as those of disks are.
struct DeviceConfig {
  std::string name;  // its id, as DiskConfig::id; also in logs
  // Called by Machine::Create, and by each Machine::RestoreDevices, on its caller's thread: there
  // the former device still lives, and the new one goes unused if the state is refused. So it takes
  // nothing that only one can have, and makes a device of the same kind with as many queues each
  // time. It must not call the machine.
  std::function<absl::StatusOr<std::unique_ptr<VirtioDevice>>(const DeviceContext& context)> create;
};

// Whether the guest has an interval timer (Intel 8254). It costs a kernel thread, and most of the
// time that the end of a machine takes; a guest needs it that knows neither kvmclock nor the local
// APIC's TSC deadline.
enum class Pit {
  kAuto,  // only where KVM has no TSC deadline timer for guests: old kernels on old processors
  kOn,
  kOff,
};

// The ranges of numbers, sizes and times are those of the options: vmm/options.h, docs/options.md.
struct MachineConfig {
  std::string kernel;  // path of a bzImage or an ELF file
  std::string initrd;  // path; empty: none
  std::string command_line = "console=ttyS0 panic=-1";
  BootProtocol protocol = BootProtocol::kAuto;
  uint32_t cpus = 1;
  uint64_t memory = 512 << 20;  // bytes, whole pages
  ConsoleConfig console;        // COM1; `detached` defaults to Machine::Stop
  std::vector<DiskConfig> disks;
  // Of all devices. Empty: one, if there are disks or own devices.
  std::vector<IoThreadConfig> io_threads;
  // By vCPU, the host's CPUs its thread may run on; empty, or not there: any.
  std::vector<std::vector<int>> vcpu_cpus;
  // How long KVM looks for a reason to go on before it lets a vCPU sleep; unset: as the kernel is
  // set.
  std::optional<absl::Duration> halt_poll;
  Pit pit = Pit::kAuto;
  std::vector<DeviceConfig> devices;
  // PCI devices of the host that the guest has whole, on its bus behind `devices`. They are reset
  // before the guest gets them and after its end, and all of its memory is pinned.
  std::vector<AssignedConfig> assigned;
  LogSink* log = nullptr;  // outlives the machine
  std::string kvm_path = "/dev/kvm";
};

class Machine {
 public:
  static constexpr uint32_t kMaxCpus = 254;  // APIC ids below the broadcast id, one for the IOAPIC

  // Checks the configuration, sets everything up and loads the kernel; runs nothing yet.
  static absl::StatusOr<std::unique_ptr<Machine>> Create(const MachineConfig& config);
  // Stops it if it runs, and joins its threads.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Once. On an error the machine is over.
  absl::Status Start();
  // Blocks until the machine has ended, its threads have left the guest, its disks have nothing in
  // flight and its output is written (within a limit, should its reader not read). What waits is
  // given up and what can be cancelled is; a read or write that the kernel has begun cannot, and is
  // waited for, however long the storage takes: it may still write into guest memory. After a
  // second the log names the disk and how many requests it has.
  const MachineEnd& Wait();
  // Ends the machine at once, as pulling the plug does, also while it is paused. Does not wait. Any
  // thread.
  void Stop();
  // Holds the machine still: its vCPUs have left the guest, its queues are at rest, nothing is in
  // flight, and no thread of it takes processor time. What the guest has not been answered yet
  // waits in its rings. Devices that the guest has whole go on. Waits for what is in flight,
  // however long the storage takes; then DeadlineExceeded, and unless another waits for the pause,
  // too, the machine runs on. Cancelled: Resume came first. FailedPrecondition: the machine is
  // over. Before Start: waits for that, and the guest does not run.
  absl::Status Pause(absl::Duration patience = absl::InfiniteDuration()) {
    return pauser_->PauseAndWait(patience);
  }
  // The same, but returns at once. `paused` gets what Pause would return, once, on a thread of the
  // machine, which it must not block; it may call Stop, Resume and BeginPause. Any thread.
  void BeginPause(Pauser::Paused paused) { pauser_->Begin(std::move(paused)); }
  // Lets it go on, for all who have paused it, or calls a pause off that is under way. Does not
  // wait; a pause that comes before a vCPU has woken leaves the guest without a turn. Any thread.
  void Resume() { pauser_->Resume(); }
  bool paused() const { return pauser_->paused(); }

  // Of a paused machine, what its devices keep beside what is in guest memory and in KVM.
  // FailedPrecondition: it is not paused, its guest has a device of the host whole, or a device is
  // being reset, which is waited for a second each. Not from a callback of BeginPause, on whose
  // thread such a reset may end. Resume does not wait for this, nor for RestoreDevices: it holds
  // when they are done.
  absl::StatusOr<DevicesState> SaveDevices();
  // Of a paused machine: makes its devices anew, as they were when `state` was saved, with queues
  // on the I/O threads where they are; counters and traces begin anew, too. The state may come from
  // anywhere: InvalidArgument is for what could not have been saved here. FailedPrecondition as
  // above. DeadlineExceeded: queues are still being moved, or the storage of the console's output
  // hangs. Other errors are the host's, or DeviceConfig::create's, about the new devices. On an
  // error the machine is as before and paused, unless end_event tells that it is over. The rings in
  // guest memory fit a state of the same pause only.
  absl::Status RestoreDevices(const DevicesState& state,
                              absl::Duration patience = absl::InfiniteDuration());
  // Becomes readable when the machine has ended, for event loops; do not read it.
  const EventFd& end_event() const { return end_event_; }

  // Has another I/O thread serve a queue of a device by its id ("disk0", DiskConfig::id, "rng",
  // DeviceConfig::name), in the middle of I/O, too; nothing is lost or done twice. Waits until the
  // parts that are under way are done, however long the storage takes, and for other moves of the
  // same device. A large request of which a part was done begins anew on the other thread, so who
  // moves a queue all the time keeps it from its end. On an error the queue stays where it was:
  // NotFound and InvalidArgument name what there is not; others say why the thread cannot serve it.
  // DeadlineExceeded: it has not moved yet; the text says whether it will.
  absl::Status MoveQueue(const std::string& device, uint16_t queue, const std::string& io_thread,
                         absl::Duration patience = absl::InfiniteDuration()) {
    return queues_->Move(device, queue, io_thread, patience);
  }
  // Starts one more I/O thread, and returns its name.
  absl::StatusOr<std::string> AddIoThread(const IoThreadConfig& config);
  // Ends one. FailedPrecondition while it serves a queue.
  // Waits until no queue is being moved; DeadlineExceeded: one still is.
  absl::Status RemoveIoThread(const std::string& name,
                              absl::Duration patience = absl::InfiniteDuration()) {
    return queues_->RemoveIoThread(name, patience);
  }
  // Changes how an I/O thread waits. Holds when this returns; waits for the thread's next turn.
  // DeadlineExceeded: storage or a server holds the thread; it holds when that has come back.
  absl::Status SetPoll(const std::string& io_thread, const PollConfig& poll,
                       absl::Duration patience = absl::InfiniteDuration());

  // CLOCK_MONOTONIC at the first vCPU's first KVM_RUN; 0 before.
  int64_t first_run_ns() const;
  // Whether the guest has sent anything to its console yet. Any thread.
  bool console_spoken() const { return console_->spoken(); }
  // Also while it runs. Waits for no storage and no I/O thread, and wakes none.
  MachineStatistics Statistics();
  // Why the I/O threads look, doze or sleep. Also while it runs. Waits for a turn of each; the only
  // error is DeadlineExceeded, as above.
  absl::StatusOr<std::vector<IoThreadExplanation>> Explain(
      absl::Duration patience = absl::InfiniteDuration()) const {
    return io_threads_->Explain(patience);
  }
  // Of the disks with DiskConfig::trace_latency, by queue, since their devices were made. After
  // Wait.
  std::vector<QueueLatencies> Latencies() const { return queues_->Latencies(); }
  // Of the I/O threads with IoThreadTuning::trace_waits. As Explain.
  absl::StatusOr<std::vector<IoThreadWaits>> Waits(
      absl::Duration patience = absl::InfiniteDuration()) const {
    return io_threads_->Waits(patience);
  }

 private:
  Machine(const MachineConfig& config, EventFd end_event, EventFd serial_interrupt);
  absl::Status Build();
  absl::Status AddVcpus(const Kvm& kvm, bool tsc_deadline);
  absl::Status AddDevices();
  // All but those that are assigned.
  absl::StatusOr<std::unique_ptr<GuestDevices>> MakeDevices();
  absl::Status ReplaceDevices(std::unique_ptr<GuestDevices> devices, const DevicesState& state);
  absl::Status LoadGuest(const ImageFile& kernel, const ImageFile* initrd);
  void FlushConsole();
  void End(MachineEnd end);

  const MachineConfig config_;
  const Logger log_;
  const EventFd end_event_;
  const EventFd serial_interrupt_;
  // These outlive the threads whose callbacks may call Stop.
  Mutex mutex_;
  std::optional<MachineEnd> end_ ABSL_GUARDED_BY(mutex_);
  Event ended_;

  std::unique_ptr<GuestMemory> memory_;  // outlives disks_ and assigned_, which reach it by DMA
  std::optional<KvmVm> vm_;
  std::unique_ptr<Pauser> pauser_;  // outlives the thread on which it tells
  std::unique_ptr<IoThread> io_thread_;

  std::unique_ptr<Console> console_;
  bool flushed_ = false;
  SleepRegisters sleep_registers_;
  ResetPort reset_port_;
  NmiStatusPort nmi_status_port_;
  std::unique_ptr<InterruptRouter> interrupt_router_;
  std::unique_ptr<MemorySlots> memory_slots_;
  std::unique_ptr<IoThreads> io_threads_;
  std::unique_ptr<DeviceQueues> queues_;
  std::unique_ptr<Disks> disks_;
  AssignedDevices assigned_;
  // For whoever holds the machine (Pauser::Hold), and where it does not run.
  std::unique_ptr<GuestDevices> devices_;

  // Last: their threads use what is above.
  std::vector<std::unique_ptr<Vcpu>> vcpus_;
};

}  // namespace ringside
