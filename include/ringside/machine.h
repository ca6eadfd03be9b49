// A virtual machine that boots a kernel, from its making to its end.
//
//   ringside::MachineConfig config;
//   config.kernel = "vmlinuz";
//   absl::StatusOr<std::unique_ptr<ringside::Machine>> machine = ringside::Machine::Create(config);
//   if (machine.ok() && (*machine)->Start().ok()) {
//     const ringside::MachineEnd& end = (*machine)->Wait();
//   }
//
// Any number of machines live in one process. Nothing here is global, installs a signal handler,
// changes a working directory, writes to stdout or stderr, or calls exit; but for one thing: the
// first machine that goes on from a file or a handler of memory (MachineConfig::restore,
// restore_handler) installs a handler of SIGBUS, so that a file which becomes shorter, or a handler
// that goes, ends that machine, not the process. It hands on what is not its own; who installs one
// later has to do so, too, and a thread of the embedder's that reads a restored machine's memory
// does not block that signal.
//
// Threads: one thread owns the machine: it creates it, starts it, waits for its end and destroys
// it. All else may be called from any thread but the machine's own, also by several at once; what
// may be called from those, too, says so. A machine has a thread per vCPU, an I/O thread for its
// console, those of its devices and one for its memory's handler, if it has any, all with every
// signal blocked but those of their own faults. Errors: InvalidArgument, NotFound,
// PermissionDenied, FailedPrecondition and ResourceExhausted mean that the configuration or the
// host has to be changed, and say how; others are failures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ringside/config.h"
#include "ringside/explanation.h"
#include "ringside/export.h"
#include "ringside/machine_end.h"
#include "ringside/machine_template.h"
#include "ringside/statistics.h"

namespace ringside {

struct SaveOptions {
  // Of the memory only what has changed since the last save with either of these, or else since the
  // snapshot that the machine goes on from with its memory mapped. MergeSnapshots, or 'ringside
  // snapshot merge', makes one of that and this; alone nothing goes on from it. The next save may
  // be a difference to this one.
  bool difference = false;
  // The next save may be a difference to this one: until then the machine's writes are noted, which
  // costs the guest a fault for each page that it is the first to write. A save without either ends
  // that.
  bool track = false;
};

class RINGSIDE_EXPORT Machine {
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
  // Presses the guest's power button, which asks it to shut down (ACPI 6.5 section 4.8.2.2.1.2).
  // Does not wait. A guest that is paused hears of it when it goes on, one whose ACPI driver does
  // not run yet never. FailedPrecondition: the machine has not been started, or is over. Any
  // thread.
  absl::Status PressPowerButton();
  // Presses it, and if the machine is not over after `limit` pulls the plug, as Stop does, and logs
  // that. A paused machine is not resumed, and its limit goes on: whoever holds it still decides
  // whether the guest gets to its end. Of several limits the one that ends first holds; an infinite
  // one only presses. Does not wait. Errors as above, and those of a host without timers. Any
  // thread.
  absl::Status ShutDown(absl::Duration limit);
  // A descriptor that becomes readable when the machine has ended, for event loops; it is the
  // machine's, and is not to be read.
  int end_fd() const;

  // Holds the machine still: its vCPUs have left the guest, its queues are at rest, nothing is in
  // flight, and no thread of it takes processor time. What the guest has not been answered yet
  // waits in its rings. Devices that are passed through go on. Waits for what is in flight,
  // however long the storage takes; then DeadlineExceeded, and unless another waits for the pause,
  // too, the machine runs on. Cancelled: Resume came first. FailedPrecondition: the machine is
  // over. Before Start: waits for that, and the guest does not run.
  absl::Status Pause(absl::Duration patience = absl::InfiniteDuration());
  // The same, but returns at once. `paused` gets what Pause would return, once, on a thread of the
  // machine, which it must not block; it may call Stop, Resume and BeginPause. Any thread.
  void BeginPause(std::function<void(const absl::Status&)> paused);
  // Lets it go on, for all who have paused it, or calls a pause off that is under way. Does not
  // wait; a pause that comes before a vCPU has woken leaves the guest without a turn. Requests that
  // disks have kept (EventKind::kDiskStopped) are tried again, and may stop it again. Any thread.
  void Resume();
  bool paused() const;

  // Writes a paused machine into a directory, which is made if it is not there, and which has no
  // snapshot yet: MachineConfig::restore goes on from there. The machine stays as it is. What its
  // guest has written to its disks is durable then, and for the caller to keep. `progress` is told,
  // on this thread, of how many bytes of memory so many are written. Resume does not wait for this,
  // but holds when it is done. FailedPrecondition: it is not paused, a device of the host is passed
  // through to it, the directory cannot be used, a disk cannot be flushed, or there is nothing to
  // be a difference to. Cancelled: the machine ended before all was written. On an error there is
  // no snapshot, and a difference to the one before can still be saved.
  absl::Status Save(const std::string& directory, const SaveOptions& options = {},
                    const std::function<void(uint64_t done, uint64_t of)>& progress = {});
  // Of a machine that goes on from the directory of a snapshot, with memory that is mapped from it:
  // writes beside that which pages it has used until now, so that those who go on from there later
  // have them before they run (MachineConfig::restore_working_set). One that was given pages so
  // itself has used them. Takes the place of an earlier one. Also when the machine has ended. Any
  // thread. FailedPrecondition: it is no such machine, or the directory cannot be written.
  absl::Status RecordWorkingSet();
  // Has others go on from where a paused machine is (MachineConfig::from), at once, and writes
  // nothing, but has its disks be flushed. The machine shares its memory with them from then on, as
  // they do with each other; so nothing that reaches it by DMA may be attached. One that itself
  // goes on from another has its memory copied. Errors and Resume as with Save; DeadlineExceeded: a
  // queue is still being moved, or a disk exchanged.
  absl::StatusOr<std::shared_ptr<const MachineTemplate>> MakeTemplate(
      absl::Duration patience = absl::InfiniteDuration());

