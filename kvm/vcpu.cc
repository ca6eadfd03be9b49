#include "kvm/vcpu.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/affinity.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

namespace ringside {
namespace {

// Ends a KVM_RUN under way. Blocked in every vCPU thread, so its disposition in the process does
// not matter. Not a real-time signal: those are queued, and not sent at all where the user's queue
// is full (RLIMIT_SIGPENDING); of the others one is always pending, and never more.
constexpr int kLeaveSignal = SIGSTKFLT;

void ConsumeLeaveSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, kLeaveSignal);
  const timespec now = {};
  sigtimedwait(&set, nullptr, &now);
}

const char* InternalErrorName(uint32_t suberror) {
  switch (suberror) {
    case KVM_INTERNAL_ERROR_EMULATION:
      return "an instruction KVM cannot emulate";
    case KVM_INTERNAL_ERROR_SIMUL_EX:
      return "an exception while another was delivered";
    case KVM_INTERNAL_ERROR_DELIVERY_EV:
      return "an exit while an event was delivered";
    default:
      return "an unexpected exit inside KVM";
  }
}

const char* ExitName(size_t reason) {
  constexpr std::pair<size_t, const char*> kNames[] = {
      {KVM_EXIT_IO, "io"},
      {KVM_EXIT_HLT, "hlt"},
      {KVM_EXIT_MMIO, "mmio"},
      {KVM_EXIT_IRQ_WINDOW_OPEN, "irq_window"},
      {KVM_EXIT_SHUTDOWN, "shutdown"},
      {KVM_EXIT_FAIL_ENTRY, "fail_entry"},
      {KVM_EXIT_INTR, "intr"},
      {KVM_EXIT_INTERNAL_ERROR, "internal_error"},
      {KVM_EXIT_SYSTEM_EVENT, "system_event"},
  };
  const auto* name = std::ranges::find(kNames, reason, &std::pair<size_t, const char*>::first);
  return name != std::end(kNames) ? name->second : "other";
}

}  // namespace

Vcpu::Vcpu(uint32_t id, KvmVcpu kvm, std::vector<int> host_cpus, const Buses& buses,
           EndCallback end)
    : id_(id),
      kvm_(std::move(kvm)),
      host_cpus_(std::move(host_cpus)),
      buses_(&buses),
      end_(std::move(end)) {
  // Now, as KVM does not give them out while the vCPU runs.
  absl::StatusOr<UniqueFd> fd = kvm_.OpenStats();
  if (!fd.ok()) return;
  if (auto stats = KvmStats::Open(*std::move(fd)); stats.ok()) kvm_stats_ = *std::move(stats);
}

Vcpu::~Vcpu() {
  Join();
}

absl::Status Vcpu::Start() {
  RINGSIDE_RETURN_IF_ERROR(kvm_.AllowOnly(kLeaveSignal));
  RINGSIDE_ASSIGN_OR_RETURN(thread_,
                            StartThread(absl::StrFormat("vcpu-%d", id_), [this] { Loop(); }));
  return absl::OkStatus();
}

void Vcpu::RequestPause(PausedCallback paused) {
  const MutexLock lock(mutex_);
  if (wish_ == Wish::kStop) return;
  unanswered_.push_back(std::move(paused));
  wish_ = Wish::kPause;
  LeaveGuest();
  changed_.notify_all();
}

void Vcpu::Resume() {
  std::vector<PausedCallback> dropped;  // outlives the lock: what they own may call back
  const MutexLock lock(mutex_);
  if (wish_ != Wish::kPause) return;
  dropped.swap(unanswered_);
  wish_ = Wish::kRun;
  changed_.notify_all();
}

void Vcpu::RequestStop() {
  std::vector<PausedCallback> dropped;
  const MutexLock lock(mutex_);
  dropped.swap(unanswered_);
  wish_ = Wish::kStop;
  LeaveGuest();
  changed_.notify_all();
}

void Vcpu::Join() {
  RequestStop();
  if (thread_.joinable()) thread_.join();
}

// The signal ends a KVM_RUN under way, or the next one if it comes just before. immediate_exit ends
// the next one even where the thread has not begun; it also has KVM first complete the exit that
// was handled last (api.rst, KVM_RUN).
void Vcpu::LeaveGuest() {
  std::atomic_ref(kvm_.run().immediate_exit).store(1, std::memory_order_relaxed);
  if (running_) pthread_kill(running_thread_, kLeaveSignal);
}

void Vcpu::Loop() {
  {
    const MutexLock lock(mutex_);
    running_thread_ = pthread_self();
    running_ = true;
  }
  if (const absl::Status status = PinThisThread(host_cpus_); !status.ok()) {
    end_({EndKind::kFailure, absl::StrFormat("vCPU %d: %s", id_, Message(status))});
  }
  first_run_ns_.store(MonotonicNs(), std::memory_order_relaxed);
  // Relaxed: whoever sets it has KVM_RUN end with EINTR too, and HoldStill looks under the mutex.
  while (wish_.load(std::memory_order_relaxed) != Wish::kStop) {
    const int error = kvm_.Run();
    const size_t reason = error == 0 ? kvm_.run().exit_reason : exits_.size();
    exits_[std::min(reason, exits_.size() - 1)].Add();
    if (error == 0) {
      HandleExit();
    } else if (error == EINTR) {
      HoldStill();
    } else if (error != EAGAIN) {  // EAGAIN: a waiting vCPU has got its INIT
      End(EndKind::kFailure, std::string(Message(ErrnoError(error, "KVM_RUN failed"))));
      break;
    }
  }
  std::vector<PausedCallback> dropped;
  const MutexLock lock(mutex_);
  dropped.swap(unanswered_);
  wish_ = Wish::kStop;
  running_ = false;
}

