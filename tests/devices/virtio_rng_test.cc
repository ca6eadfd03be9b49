#include "devices/virtio_rng.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "devices/virtio_transport.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace {

std::atomic<uint64_t> random_calls{0};

}  // namespace

// In the C library's place, to be counted.
extern "C" ssize_t getrandom(void* buffer, size_t size, unsigned flags) {
  ++random_calls;
  return syscall(SYS_getrandom, buffer, size, flags);
}

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LetTurn;
using testing::RecordingLog;
using testing::SpinUntil;

using Transport = VirtioTransport;

// A driver without subtlety: descriptors are its tests' to lay out.
class VirtioRngTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMemory = 16 << 20;
  static constexpr uint64_t kDescriptors = 0x1000;
  static constexpr uint64_t kAvailable = 0x2000;
  static constexpr uint64_t kUsed = 0x3000;
  static constexpr uint64_t kBuffers = 1 << 20;
  static constexpr uint16_t kNext = 1;
  static constexpr uint16_t kWrite = 2;
  static constexpr uint16_t kIndirect = 4;
  static constexpr uint8_t kRunning = 15;

  VirtioRngTest() {
    const GuestMemory::Range range = {0, kMemory};
    memory_ = *GuestMemory::Create(std::span(&range, 1));
    io_thread_ = *IoThread::Start("rng");
    device_ = std::make_unique<VirtioRng>(*memory_, *io_thread_);
    transport_ = *Transport::Create(*device_, "rng0", Logger(&log_), {});
  }

  template <typename T>
  void Put(uint64_t address, T value) {
    std::memcpy(memory_->At(address, sizeof value), &value, sizeof value);
  }
  template <typename T>
  T Get(uint64_t address) {
    T value;
    std::memcpy(&value, memory_->At(address, sizeof value), sizeof value);
    return value;
  }

  void Start() {
    std::memset(memory_->At(0, kBuffers), 0, kBuffers);
    available_ = 0;
    transport_->SetDriverFeatures(1, 1);
    SetArea(&Transport::Queue::descriptor_area, kDescriptors);
    SetArea(&Transport::Queue::driver_area, kAvailable);
    SetArea(&Transport::Queue::device_area, kUsed);
    transport_->EnableQueue(0);
    transport_->SetStatus(kRunning);
    ASSERT_EQ(transport_->status(), kRunning);
  }
  void SetArea(uint64_t Transport::Queue::* area, uint64_t address) {
    transport_->SetQueueAddress(0, area, Transport::Half::kLow, static_cast<uint32_t>(address));
  }
  void Describe(uint16_t index, uint64_t address, uint32_t length, uint16_t flags,
                uint16_t next = 0) {
    const uint64_t at = kDescriptors + 16 * index;
    Put(at, address);
    Put(at + 8, length);
    Put(at + 12, flags);
    Put<uint16_t>(at + 14, next);
  }
  // Seen by the device once Kick stores the index.
  void Offer(uint16_t head) {
    Put(kAvailable + 4 + 2 * (available_ % VirtioRng::kQueueSize), head);
    ++available_;
  }
  void Kick() {
    SharedIndex(kAvailable).store(available_, std::memory_order_seq_cst);
    transport_->kick(0).Signal();
  }
  bool WaitForUsed(uint16_t index) {
    return SpinUntil([&] { return SharedIndex(kUsed).load() == index; });
  }
  std::atomic_ref<uint16_t> SharedIndex(uint64_t ring) {
    return std::atomic_ref(*reinterpret_cast<uint16_t*>(memory_->At(ring + 2, 2)));
  }
  uint32_t UsedLength(uint16_t entry) { return Get<uint32_t>(kUsed + 4 + 8 * entry + 4); }
  // Of random bytes, next to none are zero.
  bool IsRandom(uint64_t address, size_t size) {
    const std::byte* bytes = memory_->At(address, size);
    return std::count(bytes, bytes + size, std::byte{0}) < static_cast<ptrdiff_t>(size / 16 + 4);
  }
  bool IsZero(uint64_t address, size_t size) {
    const std::byte* bytes = memory_->At(address, size);
    return std::count(bytes, bytes + size, std::byte{0}) == static_cast<ptrdiff_t>(size);
  }
  bool WaitForNeedsReset() {
    return SpinUntil([&] { return transport_->status() == (kRunning | Transport::kNeedsReset); });
  }

  RecordingLog log_;
  std::unique_ptr<GuestMemory> memory_;
  std::unique_ptr<IoThread> io_thread_;
  std::unique_ptr<VirtioRng> device_;
  std::unique_ptr<Transport> transport_;
  uint16_t available_ = 0;
};

