// vCPUs on this host's KVM, with a few instructions of the test's own for a guest.
#pragma once

#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include "boot/boot_cpu.h"
#include "devices/guest_memory.h"
#include "kvm/cpuid.h"
#include "kvm/memory_layout.h"
#include "kvm/vcpu.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

// Defines a span NAME of the machine code of these instructions. They may be put anywhere.
#define GUEST_CODE(name, instructions)                                            \
  extern "C" const char name##_begin[], name##_end[];                             \
  asm(".pushsection .rodata\n" #name "_begin:\n" instructions "\n.code64\n" #name \
      "_end:\n.popsection");                                                      \
  inline std::span<const char> name() {                                           \
    return {name##_begin, static_cast<size_t>(name##_end - name##_begin)};        \
  }

namespace ringside::testing {

class VcpuTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kStartUpPage = 0x10000;  // where a processor starts in real mode
  static constexpr uint64_t kCode = kHighMemoryStart;
  static constexpr uint64_t kCounter = 0x110000;
  static constexpr uint64_t kBuffer = 0x120000;
  static constexpr uint64_t kInterruptTable = 0x130000;
  static constexpr uint16_t kPort = 0x3f8;
  static constexpr uint64_t kRegisters = 0xd0000000;  // two pages on the memory bus

  void SetUp() override {
    SKIP_WITHOUT_KVM();
    const GuestMemory::Range range = {0, kMinMemory};
    memory_ = *GuestMemory::Create({&range, 1});
    WriteBootTables(*memory_);
    kvm_ = *Kvm::Open();
    MakeVm();
  }
  // Before what their threads use.
  void TearDown() override { vcpus_.clear(); }

  // Without vCPUs; in place of the one that was there.
  void MakeVm() {
    vcpus_.clear();
    vm_ = *kvm_->CreateVm();
    ASSERT_TRUE(vm_->SetMemory(memory_->regions()).ok());
    ASSERT_TRUE(vm_->SetIntelPages(kKvmTss, kKvmIdentityMap).ok());
    ASSERT_TRUE(vm_->CreateIrqchip().ok());
  }

  // The next vCPU. `end` is called at its end; it is stopped then anyway.
  Vcpu& AddVcpu(std::function<void()> end = [] {}) {
    const auto id = static_cast<uint32_t>(vcpus_.size());
    KvmVcpu kvm = *vm_->CreateVcpu(id);
    EXPECT_TRUE(kvm.SetCpuid(MakeCpuid(*kvm_->SupportedCpuid(), id, 2, true)).ok());
    const auto self = std::make_shared<Vcpu*>();
    vcpus_.push_back(std::make_unique<Vcpu>(id, std::move(kvm), std::vector<int>{}, buses_,
                                            [self, end](MachineEnd) {
                                              end();
                                              (*self)->RequestStop();
                                            }));
    *self = vcpus_.back().get();
    return **self;
  }
  // The first vCPU, in 64-bit mode, about to run `code`: rdi has the counter's address, rbx and
  // rsi the buffer's, rbp kBufferSize, r8 the local APIC's, r9 that of kRegisters, dx the port.
  Vcpu& AddGuest(std::span<const char> code, std::function<void()> end = [] {}) {
    Vcpu& vcpu = AddVcpu(std::move(end));
    Load(kCode, code);
    EXPECT_TRUE(SetBootRegisters(vcpu.kvm(), {BootProtocol::kLinux, kCode, 0}).ok());
    kvm_regs registers = Registers(vcpu);
    registers.rdi = kCounter;
    registers.rsi = registers.rbx = kBuffer;
    registers.rbp = kBufferSize;
    registers.r8 = kLocalApic;
    registers.r9 = kRegisters;
    registers.rdx = kPort;
    EXPECT_TRUE(vcpu.kvm().SetRegisters(registers).ok());
    return vcpu;
  }
  // Ends a vCPU before what its handlers and callbacks have of the test's own: to be declared
  // after.
  struct Joined {
    explicit Joined(Vcpu& vcpu) : vcpu(vcpu) {}
    ~Joined() { vcpu.Join(); }
    Vcpu& vcpu;
  };
  void Load(uint64_t address, std::span<const char> bytes) {
    std::memcpy(memory_->At(address, bytes.size()), bytes.data(), bytes.size());
  }

  static void Pause(Vcpu& vcpu) {
    const auto paused = std::make_shared<BoundedEvent>();
    vcpu.RequestPause([paused] { paused->Notify(); });
    paused->WaitOrAbort();
  }
  static kvm_regs Registers(Vcpu& vcpu) {
    const absl::StatusOr<kvm_regs> registers = vcpu.kvm().GetRegisters();
    EXPECT_TRUE(registers.ok()) << registers.status();
    return *registers;
  }
  // What the guest counts at an address, with its other processors.
  uint32_t Counter(uint64_t address = kCounter) const {
    auto* counter = reinterpret_cast<uint32_t*>(memory_->At(address, sizeof(uint32_t)));
    return std::atomic_ref(*counter).load();
  }
  void ExpectRuns(uint64_t counter = kCounter) const {
    const uint32_t before = Counter(counter);
    EXPECT_TRUE(SpinUntil([&] { return Counter(counter) != before; }));
  }

  static constexpr uint32_t kBufferSize = 5000;  // more than a page, and not whole pages
  std::unique_ptr<GuestMemory> memory_;
  std::optional<Kvm> kvm_;
  std::optional<KvmVm> vm_;
  Buses buses_;
  std::vector<std::unique_ptr<Vcpu>> vcpus_;
};

}  // namespace ringside::testing