  // Has another I/O thread serve a queue of a device by its id ("disk0", DiskConfig::id, "rng",
  // DeviceConfig::id), in the middle of I/O, too; nothing is lost or done twice. Waits until the
  // parts that are under way are done, however long the storage takes, and for other moves of the
  // same device. A large request of which a part was done begins anew on the other thread, so who
  // moves a queue all the time keeps it from its end. On an error the queue stays where it was:
  // NotFound and InvalidArgument name what there is not; others say why the thread cannot serve it.
  // DeadlineExceeded: it has not moved yet; the text says whether it will.
  absl::Status MoveQueue(const std::string& device, uint16_t queue, const std::string& io_thread,
                         absl::Duration patience = absl::InfiniteDuration());
  // Makes a disk larger, by its id, and tells the guest, which sees it at once: a file gets a hole
  // at its end. Without a size, which is in bytes, what others have made larger is looked at again:
  // a file, a block device or a namespace. A block device that the kernel says has grown is looked
  // at by itself. Returns how large it is now. InvalidArgument: it would become smaller, or part of
  // a block would be left over. Waits for the storage, however long that takes, and for moves of
  // its queues, for `patience`.
  absl::StatusOr<uint64_t> ResizeDisk(const std::string& disk, std::optional<uint64_t> size = {},
                                      absl::Duration patience = absl::InfiniteDuration());
  // Exchanges what is behind a disk, by its id, while the guest goes on: `backend` is opened, what
  // is in flight is done on the one before, and all that follows, and what was kept
  // (DiskConfig::werror), goes to the new one. Nothing is copied: whoever asks sees to it that the
  // new one has what the guest has written. It has blocks of the same size, can be written and can
  // discard where the other could, and is as large; if it is larger the guest is told. The other is
  // closed when this returns. On an error, which says why, the disk has what it had;
  // DeadlineExceeded: requests are still in flight.
  absl::Status SwapDisk(const std::string& disk, const BlockBackend& backend,
                        absl::Duration patience = absl::InfiniteDuration());
  // Starts one more I/O thread, and returns its name.
  absl::StatusOr<std::string> AddIoThread(const IoThreadConfig& config);
  // Ends one. FailedPrecondition while it serves a queue.
  // Waits until no queue is being moved; DeadlineExceeded: one still is.
  absl::Status RemoveIoThread(const std::string& name,
                              absl::Duration patience = absl::InfiniteDuration());
  // Changes how an I/O thread waits. Holds when this returns; waits for the thread's next turn.
  // DeadlineExceeded: storage or a server holds the thread; it holds when that has come back.
  absl::Status SetPoll(const std::string& io_thread, const PollConfig& poll,
                       absl::Duration patience = absl::InfiniteDuration());

  // Pulls the cable of a network, by its id, or plugs it in: the guest is told, and meanwhile
  // frames are dropped. Waits for moves of its queues, for `patience`.
  absl::Status SetLink(const std::string& network, bool up,
                       absl::Duration patience = absl::InfiniteDuration());
  // Changes what a disk or a network may do per second, or a group of disks. Debts under the limits
  // before are forgiven; a request that waits is looked at anew within 100 ms. Waits for nothing.
  // NotFound: names what there is.
  absl::Status SetThrottle(const std::string& device, const ThrottleLimits& limits);
  absl::Status SetGroupThrottle(const std::string& group, const ThrottleLimits& limits);

  // Also while it runs. Waits for no storage and no I/O thread, and wakes none.
  MachineStatistics Statistics();
  // Why the I/O threads poll, doze or sleep, and interrupt the guest. Also while it runs. Waits for
  // a turn of each; DeadlineExceeded: storage or a server holds one.
  absl::StatusOr<std::vector<IoThreadExplanation>> Explain(
      absl::Duration patience = absl::InfiniteDuration()) const;
  // Has the requests of a disk or device be traced, or not, by its id; off at first, but for those
  // with trace_latency. Also in the middle of I/O: a request that was taken before has no record.
  // While it is on, each of its queues has 4 MiB of records, which are gone when it is off; the
  // histograms (QueueStatistics::latencies) go on where they were. It stays over resets, moves and
  // pauses. Waits for a turn of each of its queues' I/O threads, and for moves. NotFound: names
  // what there is. DeadlineExceeded: the text says whether it will change.
  absl::Status SetTrace(const std::string& device, bool on,
                        absl::Duration patience = absl::InfiniteDuration());
  // The newest requests of the device, or of all where `device` is empty, by queue: of what is
  // traced. Also while it runs. Waits as SetTrace, and holds each I/O thread for some 100 us per
  // queue. DeadlineExceeded: ask again later.
  absl::StatusOr<std::vector<QueueLatencies>> Latencies(
      const std::string& device = "", absl::Duration patience = absl::InfiniteDuration()) const;
  // CLOCK_MONOTONIC at the first vCPU's first KVM_RUN; 0 before.
  int64_t first_run_ns() const;
  // Whether the guest has sent anything to its console yet. Any thread.
  bool console_spoken() const;

  // The machine's parts, for what is built in Ringside's tree (vmm/machine.h); nothing of them is
  // promised.
  class RINGSIDE_HIDDEN Internals;
  Internals& internals() { return *internals_; }

 private:
  RINGSIDE_HIDDEN explicit Machine(std::unique_ptr<Internals> internals);

  const std::unique_ptr<Internals> internals_;
};

}  // namespace ringside
