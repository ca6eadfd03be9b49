// Saves a paused machine, and makes one that goes on from there.
//
// What is saved comes in the order in which one part may still change the next: devices, whose last
// answers raise interrupts, then vCPUs with their interrupt controllers, then what the machine has
// of both beside them. A restore goes the other way, so that no interrupt of a device is lost under
// a controller's state.
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/memory_file.h"
#include "base/pages.h"
#include "base/status.h"
#include "boot/generation.h"
#include "kvm/memory_layout.h"
#include "snapshot/state_file.h"
#include "vmm/machine.h"
#include "vmm/machine_state.h"

namespace ringside {

absl::Status Machine::Internals::Save(const std::string& directory, const SaveOptions& options,
                                      const MemoryProgress& progress, AfterSave after) {
  RINGSIDE_RETURN_IF_ERROR(pauser_->Hold());
  const absl::Cleanup release = [this] { pauser_->Release(); };
  const FaultsAllowed faults;
  SavedMachine state;
  if (options.difference) {
    RINGSIDE_ASSIGN_OR_RETURN(state.difference.emplace().base, writes_->Base());
  }
  RINGSIDE_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotWriter> writer,
                            SnapshotWriter::In(directory));
  RINGSIDE_RETURN_IF_ERROR(SaveState(state));
  RINGSIDE_RETURN_IF_ERROR(FlushDisks(DeadlineIn(absl::InfiniteDuration())));
  RINGSIDE_RETURN_IF_ERROR(SaveMemory(*writer, progress, state));
  RINGSIDE_RETURN_IF_ERROR(CheckSaves());
  const bool tracks = options.track || options.difference;
  // Should this fail, the notes from before are still of use.
  absl::Cleanup end_new_notes = [this, had_notes = writes_->has_notes()] {
    if (!had_notes) writes_->End();
  };
  if (tracks) RINGSIDE_RETURN_IF_ERROR(writes_->Begin());
  RINGSIDE_RETURN_IF_ERROR(writer->Commit(EncodeMachine(state)));
  std::move(end_new_notes).Cancel();
  if (tracks) {
    writes_->SetBase(state.memory.identity);
  } else {
    writes_->End();
  }
  if (after == AfterSave::kStop) End({EndKind::kStopped, ""});
  return absl::OkStatus();
}

// What is saved goes on from what its guest has written, which a copy of a disk's file, or a cut of
// the power, would not leave there: an overlay's map is in memory until it is flushed.
absl::Status Machine::Internals::FlushDisks(Deadline deadline) {
  absl::Status flushed = disks_->Flush(*queues_, deadline, [this] { return pauser_->ended(); });
  // The machine's end cancels flushes, and is what there is to say then.
  if (!flushed.ok()) RINGSIDE_RETURN_IF_ERROR(CheckSaves());
  return flushed;
}

absl::Status Machine::Internals::PauseAndSave(const std::string& directory,
                                              const SaveOptions& options,
                                              const MemoryProgress& progress, AfterSave after,
                                              absl::Duration patience) {
  RINGSIDE_RETURN_IF_ERROR(pauser_->PauseAndWait(patience, Pauser::Until::kLetGo));
  const absl::Cleanup let_go = [this] { pauser_->LetGo(); };
  return Save(directory, options, progress, after);
}

absl::Status Machine::Internals::CheckSaves() const {
  RINGSIDE_RETURN_IF_ERROR(MemoryLoss());
  if (!pauser_->ended()) return absl::OkStatus();
  return absl::CancelledError("the machine has ended before it was saved: nothing of it is kept");
}

// All of it, or the difference. Last, as KVM writes into memory when it is asked for what a vCPU
// has.
absl::Status Machine::Internals::SaveMemory(const SnapshotWriter& writer,
                                            const MemoryProgress& progress, SavedMachine& state) {
  const std::span<const MemoryRegion> regions = memory_->regions();
  RINGSIDE_ASSIGN_OR_RETURN(state.memory, NewMemoryImage(regions));
  // What is lost reads as zeroes, a page at a time.
  const MemoryStep step = [&](uint64_t done, uint64_t of) {
    progress(done, of);
    return CheckSaves();
  };
  const auto write = [&](std::span<const MemoryRegion> pieces, MemoryImage& image) {
    return WriteMemoryImage(pieces, memory_->is_shared(), writer.memory(), writer.memory_path(),
                            step, image);
  };
  if (!state.difference.has_value()) return write(regions, state.memory);
  PageRuns& pages = state.difference->pages;
  RINGSIDE_ASSIGN_OR_RETURN(pages, writes_->Written());
  Coarsen(pages, kMostRuns);
  MemoryImage image = FileImage(state);
  RINGSIDE_RETURN_IF_ERROR(write(PartsOf(pages, regions), image));
  state.memory.crc = image.crc;
  return absl::OkStatus();
}

