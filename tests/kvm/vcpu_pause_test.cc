// Pausing a vCPU in whatever it does.
#include <ctime>
#include <pthread.h>

#include "absl/time/clock.h"
#include "base/log.h"
#include "kvm/interrupt_router.h"
#include "kvm/vcpu.h"
#include "tests/support/kvm/vcpu_fixture.h"
#include "tests/support/recording_log.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::SpinUntil;
using VcpuPauseTest = testing::VcpuTest;

// clang-format off
GUEST_CODE(SpinningGuest, R"(
1:  incq (%rdi)
    jmp 1b
)")
// Halts, and counts the interrupts it gets. SDM volume 3, chapter 11: 0xf0 is the spurious-interrupt
// vector register, 0xb0 end of interrupt.
GUEST_CODE(HaltingGuest, R"(
    movl $0x1ff, 0xf0(%r8)
    sti
1:  hlt
    jmp 1b
)")
GUEST_CODE(InterruptHandler, R"(
    incq (%rdi)
    movl $0, 0xb0(%r8)
    iretq
)")
// Starts processor 1 at 0x10000 by INIT and SIPI in the interrupt command register (SDM 11.6.1).
GUEST_CODE(StartingGuest, R"(
    movl $0x1ff, 0xf0(%r8)
    movl $0x01000000, 0x310(%r8)
    movl $0x4500, 0x300(%r8)
    movl $0x4610, 0x300(%r8)
1:  incq (%rdi)
    jmp 1b
)")
GUEST_CODE(StartedGuest, R"(
    .code16
1:  incl %cs:0x100
    jmp 1b
)")
// Has kvmclock in its buffer: MSR_KVM_SYSTEM_TIME_NEW (Documentation/virt/kvm/x86/msr.rst).
GUEST_CODE(ClockGuest, R"(
    mov $0x4b564d01, %ecx
    lea 1(%rbx), %eax
    xor %edx, %edx
    wrmsr
1:  incq (%rdi)
    jmp 1b
)")
// clang-format on

TEST_F(VcpuPauseTest, ASpinningGuestStandsStillAndGoesOn) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  ASSERT_TRUE(vcpu.Start().ok());
  for (int round = 0; round < 200; ++round) {
    ExpectRuns();
    Pause(vcpu);
    const uint32_t counter = Counter();
    const uint64_t rip = Registers(vcpu).rip;
    for (int look = 0; look < 1000; ++look) ASSERT_EQ(Counter(), counter);
    ASSERT_EQ(Registers(vcpu).rip, rip);
    vcpu.Resume();
  }
  ExpectRuns();
}

TEST_F(VcpuPauseTest, APausedVcpuTakesNoProcessorTime) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  ASSERT_TRUE(vcpu.Start().ok());
  ExpectRuns();
  BoundedEvent paused;
  clockid_t clock = {};
  const Joined joined(vcpu);
  vcpu.RequestPause([&] {
    pthread_getcpuclockid(pthread_self(), &clock);
    paused.Notify();
  });
  paused.WaitOrAbort();
  const auto used = [&] {
    timespec time = {};
    clock_gettime(clock, &time);
    return absl::DurationFromTimespec(time);
  };
  const absl::Duration before = used();
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_LT(used() - before, absl::Milliseconds(5));
  vcpu.Resume();  // of a thread that sleeps by now
  ExpectRuns();
}

TEST_F(VcpuPauseTest, OneThatHasNotBegunDoesNotEnterTheGuest) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  const auto paused = std::make_shared<BoundedEvent>();
  vcpu.RequestPause([paused] { paused->Notify(); });
  ASSERT_TRUE(vcpu.Start().ok());
  paused->WaitOrAbort();
  EXPECT_EQ(Registers(vcpu).rip, kCode);
  EXPECT_EQ(Counter(), 0u);
  vcpu.Resume();
  ExpectRuns();
}

TEST_F(VcpuPauseTest, AHaltedVcpuIsPausedAndAnInterruptThatComesMeanwhileIsNotLost) {
  Vcpu& vcpu = AddGuest(HaltingGuest());
  constexpr uint32_t kVector = 0x41;
  constexpr uint64_t kHandler = kCode + 0x100;
  Load(kHandler, InterruptHandler());
  // An interrupt gate of segment 0x10 (SDM volume 3, section 6.14.1).
  const uint64_t gate[] = {
      (kHandler & 0xffff) | 0x10 << 16 | uint64_t{0x8e00} << 32 | (kHandler >> 16) << 48, 0};
  std::memcpy(memory_->At(kInterruptTable + kVector * sizeof gate, sizeof gate), gate, sizeof gate);
  kvm_sregs special = *vcpu.kvm().GetSpecialRegisters();
  special.idt.base = kInterruptTable;
  special.idt.limit = 0xfff;
  ASSERT_TRUE(vcpu.kvm().SetSpecialRegisters(special).ok());
  testing::RecordingLog log;
  InterruptRouter router(*vm_, Logger(&log));
  const auto vector = *router.NewMsiVector();
  vector->Unmask(kLocalApic, kVector);

  ASSERT_TRUE(vcpu.Start().ok());
  ASSERT_TRUE(SpinUntil([&] {
    vector->event().Signal();
    return Counter() > 0;
  }));
  for (int round = 0; round < 100; ++round) {
    Pause(vcpu);
    const uint32_t counter = Counter();
    vector->event().Signal();
    if (round % 2 == 0) {
      vcpu.Resume();
    } else {  // it stays paused
      Pause(vcpu);
      ASSERT_EQ(Counter(), counter);
      vcpu.Resume();
    }
    ASSERT_TRUE(SpinUntil([&] { return Counter() > counter; })) << "round " << round;
  }
}

