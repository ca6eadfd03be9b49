// A virtual CPU and the thread that runs it: enters the guest, and when the guest leaves serves
// what it left for.
//
// Threads: Start, RequestStop and Join from the machine's threads, RequestStop from any; the rest
// runs on the vCPU's own thread. It is stopped without any signal handler of the process: one
// real-time signal is blocked in this thread except inside KVM_RUN, which it interrupts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "base/counter.h"
#include "base/sync.h"
#include "devices/bus.h"
#include "kvm/kvm.h"
#include "kvm/kvm_stats.h"
#include "kvm/machine_end.h"
#include "kvm/vcpu_statistics.h"

namespace ringside {

class Vcpu {
 public:
  // Called on the vCPU's thread when the guest or KVM has ended the machine.
  using EndCallback = std::function<void(MachineEnd)>;

  // `memory_bus` and `port_bus` outlive the vCPU. `host_cpus`: where its thread may run; empty:
  // anywhere.
  Vcpu(uint32_t id, KvmVcpu kvm, std::vector<int> host_cpus, const Bus& memory_bus,
       const Bus& port_bus, EndCallback end);
  ~Vcpu();

  KvmVcpu& kvm() { return kvm_; }  // before Start

  absl::Status Start();
  // Makes the thread leave the guest, soon; does not wait.
  void RequestStop();
  // Waits until the thread has ended. After RequestStop.
  void Join();
  // CLOCK_MONOTONIC just before the first KVM_RUN; 0 if that was not reached.
  int64_t first_run_ns() const { return first_run_ns_.load(std::memory_order_relaxed); }
  // Any thread.
  VcpuStatistics statistics() const;

 private:
  static constexpr size_t kCountedExits = 32;

  void Loop();
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
  const Bus& memory_bus_;
  const Bus& port_bus_;
  const EndCallback end_;

  std::atomic<bool> stop_{false};
  // Set by the thread itself before it first looks at stop_; 0 until then.
  std::atomic<pthread_t> running_thread_{0};
  std::atomic<int64_t> first_run_ns_{0};
  std::array<Counter, kCountedExits> exits_;  // by reason; the last: all others, signals included
  Event left_;                                // the loop is over
  std::thread thread_;
};

}  // namespace ringside