TEST_F(VirtioRngTest, FillsTheBuffersOfAChainAndNothingElse) {
  Start();
  Describe(0, kBuffers, 100, kWrite | kNext, 1);
  Describe(1, kBuffers + 4096, 2000, kWrite);
  Offer(0);
  Kick();
  ASSERT_TRUE(WaitForUsed(1));
  EXPECT_EQ(UsedLength(0), 2100u);
  EXPECT_TRUE(IsRandom(kBuffers, 100));
  EXPECT_TRUE(IsZero(kBuffers + 100, 4096 - 100));
  EXPECT_TRUE(IsRandom(kBuffers + 4096, 2000));
  EXPECT_TRUE(IsZero(kBuffers + 4096 + 2000, 4096));
  EXPECT_TRUE(SpinUntil([&] { return transport_->isr() == Transport::kIsrQueue; }));
}

TEST_F(VirtioRngTest, WhatIsLeftBeforeTheFirstKickIsServed) {
  transport_->kick(0).Signal();  // on a queue that is not ready
  Describe(0, kBuffers, 16, kWrite);
  transport_->SetDriverFeatures(1, 1);
  SetArea(&Transport::Queue::descriptor_area, kDescriptors);
  SetArea(&Transport::Queue::driver_area, kAvailable);
  SetArea(&Transport::Queue::device_area, kUsed);
  transport_->EnableQueue(0);
  Offer(0);
  SharedIndex(kAvailable).store(available_);
  transport_->SetStatus(kRunning);
  EXPECT_TRUE(WaitForUsed(1));
}

TEST_F(VirtioRngTest, GivesALargeChainALimitedShare) {
  Start();
  Describe(0, kBuffers, 60000, kWrite | kNext, 1);
  Describe(1, kBuffers + 65536, 1 << 20, kWrite | kNext, 2);
  Describe(2, kBuffers + (4 << 20), 16, kWrite);
  Offer(0);
  Kick();
  ASSERT_TRUE(WaitForUsed(1));
  EXPECT_EQ(UsedLength(0), VirtioRng::kMaxChainBytes);
  EXPECT_TRUE(IsRandom(kBuffers + 65536, 65536 - 60000));
  EXPECT_TRUE(IsZero(kBuffers + 65536 + 65536 - 60000, 4096));
  EXPECT_TRUE(IsZero(kBuffers + (4 << 20), 16));
}

// A system call for each of them would hold up the thread for as long as a thousand requests do.
TEST_F(VirtioRngTest, ManySmallBuffersAreFilledAtOnce) {
  Start();
  for (uint16_t i = 0; i < VirtioRng::kQueueSize; ++i) {
    const bool last = i + 1 == VirtioRng::kQueueSize;
    Describe(i, kBuffers + 2 * i, 1, last ? kWrite : kWrite | kNext, static_cast<uint16_t>(i + 1));
  }
  Offer(0);
  const uint64_t before = random_calls;
  Kick();
  ASSERT_TRUE(WaitForUsed(1));
  EXPECT_EQ(random_calls - before, 1U);
  EXPECT_EQ(UsedLength(0), VirtioRng::kQueueSize);
  int zeroes = 0;
  for (uint16_t i = 0; i < VirtioRng::kQueueSize; ++i) {
    zeroes += Get<uint8_t>(kBuffers + 2 * i) == 0 ? 1 : 0;
    EXPECT_EQ(Get<uint8_t>(kBuffers + 2 * i + 1), 0);
  }
  EXPECT_LT(zeroes, 16);
}

