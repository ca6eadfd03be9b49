// Pausing a vCPU in the middle of what its exits are for.
#include <functional>
#include <random>

#include "kvm/vcpu.h"
#include "tests/support/kvm/vcpu_fixture.h"
#include "tests/support/races.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::SpinUntil;

// clang-format off
// Its buffer goes out, again and again.
GUEST_CODE(StringOutGuest, R"(
1:  mov %rbx, %rsi
    mov %ebp, %ecx
    rep outsb
    jmp 1b
)")
GUEST_CODE(StringInGuest, R"(
1:  mov %rbx, %rdi
    mov %ebp, %ecx
    rep insb
    jmp 1b
)")
GUEST_CODE(ReadingGuest, R"(
1:  inl %dx, %eax
    movl (%r9), %esi
    jmp 1b
)")
// To the last four bytes of one page and the first four of the next: KVM makes two exits of it.
GUEST_CODE(CrossingGuest, R"(
1:  movq %rax, 0xffc(%r9)
    jmp 1b
)")
// No interrupt table: a triple fault.
GUEST_CODE(FaultingGuest, R"(
    outb %al, %dx
    ud2
)")
GUEST_CODE(PortGuest, R"(
1:  outb %al, %dx
    incq (%rdi)
    jmp 1b
)")
// clang-format on

class FunctionHandler final : public IoHandler {
 public:
  explicit FunctionHandler(std::function<void(std::span<std::byte>)> access)
      : access_(std::move(access)) {}
  void Read(uint64_t, std::span<std::byte> data) override { access_(data); }
  void Write(uint64_t, std::span<const std::byte> data) override {
    std::byte copy[8] = {};
    std::ranges::copy(data, copy);
    access_({copy, data.size()});
  }

 private:
  std::function<void(std::span<std::byte>)> access_;
};

class VcpuExitTest : public testing::VcpuTest {
 protected:
  void OnPort(std::function<void(std::span<std::byte>)> access) {
    port_.emplace(std::move(access));
    ASSERT_TRUE(buses_.ports.Add(kPort, 8, *port_).ok());
  }
  void OnRegisters(std::function<void(std::span<std::byte>)> access) {
    registers_.emplace(std::move(access));
    ASSERT_TRUE(buses_.memory.Add(kRegisters, 0x2000, *registers_).ok());
  }
  // Differs from what is a buffer away, before or behind.
  static uint8_t TextAt(uint64_t position) { return static_cast<uint8_t>(position % 251); }
  uint64_t Others(Vcpu& vcpu) {
    for (const ExitCount& exit : vcpu.statistics().exits) {
      if (std::string(exit.reason) == "other") return exit.count;
    }
    return 0;
  }

 private:
  std::optional<FunctionHandler> port_, registers_;
};