// After EINTR, where KVM has nothing left of an exit: completing one comes first, and may bring up
// the next exit instead (the second half of an access, the next piece of a string instruction).
void Vcpu::HoldStill() {
  if (WaitForResume()) kvm_.TellClockOfPause();
}

// Returns whether the vCPU was paused and goes on.
bool Vcpu::WaitForResume() {
  bool paused = false;
  mutex_.lock();
  while (wish_ == Wish::kPause) {
    paused = true;
    if (unanswered_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    // One by one: where the first resumes, the others are dropped.
    PausedCallback paused_callback = std::move(unanswered_.front());
    unanswered_.erase(unanswered_.begin());
    mutex_.unlock();
    paused_callback();
    paused_callback = nullptr;  // what it owns may call back, too
    mutex_.lock();
  }
  // What made KVM_RUN end must not end the next one. Under the mutex, as LeaveGuest: of a request
  // that comes later both stay.
  const bool runs = wish_ == Wish::kRun;
  if (runs) {
    std::atomic_ref(kvm_.run().immediate_exit).store(0, std::memory_order_relaxed);
    ConsumeLeaveSignal();
  }
  mutex_.unlock();
  return paused && runs;
}

VcpuStatistics Vcpu::statistics() const {
  VcpuStatistics statistics;
  for (size_t reason = 0; reason < exits_.size(); ++reason) {
    if (const uint64_t count = exits_[reason].Get(); count > 0) {
      statistics.exits.push_back({ExitName(reason), count});
    }
  }
  if (kvm_stats_.has_value()) statistics.kernel_exits = kvm_stats_->Read();
  return statistics;
}

void Vcpu::HandleExit() {
  const kvm_run& run = kvm_.run();
  switch (run.exit_reason) {
    case KVM_EXIT_IO:
      return HandlePorts();
    case KVM_EXIT_MMIO:
      return HandleMemory();
    case KVM_EXIT_SYSTEM_EVENT:
      return HandleSystemEvent();
    case KVM_EXIT_INTR:
    case KVM_EXIT_IRQ_WINDOW_OPEN:
      return;
    case KVM_EXIT_SHUTDOWN:
      return End(EndKind::kCrash, "triple fault");
    case KVM_EXIT_FAIL_ENTRY:
      return End(EndKind::kCrash, absl::StrFormat("the CPU refuses the guest's state (reason %#x)",
                                                  run.fail_entry.hardware_entry_failure_reason));
    case KVM_EXIT_INTERNAL_ERROR:
      return End(EndKind::kCrash, InternalErrorName(run.internal.suberror));
    default:
      return End(EndKind::kFailure, absl::StrFormat("unexpected KVM exit %d", run.exit_reason));
  }
}

void Vcpu::HandlePorts() {
  kvm_run& run = kvm_.run();
  auto* data = reinterpret_cast<std::byte*>(&run) + run.io.data_offset;
  for (uint32_t i = 0; i < run.io.count; ++i, data += run.io.size) {  // count > 1: rep ins, outs
    const std::span access(data, run.io.size);
    if (run.io.direction == KVM_EXIT_IO_IN) {
      buses_->ports.Read(run.io.port, access);
    } else {
      buses_->ports.Write(run.io.port, access);
    }
  }
}

void Vcpu::HandleMemory() {
  kvm_run& run = kvm_.run();
  const std::span access(reinterpret_cast<std::byte*>(run.mmio.data),
                         std::min<size_t>(run.mmio.len, sizeof run.mmio.data));
  if (run.mmio.is_write != 0) {
    buses_->memory.Write(run.mmio.phys_addr, access);
  } else {
    buses_->memory.Read(run.mmio.phys_addr, access);
  }
}

void Vcpu::HandleSystemEvent() {
  switch (kvm_.run().system_event.type) {
    case KVM_SYSTEM_EVENT_SHUTDOWN:
      return End(EndKind::kPowerOff, "");
    case KVM_SYSTEM_EVENT_RESET:
      return End(EndKind::kReset, "");
    default:
      return End(EndKind::kCrash, "the guest reported a crash");
  }
}

void Vcpu::End(EndKind kind, std::string detail) {
  if (!detail.empty()) detail = absl::StrFormat("vCPU %d: %s%s", id_, detail, Where());
  end_({kind, std::move(detail)});
}

std::string Vcpu::Where() const {
  const absl::StatusOr<kvm_regs> registers = kvm_.GetRegisters();
  const absl::StatusOr<kvm_sregs> special = kvm_.GetSpecialRegisters();
  if (!registers.ok() || !special.ok()) return "";
  return absl::StrFormat(" at rip=%#x rsp=%#x cs=%#x cr0=%#x cr2=%#x cr3=%#x", registers->rip,
                         registers->rsp, special->cs.selector, special->cr0, special->cr2,
                         special->cr3);
}

}  // namespace ringside