TEST_F(VirtioRngTest, AGreedyGuestSharesTheThread) {
  Start();
  LetTurn(*io_thread_, 1);  // it is attached
  for (uint16_t i = 0; i < VirtioRng::kQueueSize; ++i) {
    Describe(i, kBuffers, VirtioRng::kMaxChainBytes, kWrite);
    Offer(i);
  }
  const uint64_t turns = io_thread_->stats().turns.Get();
  Kick();
  ASSERT_TRUE(WaitForUsed(VirtioRng::kQueueSize));
  LetTurn(*io_thread_, 1);
  EXPECT_GE(io_thread_->stats().turns.Get() - turns, VirtioRng::kQueueSize);
}

TEST_F(VirtioRngTest, ABrokenQueueNeedsAResetAndIsMendedByOne) {
  const auto break_it = [&](int way) {
    Describe(0, kBuffers, 16, kWrite);
    switch (way) {
      case 0:  // nothing to write to
        Describe(0, kBuffers, 16, 0);
        break;
      case 1:  // outside memory
        Describe(0, kMemory - 8, 16, kWrite);
        break;
      case 2:  // wraps
        Describe(0, ~uint64_t{0} - 7, 16, kWrite);
        break;
      case 3:  // a loop
        Describe(0, kBuffers, 16, kWrite | kNext, 0);
        break;
      case 4:  // beyond the table
        return Offer(VirtioRng::kQueueSize);
      case 5:  // the index jumps
        available_ = VirtioRng::kQueueSize + 1;
        return;
      case 6:  // an indirect table in itself, among the queue's own descriptors
        Describe(0, kDescriptors, 16 * VirtioRng::kQueueSize, kIndirect);
        break;
      default:
        FAIL();
    }
    Offer(0);
  };
  for (int way = 0; way < 7; ++way) {
    SCOPED_TRACE(way);
    transport_->SetDriverFeatures(0, kVirtioRingIndirectDesc);
    Start();
    break_it(way);
    Kick();
    ASSERT_TRUE(WaitForNeedsReset());
    Kick();
    transport_->ResetAndWait();
    ASSERT_EQ(transport_->status(), 0);
    EXPECT_EQ(log_.lines().size(), static_cast<size_t>(way + 1));
    EXPECT_THAT(log_.lines().back(), HasSubstr("rng0"));

    Start();
    Describe(0, kBuffers, 16, kWrite);
    Offer(0);
    Kick();
    ASSERT_TRUE(WaitForUsed(1));
    transport_->ResetAndWait();
  }
}

TEST_F(VirtioRngTest, ChainsBeforeABrokenOneAreAnswered) {
  Start();
  Describe(0, kBuffers, 16, kWrite);
  Describe(1, kBuffers, 16, 0);
  Offer(0);
  Offer(1);
  Kick();
  ASSERT_TRUE(WaitForNeedsReset());
  EXPECT_EQ(SharedIndex(kUsed).load(), 1);
}

TEST_F(VirtioRngTest, AQueueOutsideMemoryNeedsAReset) {
  transport_->SetDriverFeatures(1, 1);
  SetArea(&Transport::Queue::descriptor_area, kMemory);
  transport_->EnableQueue(0);
  transport_->SetStatus(kRunning);
  EXPECT_TRUE(SpinUntil([&] { return !log_.lines().empty(); }));
  EXPECT_EQ(transport_->status(), kRunning | Transport::kNeedsReset);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("rng0")));
}

TEST_F(VirtioRngTest, RunsWithoutAQueue) {
  transport_->SetDriverFeatures(1, 1);
  transport_->SetStatus(kRunning);
  EXPECT_EQ(transport_->status(), kRunning);
  transport_->ResetAndWait();
  EXPECT_EQ(transport_->status(), 0);
}

TEST_F(VirtioRngTest, ResetsInTheMiddleOfWork) {
  for (int i = 0; i < 200; ++i) {
    Start();
    for (uint16_t head = 0; head < 8; ++head) {
      Describe(head, kBuffers, 4096, kWrite);
      Offer(head);
    }
    Kick();
    transport_->ResetAndWait();
    const uint16_t used = SharedIndex(kUsed).load();
    LetTurn(*io_thread_, 1);
    ASSERT_EQ(SharedIndex(kUsed).load(), used) << "after its end nothing is touched";
  }
  EXPECT_THAT(log_.lines(), IsEmpty());
}

}  // namespace
}  // namespace ringside