absl::Status Machine::Internals::RecordWorkingSet() const {
  if (from_ == nullptr || from_->parts().snapshot.path.empty()) {
    return absl::FailedPreconditionError(
        "a working set is of a machine that goes on from the directory of a snapshot, with its "
        "memory mapped (restore-memory=mapped): this one does not");
  }
  const Snapshot& snapshot = from_->parts().snapshot;
  RINGSIDE_ASSIGN_OR_RETURN(const WorkingSet set, FindTouchedPages(memory_->regions()));
  const std::vector<uint8_t> bytes = EncodeWorkingSet(set, snapshot.state.memory.identity);
  if (bytes.size() > kMostStateBytes) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the working set is too scattered: its file would have %d bytes, and may "
                        "have %d",
                        bytes.size(), kMostStateBytes));
  }
  struct stat memory, in_directory;
  if (fstat(snapshot.memory.get(), &memory) != 0 ||
      stat(snapshot.path.c_str(), &in_directory) != 0 || memory.st_ino != in_directory.st_ino ||
      memory.st_dev != in_directory.st_dev) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the snapshot in '%s' is not the one that this machine goes on from any more: its working "
        "set is not written there",
        snapshot.directory));
  }
  // Under its name only once all of it is there, after a power cut, too; and for whom the memory
  // is.
  const std::string path = WorkingSetPath(snapshot.directory);
  std::string partial = path + ".XXXXXX";
  const UniqueFd fd(mkostemp(partial.data(), O_CLOEXEC));
  absl::Cleanup remove = [&] { unlink(partial.c_str()); };
  errno = fd.valid() ? ENOSPC : errno;  // of a write that is cut off
  if (!fd.valid() ||
      write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      fchmod(fd.get(), memory.st_mode & 0666) != 0 || fdatasync(fd.get()) != 0 ||
      rename(partial.c_str(), path.c_str()) != 0) {
    return absl::FailedPreconditionError(
        ErrnoError(errno, absl::StrFormat("cannot write '%s'", path)).message());
  }
  std::move(remove).Cancel();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const MachineTemplate>> Machine::Internals::MakeTemplate(
    absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  RINGSIDE_RETURN_IF_ERROR(pauser_->Hold(deadline));
  const absl::Cleanup release = [this] { pauser_->Release(); };
  RINGSIDE_RETURN_IF_ERROR(FlushDisks(deadline));
  // No disk is exchanged for one that needs shared memory.
  RINGSIDE_RETURN_IF_ERROR(queues_->HoldMoves(deadline));
  const absl::Cleanup let_move = [this] { queues_->LetMove(); };
  const FaultsAllowed faults;
  auto parts = std::make_unique<MachineTemplate::Parts>();
  parts->name = "the template";
  RINGSIDE_RETURN_IF_ERROR(SaveState(parts->snapshot.state));
  RINGSIDE_RETURN_IF_ERROR(FreezeMemory(parts->snapshot));
  RINGSIDE_RETURN_IF_ERROR(MemoryLoss());  // once all is there it outlives the machine
  return std::make_shared<const MachineTemplate>(std::move(parts));
}

