#include "benchmarks/bare_restore.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kvm/kvm.h"
#include "kvm/memory_layout.h"
#include "kvm/vcpu_state.h"
#include "kvm/vm_state.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

constexpr int kMostExits =
    1000;  // before the guest says something; it has nothing else to exit for

// The memory's file, copied where it is written.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() {
    for (const MemoryRegion& region : regions_) munmap(region.host, region.size);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  absl::Status Add(uint64_t guest_address, uint64_t size, uint64_t offset, const UniqueFd& file) {
    void* const host = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                            file.get(), static_cast<off_t>(offset));
    if (host == MAP_FAILED) return ErrnoError(errno, "the memory cannot be mapped");
    regions_.push_back({.guest_address = guest_address,
                        .size = size,
                        .host = static_cast<std::byte*>(host),
                        .fd = file.get(),
                        .fd_offset = offset,
                        .index = static_cast<uint16_t>(regions_.size())});
    return absl::OkStatus();
  }
  std::span<const MemoryRegion> regions() const { return regions_; }

 private:
  std::vector<MemoryRegion> regions_;
};

absl::Status RunUntilItSpeaks(KvmVcpu& vcpu) {
  for (int exits = 0; exits < kMostExits; ++exits) {
    if (const int error = vcpu.Run(); error != 0) return ErrnoError(error, "KVM_RUN failed");
    const kvm_run& run = vcpu.run();
    if (run.exit_reason == KVM_EXIT_IO && run.io.port == kCom1Port &&
        run.io.direction == KVM_EXIT_IO_OUT) {
      return absl::OkStatus();
    }
  }
  return absl::InternalError("the guest does all but speak");
}

struct Parts final : BareMachine {
  Parts(std::unique_ptr<Mapping> mapping, KvmVm&& machine, KvmVcpu&& processor)
      : memory(std::move(mapping)), vm(std::move(machine)), vcpu(std::move(processor)) {}

  const std::unique_ptr<Mapping> memory;
  KvmVm vm;
  KvmVcpu vcpu;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BareMachine>> GoOnBare(const Snapshot& snapshot) {
  const SavedMachine& state = snapshot.state;  // by this host, as all of them here
  if (state.vcpus.size() != 1) return BadInput("the snapshot has more vCPUs than one");
  RINGSIDE_ASSIGN_OR_RETURN(const Kvm kvm, Kvm::Open());
  auto memory = std::make_unique<Mapping>();
  const uint64_t low = std::min(state.memory.size, kLowMemoryEnd);
  RINGSIDE_RETURN_IF_ERROR(memory->Add(0, low, 0, snapshot.memory));
  if (low < state.memory.size) {
    RINGSIDE_RETURN_IF_ERROR(
        memory->Add(kMemoryAbove4G, state.memory.size - low, low, snapshot.memory));
  }
  RINGSIDE_ASSIGN_OR_RETURN(KvmVm vm, kvm.CreateVm());
  RINGSIDE_RETURN_IF_ERROR(vm.SetMemory(memory->regions()));
  RINGSIDE_RETURN_IF_ERROR(vm.SetIntelPages(kKvmTss, kKvmIdentityMap));
  RINGSIDE_RETURN_IF_ERROR(vm.CreateIrqchip());
  if (state.vm.pit.has_value()) RINGSIDE_RETURN_IF_ERROR(vm.CreatePit());
  RINGSIDE_ASSIGN_OR_RETURN(KvmVcpu vcpu, vm.CreateVcpu(0));
  RINGSIDE_RETURN_IF_ERROR(RestoreVcpu(state.vcpus[0], VcpuStateShape::OfTheSame(kvm), vcpu));
  RINGSIDE_RETURN_IF_ERROR(RestoreVm(state.vm, RestoreClock::kStood, vm));
  RINGSIDE_RETURN_IF_ERROR(RunUntilItSpeaks(vcpu));
  return std::make_unique<Parts>(std::move(memory), std::move(vm), std::move(vcpu));
}

absl::StatusOr<int64_t> RestoreBare(const std::string& directory) {
  const int64_t begin = MonotonicNs();
  RINGSIDE_ASSIGN_OR_RETURN(const Snapshot snapshot, OpenSnapshot(directory));
  RINGSIDE_ASSIGN_OR_RETURN(const auto machine, GoOnBare(snapshot));
  return MonotonicNs() - begin;
}

}  // namespace ringside