// How often it is paused, each time at a moment of its own.
constexpr int kPauses = 500;
void PassSomeTime(std::minstd_rand& random) {
  testing::Delay(static_cast<int>(random() % 100'000));
}

TEST_F(VcpuExitTest, EveryByteOfAStringGoesOutOnceAndInOrder) {
  for (uint32_t i = 0; i < kBufferSize; ++i) *memory_->At(kBuffer + i, 1) = std::byte{TextAt(i)};
  std::atomic<uint64_t> arrived = 0;
  std::atomic<uint64_t> wrong = 0;
  OnPort([&](std::span<std::byte> data) {
    if (data.size() != 1 || data[0] != std::byte{TextAt(arrived % kBufferSize)}) ++wrong;
    ++arrived;
  });
  Vcpu& vcpu = AddGuest(StringOutGuest());
  const Joined joined(vcpu);
  ASSERT_TRUE(vcpu.Start().ok());
  std::minstd_rand random(1);
  for (int round = 0; round < kPauses; ++round) {
    PassSomeTime(random);
    Pause(vcpu);
    // Its registers say the same as the device.
    ASSERT_EQ((Registers(vcpu).rsi - kBuffer) % kBufferSize, arrived % kBufferSize)
        << "round " << round;
    vcpu.Resume();
  }
  EXPECT_TRUE(SpinUntil([&] { return arrived > 2 * kBufferSize; }));
  EXPECT_EQ(wrong, 0u);
}

TEST_F(VcpuExitTest, EveryByteOfAStringComesInOnceAndInOrder) {
  std::atomic<uint64_t> given = 0;
  OnPort([&](std::span<std::byte> data) {
    for (std::byte& byte : data) byte = std::byte{TextAt(given++)};
  });
  Vcpu& vcpu = AddGuest(StringInGuest());
  const Joined joined(vcpu);
  ASSERT_TRUE(vcpu.Start().ok());
  std::minstd_rand random(1);
  for (int round = 0; round < kPauses; ++round) {
    PassSomeTime(random);
    Pause(vcpu);
    const uint64_t here = given % kBufferSize;
    const uint64_t rdi = Registers(vcpu).rdi;
    if (rdi != kCounter) {  // not before the first
      ASSERT_EQ((rdi - kBuffer) % kBufferSize, here) << "round " << round;
    }
    for (uint64_t i = 0; i < here; ++i) {
      ASSERT_EQ(*memory_->At(kBuffer + i, 1), std::byte{TextAt(given - here + i)});
    }
    vcpu.Resume();
  }
  EXPECT_TRUE(SpinUntil([&] { return given > 2 * kBufferSize; }));
}

// Paused out of the handler, so that nothing but KVM_RUN can complete the exit.
TEST_F(VcpuExitTest, WhatWasReadIsInTheRegister) {
  int pauses = 0;
  uint32_t number = 0;
  Vcpu* vcpu = nullptr;
  BoundedEvent enough;
  const auto read = [&](std::span<std::byte> data, __u64 kvm_regs::* into) {
    ++number;
    std::memcpy(data.data(), &number, std::min(data.size(), sizeof number));
    if (pauses == 200) return;
    if (++pauses == 200) enough.Notify();
    vcpu->RequestPause([&, into] {
      EXPECT_EQ(Registers(*vcpu).*into, number);
      vcpu->Resume();
    });
  };
  OnPort([&](std::span<std::byte> data) { read(data, &kvm_regs::rax); });
  OnRegisters([&](std::span<std::byte> data) { read(data, &kvm_regs::rsi); });
  vcpu = &AddGuest(ReadingGuest());
  const Joined joined(*vcpu);
  ASSERT_TRUE(vcpu->Start().ok());
  enough.WaitOrAbort();
}

TEST_F(VcpuExitTest, AnAccessInTwoExitsIsWhole) {
  int halves = 0;
  int pauses = 0;
  Vcpu* vcpu = nullptr;
  BoundedEvent enough;
  OnRegisters([&](std::span<std::byte> data) {
    EXPECT_EQ(data.size(), 4u);
    if (++halves % 2 == 0 || pauses == 200) return;
    vcpu->RequestPause([&] {
      EXPECT_EQ(halves % 2, 0);
      if (++pauses == 200) enough.Notify();
      vcpu->Resume();
    });
  });
  vcpu = &AddGuest(CrossingGuest());
  const Joined joined(*vcpu);
  ASSERT_TRUE(vcpu->Start().ok());
  enough.WaitOrAbort();
}

TEST_F(VcpuExitTest, APauseBeforeTheGuestsEndIsAnswered) {
  Vcpu* vcpu = nullptr;
  BoundedEvent paused, ended;
  OnPort([&](std::span<std::byte>) { vcpu->RequestPause([&] { paused.Notify(); }); });
  vcpu = &AddGuest(FaultingGuest(), [&] { ended.Notify(); });
  const Joined joined(*vcpu);
  ASSERT_TRUE(vcpu->Start().ok());
  paused.WaitOrAbort();
  EXPECT_FALSE(ended.HasBeenNotified());
  vcpu->Resume();
  ended.WaitOrAbort();
}

TEST_F(VcpuExitTest, APauseAtTheGuestsEndKeepsNobodyWaiting) {
  Vcpu* vcpu = nullptr;
  BoundedEvent ended;
  vcpu = &AddGuest(FaultingGuest(), [&] {
    vcpu->RequestPause([] { ADD_FAILURE() << "it is over"; });
    ended.Notify();
  });
  const Joined joined(*vcpu);
  ASSERT_TRUE(vcpu->Start().ok());
  ended.WaitOrAbort();
  vcpu->Join();
}

// What a pause leaves behind ends one KVM_RUN at most.
TEST_F(VcpuExitTest, APauseThatIsCalledOffIsNotAnsweredAndCostsAtMostOneReturn) {
  constexpr int kCalledOff = 100;
  int exits = 0;
  Vcpu* vcpu = nullptr;
  BoundedEvent enough;
  OnPort([&](std::span<std::byte>) {
    if (++exits > kCalledOff) return enough.Notify();
    vcpu->RequestPause([] { ADD_FAILURE() << "called off"; });
    vcpu->RequestPause([] { ADD_FAILURE() << "called off"; });
    vcpu->Resume();
  });
  vcpu = &AddGuest(PortGuest());
  const Joined joined(*vcpu);
  ASSERT_TRUE(vcpu->Start().ok());
  enough.WaitOrAbort();
  ExpectRuns();
  vcpu->Join();
  EXPECT_LE(Others(*vcpu), kCalledOff + 1u);  // and the stop
}

}  // namespace
}  // namespace ringside
