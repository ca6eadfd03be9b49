// The KVM interface, one C++ call an ioctl: /dev/kvm, a virtual machine, a virtual CPU.
//
// Threads: a KvmVcpu is used by the thread that sets it up, then by the thread that runs it, and
// while that one is paused by one other at a time; the others by the thread that builds the
// machine, but for interrupt routes, irqfds, ioeventfds and single memory slots, which any thread
// changes while the machine runs.
// Errors name the ioctl.
// Spec: Linux Documentation/virt/kvm/api.rst.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "devices/guest_memory.h"
#include "kvm/kvm_api.h"

namespace ringside {

class KvmVm;
class KvmVcpu;

// By what the KVM of a host is known again: as long as this is the same, it offers guests the same.
// The boot it is of, and the device's file, which the kernel makes anew when its modules are loaded
// with other parameters. In a container that file may be older, and stay; then a reload is missed.
struct KvmIdentity {
  std::array<char, 40> boot = {};  // /proc/sys/kernel/random/boot_id; all zero: not known
  uint64_t device_inode = 0;
  int64_t device_changed_ns = 0;  // since 1970

  bool known() const { return boot[0] != 0; }
  bool operator==(const KvmIdentity&) const = default;
};

class Kvm {
 public:
  // NotFound or PermissionDenied with what to do about it.
  static absl::StatusOr<Kvm> Open(const std::string& path = "/dev/kvm");

  // KVM_CHECK_EXTENSION: 0 if absent, else a positive number whose meaning depends.
  int Extension(int capability) const;
  int max_vcpus() const;
  absl::StatusOr<std::vector<kvm_cpuid_entry2>> SupportedCpuid() const;
  KvmIdentity Identity() const;
  // Those MSRs that a vCPU's state has.
  absl::StatusOr<std::vector<uint32_t>> MsrsToSave() const;
  absl::StatusOr<KvmVm> CreateVm() const;

 private:
  explicit Kvm(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

class KvmVm {
 public:
  // In this order: a slot added after the irqchip makes KVM wait for a grace period.
  absl::Status SetMemory(std::span<const MemoryRegion> regions);
  // Memory of `size` bytes at the guest's address, in a slot of any number; of 0 bytes: none any
  // more, and when this returns no vCPU reaches it. Waits for a grace period once vCPUs run.
  absl::Status SetMemorySlot(uint32_t slot, uint64_t guest_address, std::byte* host, uint64_t size,
                             uint32_t flags = 0);
  // Whether KVM notes which pages of these, as SetMemory had them, the guest and KVM itself write.
  // What was noted is forgotten.
  absl::Status NoteWrites(std::span<const MemoryRegion> regions, bool on);
  // A bit for each page of the region of this number that was written since the last call, or since
  // notes are taken: as many words as it has, 64 pages each.
  absl::Status TakeWrites(uint32_t region, std::span<uint64_t> pages);
  // Pages that KVM itself needs in guest address space on Intel hosts without "unrestricted guest".
  absl::Status SetIntelPages(uint64_t tss, uint64_t identity_map);
  // How long a vCPU that halts is watched at most before it sleeps, instead of kvm.ko's own limit.
  // FailedPrecondition where that cannot be set.
  absl::Status SetHaltPoll(absl::Duration limit);
  // Local APICs, IOAPIC and PICs.
  absl::Status CreateIrqchip();
  // The interval timer (Intel 8254), after the irqchip. It costs a kernel thread, and the end of
  // the VM waits for that.
  absl::Status CreatePit();
  // Replaces the whole table of what a GSI means: interrupt controllers' pins and MSI messages.
  absl::Status SetGsiRouting(std::span<const kvm_irq_routing_entry> entries);
  // Every write to `event` becomes an interrupt of this GSI. What the event holds already is
  // delivered too, and stays in the event.
  absl::Status AssignIrqFd(const EventFd& event, uint32_t gsi);
  // Returns when no interrupt of it is on its way any more.
  absl::Status DeassignIrqFd(const EventFd& event, uint32_t gsi);
  // Of one that is assigned, and that nobody signals: waits until no interrupt of it is on its way
  // in the kernel's work queue any more.
  absl::Status SettleIrqFd(const EventFd& event, uint32_t gsi);
  // One interrupt at an edge-triggered pin of the IOAPIC, which has it when this returns.
  absl::Status Pulse(uint32_t pin);
  // A guest's write of any size and value at `address` signals `event` and goes no further.
  absl::Status AddIoEventFd(uint64_t address, const EventFd& event);
  absl::Status RemoveIoEventFd(uint64_t address, const EventFd& event);
  // For kvm/vm_state.h.
  int fd() const { return fd_.get(); }
  // `id` is the APIC id. The VM may go before its vCPUs: KVM counts references.
  absl::StatusOr<KvmVcpu> CreateVcpu(uint32_t id);

 private:
  friend class Kvm;
  KvmVm(UniqueFd fd, size_t run_size) : fd_(std::move(fd)), run_size_(run_size) {}
  UniqueFd fd_;
  size_t run_size_;  // bytes of a vCPU's kvm_run mapping
};

class KvmVcpu {
 public:
  KvmVcpu(KvmVcpu&& other) noexcept;
  ~KvmVcpu();

  absl::Status SetCpuid(std::span<const kvm_cpuid_entry2> entries);
  absl::StatusOr<kvm_sregs> GetSpecialRegisters() const;
  absl::Status SetSpecialRegisters(const kvm_sregs& registers);
  absl::StatusOr<kvm_regs> GetRegisters() const;
  absl::Status SetRegisters(const kvm_regs& registers);
  // Returns how many were taken: KVM stops at the first it refuses.
  absl::StatusOr<int> SetMsrs(std::span<const kvm_msr_entry> entries);
  // Of those whose indices are given; the same.
  absl::StatusOr<int> GetMsrs(std::span<kvm_msr_entry> entries);
  // How fast its TSC is. Nothing is done if it is that already, within 250 ppm, as hosts of one
  // kind differ by less. FailedPrecondition: it differs, and this processor cannot scale it.
  absl::Status SetTscKhz(uint32_t khz);
  // For kvm/vcpu_state.h.
  int fd() const { return fd_.get(); }
  // The only signal that ends Run early; it stays blocked outside.
  absl::Status AllowOnly(int signal);

  // Tells a guest whose clock is kvmclock that this vCPU stood still, so that its watchdogs do not
  // take the time for a lock-up. Nothing happens where the guest has another clock.
  void TellClockOfPause();

  // What KvmStats reads. Not while Run is under way: it would wait for its end.
  absl::StatusOr<UniqueFd> OpenStats() const;

  // KVM_RUN. 0 if the guest left with run().exit_reason, else the errno.
  int Run();
  kvm_run& run() { return *run_; }

 private:
  friend class KvmVm;
  KvmVcpu(UniqueFd fd, kvm_run* run, size_t run_size)
      : fd_(std::move(fd)), run_(run), run_size_(run_size) {}
  UniqueFd fd_;
  kvm_run* run_;
  size_t run_size_;
};

// What a machine cannot do without; `doctor` names those that a host lacks.
struct RequiredCapability {
  int number;
  const char* name;
  const char* purpose;
};
std::span<const RequiredCapability> RequiredCapabilities();

}  // namespace ringside