// What is shared becomes the template's as it stands. A copy's own pages are in no file.
absl::Status Machine::Internals::FreezeMemory(Snapshot& snapshot) {
  const std::span<const MemoryRegion> regions = memory_->regions();
  if (memory_->is_shared()) {
    RINGSIDE_RETURN_IF_ERROR(disks_->CheckTakeAnyMemory());
    snapshot.memory = UniqueFd(fcntl(regions.front().fd, F_DUPFD_CLOEXEC, 0));
    if (!snapshot.memory.valid()) return ErrnoError(errno, "cannot duplicate a descriptor");
    RINGSIDE_RETURN_IF_ERROR(memory_->Freeze());  // last, as it is for good
    snapshot.state.memory.size = config_.memory;
    snapshot.state.memory.regions = static_cast<uint32_t>(regions.size());
    return absl::OkStatus();
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      snapshot.memory,
      CreateMemoryFile("guest-template", config_.memory + kPageSize, MemoryFileUse::kMayBeFrozen));
  RINGSIDE_ASSIGN_OR_RETURN(snapshot.state.memory, NewMemoryImage(regions));
  const MemoryStep step = [this](uint64_t, uint64_t) { return CheckSaves(); };
  RINGSIDE_RETURN_IF_ERROR(WriteMemoryImage(regions, false, snapshot.memory, "guest-template", step,
                                            snapshot.state.memory));
  if (fcntl(snapshot.memory.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0) return absl::OkStatus();
  return ErrnoError(errno, "cannot seal the template's memory");
}

absl::Status Machine::Internals::SaveState(SavedMachine& state) {
  state.saved_at_ns = absl::ToUnixNanos(absl::Now());
  RINGSIDE_RETURN_IF_ERROR(assigned_.CheckSaved());
  RINGSIDE_ASSIGN_OR_RETURN(state.devices, devices_->Save());
  state.devices.serial = console_->serial().Save();
  disks_->Save(state.host);
  networks_->Save(state.host);
  RINGSIDE_RETURN_IF_ERROR(SettleInterrupts());
  RINGSIDE_ASSIGN_OR_RETURN(const Kvm kvm, Kvm::Open(config_.kvm_path));
  state.host.kvm = kvm.Identity();
  RINGSIDE_ASSIGN_OR_RETURN(const VcpuStateShape shape, VcpuStateShape::Of(kvm));
  for (size_t i = 0; i < vcpus_.size(); ++i) {
    VcpuState& vcpu = state.vcpus.emplace_back();
    RINGSIDE_ASSIGN_OR_RETURN(vcpu, SaveVcpu(vcpus_[i]->kvm(), shape));
    vcpu.cpuid = cpuids_[i];
  }
  RINGSIDE_ASSIGN_OR_RETURN(state.vm, SaveVm(*vm_, has_pit_));
  return absl::OkStatus();
}

// An interrupt may still be on its way from its event to KVM's controllers.
absl::Status Machine::Internals::SettleInterrupts() {
  RINGSIDE_RETURN_IF_ERROR(vm_->SettleIrqFd(serial_interrupt_, kCom1Irq));
  RINGSIDE_RETURN_IF_ERROR(vm_->SettleIrqFd(power_interrupt_, kPowerButtonPin));
  return interrupt_router_->Settle();
}

// KVM is asked here, so that a machine which is never saved starts without it.
absl::StatusOr<VcpuStateShape> Machine::Internals::ShapeOf(const SavedMachine& state) const {
  RINGSIDE_ASSIGN_OR_RETURN(const Kvm kvm, Kvm::Open(config_.kvm_path));
  if (state.host.kvm.known() && state.host.kvm == kvm.Identity())
    return VcpuStateShape::OfTheSame(kvm);
  return VcpuStateShape::Of(kvm);
}

absl::Status Machine::Internals::WatchMemory() {
  const Snapshot& snapshot = from_->parts().snapshot;
  const auto lost = [this] { End({EndKind::kFailure, "its memory is lost"}); };
  if (memory_->userfault() != nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(memory_handler_,
                              MemoryHandler::Connect(*memory_, {.path = config_.restore_handler,
                                                                .file = MemoryPath(config_.restore),
                                                                .image = snapshot.state.memory,
                                                                .patience = hooks_.handler_patience,
                                                                .lost = lost}));
    return memory_handler_->Begin();
  }
  if (memory_->is_shared() || snapshot.path.empty()) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(memory_watch_,
                            MemoryWatch::Create(*memory_, snapshot.path, *io_thread_, lost));
  return absl::OkStatus();
}

absl::Status Machine::Internals::Load(const SavedMachine& state) {
  const FaultsAllowed faults;
  if (state.vcpus.size() != vcpus_.size()) {
    return BadInput("the saved machine has %d vCPUs, and this one %d: give it as many",
                    state.vcpus.size(), vcpus_.size());
  }
  if (state.vm.pit.has_value() != has_pit_) {
    return BadInput("the saved machine has %s interval timer, and this one %s: give --pit as then",
                    state.vm.pit.has_value() ? "an" : "no", has_pit_ ? "has" : "has none");
  }
  RINGSIDE_RETURN_IF_ERROR(devices_->Check(state.devices));
  RINGSIDE_RETURN_IF_ERROR(disks_->Restore(state.host));
  networks_->Restore(state.host);
  RINGSIDE_ASSIGN_OR_RETURN(const VcpuStateShape shape, ShapeOf(state));
  for (size_t i = 0; i < vcpus_.size(); ++i) {
    cpuids_[i] = state.vcpus[i].cpuid;
    const absl::Status status = RestoreVcpu(state.vcpus[i], shape, vcpus_[i]->kvm());
    RINGSIDE_RETURN_IF_ERROR(Of(absl::StrFormat("vCPU %d", i), status));
  }
  RINGSIDE_RETURN_IF_ERROR(RestoreVm(state.vm, config_.restore_clock, *vm_));
  RINGSIDE_RETURN_IF_ERROR(console_->RestorePort(state.devices.serial));
  devices_->Rest();
  RINGSIDE_RETURN_IF_ERROR(devices_->Restore(state.devices));
  RINGSIDE_RETURN_IF_ERROR(RenewGeneration(*memory_));
  RINGSIDE_RETURN_IF_ERROR(vm_->Pulse(kGenerationPin));
  for (const auto& vcpu : vcpus_) vcpu->kvm().TellClockOfPause();
  return MemoryLoss();
}

}  // namespace ringside
