// A machine's life, from its start to its end.
#include <utility>

#include "absl/strings/str_cat.h"
#include "vmm/device_ids.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

constexpr absl::Duration kHolderPatience = absl::Seconds(1);
constexpr absl::Duration kConsolePatience = absl::Seconds(1);
constexpr absl::Duration kFlushLimit = absl::Seconds(2);  // that included

const char* EndName(EndKind kind) {
  switch (kind) {
    case EndKind::kPowerOff:
      return "power-off";
    case EndKind::kReset:
      return "reset";
    case EndKind::kStopped:
      return "stopped";
    case EndKind::kCrash:
      return "crash";
    case EndKind::kFailure:
      return "failure";
  }
  return "unknown";
}

// As ringside/event.h says of kEnded.
std::string EventDetail(const MachineEnd& end) {
  return end.detail.empty() ? EndName(end.kind) : absl::StrCat(EndName(end.kind), ": ", end.detail);
}

// How many bytes are left once its thread, which others may hold that share it, has had the time.
size_t AwaitConsole(Console& console, IoThread& io_thread) {
  const auto has_turned = io_thread.Begin([] {});
  while (true) {
    const size_t unwritten = console.Flush(kFlushLimit - kConsolePatience);
    if (unwritten == 0) return 0;
    if (!console.IsWriting() && has_turned->HasBeenNotified()) return unwritten;
  }
}

}  // namespace

Machine::Internals::~Internals() {
  End({EndKind::kStopped, ""});
  Wait();
  if (pauser_ != nullptr) pauser_->Close();
  // A move whose caller has given it up is a task on an I/O thread until it is over.
  if (queues_ != nullptr) (void)queues_->HoldMoves(DeadlineIn(absl::InfiniteDuration()));
}

absl::Status Machine::Internals::Start() {
  {
    const MutexLock lock(mutex_);
    if (!end_.has_value()) {
      power_button_->Begin();
      if (config_.kernel.empty()) devices_->Begin();  // it goes on from where it was saved
    }
  }
  events_->Put(EventKind::kStarted);  // whose sink may press the button
  console_->Start();
  if (agent_watch_ != nullptr) agent_watch_->Begin();
  for (const auto& vcpu : vcpus_) {
    if (absl::Status status = vcpu->Start(); !status.ok()) {
      End({EndKind::kFailure, std::string(Message(status))});
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Machine::Internals::MemoryLoss() const {
  if (memory_handler_ != nullptr) return memory_handler_->Loss();
  return memory_watch_ != nullptr ? memory_watch_->Loss() : absl::OkStatus();
}

void Machine::Internals::End(MachineEnd end) {
  // A guest crashes, or gives up, as well over memory that is gone.
  if (end.kind != EndKind::kPowerOff && end.kind != EndKind::kStopped) {
    if (const absl::Status loss = MemoryLoss(); !loss.ok()) {
      end = {EndKind::kFailure, std::string(Message(loss))};
    }
  }
  const MutexLock lock(mutex_);
  if (end_.has_value()) return;  // the first reason counts
  end_ = std::move(end);
  for (const auto& vcpu : vcpus_) vcpu->RequestStop();
  if (pauser_ != nullptr) pauser_->End();
  if (power_button_ != nullptr) power_button_->End();
  if (events_ != nullptr) events_->End(EventDetail(*end_));
  if (memory_handler_ != nullptr) memory_handler_->EndSoon();
  end_event_.Signal();
  ended_.Notify();
}

const MachineEnd& Machine::Internals::Wait() {
  ended_.Wait();
  // First: they write into memory that nobody else can keep them from.
  assigned_.LeaveBus();
  for (const auto& vcpu : vcpus_) vcpu->Join();
  // Before those are waited for who make devices anew: what their disks have may end slowly.
  if (disks_ != nullptr) disks_->EndSoon();
  if (pauser_ != nullptr) AwaitRelease();
  if (devices_ != nullptr) devices_->BeginStop();
  // Before devices are waited for: the storage of the console's output may hold those on its
  // thread.
  if (console_ != nullptr && !std::exchange(flushed_, true)) FlushConsole();
  if (devices_ != nullptr) devices_->Stop();
  if (vsock_ != nullptr) vsock_->Close();
  // These wait for that thread, so what is to be said of its storage has been.
  if (power_button_ != nullptr) power_button_->Stop();
  agent_watch_.reset();
  if (events_ != nullptr) events_->AwaitEnd();
  assigned_.Stop();
  if (memory_handler_ != nullptr) memory_handler_->Forget();
  const MutexLock lock(mutex_);
  return *end_;
}

// A save is given up where the machine ends, but for what its storage has begun.
void Machine::Internals::AwaitRelease() {
  if (pauser_->AwaitRelease(DeadlineIn(kHolderPatience))) return;
  log_.Log(Severity::kWarning,
           "a call still saves the machine, or exchanges its devices; the machine ends when that "
           "does (is the file system frozen, or the storage gone?)");
  pauser_->AwaitRelease(DeadlineIn(absl::InfiniteDuration()));
}

void Machine::Internals::FlushConsole() {
  size_t unwritten = console_->Flush(kConsolePatience);
  if (unwritten > 0 && console_->IsWriting()) {
    log_.Log(Severity::kWarning,
             "%s: its storage does not take what the guest has said; the machine ends when it "
             "does (is the file system frozen, or the storage gone?)",
             console_->OutputName());
  }
  if (unwritten > 0) unwritten = AwaitConsole(*console_, *io_thread_);
  if (unwritten > 0) {
    log_.Log(Severity::kWarning, "%d bytes of console output found no reader", unwritten);
  }
  if (const uint64_t dropped = console_->statistics().dropped; dropped > 0) {
    log_.Log(Severity::kWarning, "%d bytes of console output were dropped", dropped);
  }
}

MachineStatistics Machine::Internals::Statistics() {
  MachineStatistics statistics;
  statistics.console = console_->statistics();
  disks_->Collect(*queues_, statistics);
  networks_->Collect(*queues_, statistics);
  if (vsock_ != nullptr) vsock_->Collect(*queues_, statistics);
  for (const DeviceConfig& device : config_.devices) {
    statistics.devices.push_back({device.id, queues_->Statistics(device.id)});
  }
  for (const MachineHooks::InnerDevice& device : hooks_.devices) {
    statistics.devices.push_back({device.id, queues_->Statistics(device.id)});
  }
  statistics.devices.push_back({kRngId, queues_->Statistics(kRngId)});
  statistics.io_threads = io_threads_->Statistics();
  assigned_.Collect(statistics);
  for (const auto& vcpu : vcpus_) statistics.vcpus.push_back(vcpu->statistics());
  return statistics;
}

}  // namespace ringside