TEST_F(VcpuPauseTest, AProcessorThatWaitsToBeStartedIsPaused) {
  Vcpu& first = AddGuest(StartingGuest());
  Vcpu& second = AddVcpu();
  Load(kStartUpPage, StartedGuest());
  constexpr uint64_t kStartedCounter = kStartUpPage + 0x100;
  ASSERT_TRUE(second.Start().ok());
  for (int round = 0; round < 100; ++round) {
    Pause(second);
    second.Resume();
  }
  Pause(second);
  ASSERT_TRUE(first.Start().ok());
  ExpectRuns();  // INIT and SIPI are sent
  EXPECT_EQ(Counter(kStartedCounter), 0u);
  second.Resume();
  for (int round = 0; round < 20; ++round) {
    ExpectRuns(kStartedCounter);
    Pause(second);
    const uint32_t counter = Counter(kStartedCounter);
    ExpectRuns();  // the other one
    EXPECT_EQ(Counter(kStartedCounter), counter);
    second.Resume();
  }
}

TEST_F(VcpuPauseTest, TheGuestsClockIsToldOfEachPause) {
  Vcpu& vcpu = AddGuest(ClockGuest());
  ASSERT_TRUE(vcpu.Start().ok());
  ExpectRuns();
  std::atomic_ref flags(*reinterpret_cast<uint8_t*>(memory_->At(kBuffer + 29, 1)));
  constexpr uint8_t kGuestStopped = 1 << 1;  // PVCLOCK_GUEST_STOPPED
  EXPECT_EQ(flags & kGuestStopped, 0);
  for (int round = 0; round < 3; ++round) {
    Pause(vcpu);
    vcpu.Resume();
    EXPECT_TRUE(SpinUntil([&] { return (flags & kGuestStopped) != 0; }));
    flags &= static_cast<uint8_t>(~kGuestStopped);
  }
}

TEST_F(VcpuPauseTest, WhoAsksSecondIsAnsweredToo) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  ASSERT_TRUE(vcpu.Start().ok());
  Pause(vcpu);
  Pause(vcpu);
  const uint32_t counter = Counter();
  // One asks in the other's callback.
  BoundedEvent paused;
  const Joined joined(vcpu);
  vcpu.RequestPause([&] { vcpu.RequestPause([&] { paused.Notify(); }); });
  paused.WaitOrAbort();
  EXPECT_EQ(Counter(), counter);
  vcpu.Resume();  // of all
  ExpectRuns();
}

TEST_F(VcpuPauseTest, WhereOneResumesTheOthersAreNotTold) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  vcpu.RequestPause([&] { vcpu.Resume(); });
  vcpu.RequestPause([] { ADD_FAILURE() << "it goes on"; });
  ASSERT_TRUE(vcpu.Start().ok());
  ExpectRuns();
}

TEST_F(VcpuPauseTest, AStopEndsAPauseAtOnce) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  ASSERT_TRUE(vcpu.Start().ok());
  Pause(vcpu);
  const uint32_t counter = Counter();
  vcpu.RequestStop();
  vcpu.RequestPause([] { ADD_FAILURE() << "it is over"; });
  vcpu.Resume();
  vcpu.Join();
  EXPECT_EQ(Counter(), counter);
}

// It must not find a lock held, neither where it was called nor where it was dropped.
TEST_F(VcpuPauseTest, WhatACallbackOwnsMayCallTheVcpuWhenItGoes) {
  Vcpu& vcpu = AddGuest(SpinningGuest());
  BoundedEvent gone[2];
  const auto owned = [&](BoundedEvent* event) {
    vcpu.Resume();
    vcpu.RequestPause([] {});
    vcpu.Resume();
    event->Notify();
  };
  const Joined joined(vcpu);
  vcpu.RequestPause([owner = std::shared_ptr<BoundedEvent>(&gone[0], owned)] {});
  vcpu.Resume();
  EXPECT_TRUE(gone[0].HasBeenNotified());
  ASSERT_TRUE(vcpu.Start().ok());
  vcpu.RequestPause([owner = std::shared_ptr<BoundedEvent>(&gone[1], owned)] {});
  gone[1].WaitOrAbort();
  ExpectRuns();
}

}  // namespace
}  // namespace ringside
