// The public class, on top of its parts.
#include "vmm/machine.h"

#include <utility>

#include "base/status.h"
#include "vmm/io_thread_options.h"
#include "vmm/throttle_options.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<Machine>> Machine::Create(const MachineConfig& config) {
  return Internals::Create(config, {});
}

Machine::Machine(std::unique_ptr<Internals> internals) : internals_(std::move(internals)) {}

Machine::~Machine() = default;

absl::Status Machine::Start() {
  return internals_->Start();
}

const MachineEnd& Machine::Wait() {
  return internals_->Wait();
}

void Machine::Stop() {
  internals_->End({EndKind::kStopped, ""});
}

absl::Status Machine::PressPowerButton() {
  return internals_->power_button_->Press();
}

absl::Status Machine::ShutDown(absl::Duration limit) {
  return internals_->power_button_->ShutDown(limit);
}

int Machine::end_fd() const {
  return internals_->end_event_.fd();
}

absl::Status Machine::Pause(absl::Duration patience) {
  return internals_->pauser_->PauseAndWait(patience);
}

void Machine::BeginPause(std::function<void(const absl::Status&)> paused) {
  internals_->pauser_->Begin(std::move(paused));
}

void Machine::Resume() {
  internals_->pauser_->Resume();
}

bool Machine::paused() const {
  return internals_->pauser_->paused();
}

absl::Status Machine::Save(const std::string& directory, const SaveOptions& options,
                           const std::function<void(uint64_t, uint64_t)>& progress) {
  return internals_->Save(directory, options, progress ? progress : [](uint64_t, uint64_t) {});
}

absl::Status Machine::RecordWorkingSet() {
  return internals_->RecordWorkingSet();
}

absl::StatusOr<std::shared_ptr<const MachineTemplate>> Machine::MakeTemplate(
    absl::Duration patience) {
  return internals_->MakeTemplate(patience);
}

absl::Status Machine::MoveQueue(const std::string& device, uint16_t queue,
                                const std::string& io_thread, absl::Duration patience) {
  return internals_->queues_->Move(device, queue, io_thread, patience);
}

absl::StatusOr<uint64_t> Machine::ResizeDisk(const std::string& disk, std::optional<uint64_t> size,
                                             absl::Duration patience) {
  return internals_->disks_->Resize(disk, size, *internals_->queues_, patience);
}

absl::Status Machine::SwapDisk(const std::string& disk, const BlockBackend& backend,
                               absl::Duration patience) {
  return internals_->disks_->Swap(
      disk, backend, {.queues = *internals_->queues_, .memory = *internals_->memory_}, patience);
}

absl::StatusOr<std::string> Machine::AddIoThread(const IoThreadConfig& config) {
  RINGSIDE_RETURN_IF_ERROR(internals_->CheckHasOwnIoThreads());
  RINGSIDE_RETURN_IF_ERROR(CheckIoThread(config));
  return internals_->io_threads_->Add(config);
}

absl::Status Machine::RemoveIoThread(const std::string& name, absl::Duration patience) {
  RINGSIDE_RETURN_IF_ERROR(internals_->CheckHasOwnIoThreads());
  return internals_->queues_->RemoveIoThread(name, patience);
}

absl::Status Machine::SetPoll(const std::string& io_thread, const PollConfig& poll,
                              absl::Duration patience) {
  RINGSIDE_RETURN_IF_ERROR(internals_->CheckHasOwnIoThreads());
  RINGSIDE_RETURN_IF_ERROR(CheckPoll(io_thread, poll));
  return internals_->io_threads_->SetPoll(io_thread, poll, patience);
}

absl::Status Machine::SetLink(const std::string& network, bool up, absl::Duration patience) {
  return internals_->networks_->SetLink(network, up, *internals_->queues_, patience);
}

absl::Status Machine::SetThrottle(const std::string& device, const ThrottleLimits& limits) {
  const bool is_network = internals_->networks_->Has(device);
  RINGSIDE_RETURN_IF_ERROR(
      CheckLimits(absl::StrFormat("%s '%s': ", is_network ? "network" : "disk", device), limits));
  return is_network ? internals_->networks_->SetThrottle(device, limits)
                    : internals_->disks_->SetThrottle(device, limits);
}

absl::Status Machine::SetGroupThrottle(const std::string& group, const ThrottleLimits& limits) {
  RINGSIDE_RETURN_IF_ERROR(CheckLimits(absl::StrFormat("throttle group '%s': ", group), limits));
  return internals_->disks_->SetGroupThrottle(group, limits);
}

MachineStatistics Machine::Statistics() {
  return internals_->Statistics();
}

absl::StatusOr<std::vector<IoThreadExplanation>> Machine::Explain(absl::Duration patience) const {
  const Deadline deadline = DeadlineIn(patience);
  RINGSIDE_ASSIGN_OR_RETURN(std::vector<IoThreadExplanation> threads,
                            internals_->io_threads_->Explain(patience));
  RINGSIDE_RETURN_IF_ERROR(internals_->queues_->Explain(threads, deadline));
  return threads;
}

absl::Status Machine::SetTrace(const std::string& device, bool on, absl::Duration patience) {
  return internals_->queues_->SetTrace(device, on, patience);
}

absl::StatusOr<std::vector<QueueLatencies>> Machine::Latencies(const std::string& device,
                                                               absl::Duration patience) const {
  return internals_->queues_->Latencies(device, patience);
}

int64_t Machine::first_run_ns() const {
  const auto& vcpus = internals_->vcpus_;
  return vcpus.empty() ? 0 : vcpus.front()->first_run_ns();
}

bool Machine::console_spoken() const {
  return internals_->console_->spoken();
}

}  // namespace ringside
