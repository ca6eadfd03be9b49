// A virtual CPU and the thread that runs it: enters the guest, and when the guest leaves serves
// what it left for. It can be paused and resumed any number of times, and be stopped once.
//
// Threads: Start and Join from the machine's threads; RequestPause, Resume and RequestStop from
// any, also at once and from callbacks, and none of them waits; the rest runs on the vCPU's own
// thread. The thread leaves the guest without any signal handler of the process: SIGSTKFLT, which
// Linux never sends, is blocked in it except inside KVM_RUN, which the signal interrupts.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <optional>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/counter.h"
#include "base/sync.h"
#include "devices/bus.h"
#include "kvm/kvm.h"
#include "kvm/kvm_stats.h"
#include "ringside/machine_end.h"
#include "ringside/statistics.h"

namespace ringside {

class Vcpu {
 public:
  // Called on the vCPU's thread when the guest or KVM has ended the machine.
  using EndCallback = std::function<void(MachineEnd)>;
  using PausedCallback = std::function<void()>;

  // `buses` outlive the vCPU. `host_cpus`: where its thread may run; empty: anywhere.
  Vcpu(uint32_t id, KvmVcpu kvm, std::vector<int> host_cpus, const Buses& buses, EndCallback end);
  ~Vcpu();

  // Before Start, and while the vCPU is paused.
  KvmVcpu& kvm() { return kvm_; }
  void Connect(const Buses& buses) { buses_ = &buses; }

  absl::Status Start();
  // Has the vCPU leave the guest and stay out of it until Resume; before Start, it does not enter
  // the guest in the first place. `paused` is called on the vCPU's thread, without any lock: no
  // exit is half done in KVM then, so registers can be read and written, and nothing changes them
  // until Resume. Of a vCPU that is paused already, too, so that several may ask; one Resume is for
  // all. It is dropped uncalled where Resume or RequestStop comes first, and where the vCPU is
  // over, which its EndCallback has told. One that has begun is not waited for by either.
  void RequestPause(PausedCallback paused);
  // Has the vCPU go on, or calls off a pause that is still under way. A guest that uses kvmclock is
  // told that it stood still.
  void Resume();
  // Makes the thread leave the guest for good, soon, and also when it is paused.
  void RequestStop();
  // Requests the stop and waits until the thread has ended.
  void Join();
  // CLOCK_MONOTONIC just before the first KVM_RUN; 0 if that was not reached.
  int64_t first_run_ns() const { return first_run_ns_.load(std::memory_order_relaxed); }
  // Any thread.
  VcpuStatistics statistics() const;

 private:
  static constexpr size_t kCountedExits = 32;

  enum class Wish { kRun, kPause, kStop };

  void Loop();
  void LeaveGuest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HoldStill();
  bool WaitForResume();
  void HandleExit();
  void HandlePorts();
  void HandleMemory();
  void HandleSystemEvent();
  void End(EndKind kind, std::string detail);
  std::string Where() const;

  const uint32_t id_;
  KvmVcpu kvm_;
  std::optional<KvmStats> kvm_stats_;  // where this host's KVM has them
  const std::vector<int> host_cpus_;
  const Buses* buses_;
  const EndCallback end_;

  Mutex mutex_;
  // Written under the mutex. The thread looks at it after each exit without, for kStop alone.
  std::atomic<Wish> wish_{Wish::kRun};
  std::vector<PausedCallback> unanswered_ ABSL_GUARDED_BY(mutex_);  // of the pause that is wished
  bool running_ ABSL_GUARDED_BY(mutex_) = false;                    // the thread is in Loop
  pthread_t running_thread_ ABSL_GUARDED_BY(mutex_) = {};
  std::condition_variable_any changed_;  // wish_ or unanswered_
  std::atomic<int64_t> first_run_ns_{0};
  std::array<Counter, kCountedExits> exits_;  // by reason; the last: all others, signals included
  std::thread thread_;
};

}  // namespace ringside
