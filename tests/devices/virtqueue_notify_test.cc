// When a virtqueue interrupts and when it wants to be kicked (VIRTIO 1.2, sections 2.7.7
// and 2.7.10).
#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "devices/virtqueue.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/races.h"
#include "tests/support/wait.h"

namespace ringside::testing {
namespace {

constexpr uint64_t kRings = 0x10000;
constexpr uint64_t kData = 0x80000;
constexpr int kTurnsOfTheIndex = 3;

// A queue and the raw ring under it; heads are given in turn.
class Rings {
 public:
  Rings(uint16_t size, bool event_idx)
      : ring_(*memory_, RingPlace(kRings, size)),
        queue_(*memory_, {.size = size,
                          .descriptor_area = ring_.place().descriptors,
                          .driver_area = ring_.place().available,
                          .device_area = ring_.place().used,
                          .event_idx = event_idx}) {}

  RawRing& ring() { return ring_; }
  Virtqueue& queue() { return queue_; }
  uint16_t index() const { return available_; }
  uint16_t room() const { return static_cast<uint16_t>(ring_.size() - (available_ - taken_)); }

  void Add(uint16_t count) {
    for (uint16_t i = 0; i < count; ++i, ++available_) {
      ring_.SetAvailableEntry(available_, available_ & (ring_.size() - 1u));
    }
    ring_.SetAvailableIndex(available_);
  }
  // Takes and returns up to `count`, without publishing.
  void Serve(size_t count) {
    while (count > 0) {
      const size_t n = queue_.Take(std::span(batch_).first(std::min(count, batch_.size())));
      if (n == 0) break;
      for (size_t i = 0; i < n; ++i) queue_.Return(std::move(batch_[i]), 0);
      taken_ += static_cast<uint16_t>(n);
      count -= n;
    }
  }

 private:
  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(kMiB);
  RawRing ring_;
  Virtqueue queue_;
  std::array<DescriptorChain, 1024> batch_;
  uint16_t available_ = 0;
  uint16_t taken_ = 0;
};

TEST(VirtqueueInterrupt, IsSentExactlyIfTheIndexPassedTheEvent) {
  Rings rings(1024, true);
  const auto check = [&](uint16_t count, uint16_t distance) {
    const uint16_t old_index = rings.index();
    const auto event = static_cast<uint16_t>(old_index + distance);
    rings.ring().SetUsedEvent(event);
    rings.Add(count);
    rings.Serve(count);
    ASSERT_EQ(rings.queue().Publish(), PassedEvent(event, rings.index(), old_index))
        << "event " << event << ", index " << old_index << " to " << rings.index();
  };
  // Every distance from the old index, which itself goes through all values.
  for (const uint16_t count : {1, 2, 3, 31}) {
    for (uint32_t distance = 0; distance <= 0xffff; ++distance) {
      check(count, static_cast<uint16_t>(distance));
    }
  }
  // Large batches: close to both ends, to where the sign of a 16-bit difference turns, and some.
  for (const uint16_t count : {100, 512, 1023, 1024}) {
    for (int near = -3; near <= 3; ++near) {
      for (const int place : {0, int{count}, 0x7fff, 0x8000, 0x8000 + count}) {
        check(count, static_cast<uint16_t>(place + near));
      }
    }
    for (uint32_t distance = 0; distance <= 0xffff; distance += 97) {
      check(count, static_cast<uint16_t>(distance));
    }
  }
}

TEST(VirtqueueInterrupt, OfABatchIsDecidedAgainstWhatTheGuestSawLast) {
  Rings rings(8, true);
  rings.ring().SetUsedEvent(1);
  rings.Add(3);
  rings.Serve(1);
  EXPECT_FALSE(rings.queue().Publish());
  rings.Serve(2);
  EXPECT_TRUE(rings.queue().Publish());
  EXPECT_FALSE(rings.queue().Publish()) << "nothing is new";
}

TEST(VirtqueueInterrupt, FollowsTheFlagAloneWithoutEventIdx) {
  Rings rings(4, false);
  for (uint32_t flags = 0; flags <= 0xffff; ++flags) {
    rings.ring().SetAvailableFlags(static_cast<uint16_t>(flags));
    // Where the event would be: a value that says the opposite.
    rings.ring().SetUsedEvent(static_cast<uint16_t>(rings.index() + (flags & 1 ? 0 : 5)));
    rings.Add(1);
    rings.Serve(1);
    ASSERT_EQ(rings.queue().Publish(), (flags & 1) == 0) << flags;
  }
}

TEST(VirtqueueInterrupt, FollowsTheEventAloneWithEventIdx) {
  Rings rings(4, true);
  for (uint32_t flags = 0; flags <= 0xffff; ++flags) {
    rings.ring().SetAvailableFlags(static_cast<uint16_t>(flags));
    const bool wanted = (flags & 2) != 0;
    rings.ring().SetUsedEvent(static_cast<uint16_t>(rings.index() + (wanted ? 0 : 5)));
    rings.Add(1);
    rings.Serve(1);
    ASSERT_EQ(rings.queue().Publish(), wanted) << flags;
  }
}

// A kick as the driver decides on it: the index at the last decision and now (section 2.7.10).
class KickCheck {
 public:
  explicit KickCheck(Rings& rings) : rings_(rings) {}
  bool Wanted() {
    const uint16_t old_index = std::exchange(old_, rings_.index());
    const uint16_t event = rings_.ring().avail_event();
    return static_cast<uint16_t>(rings_.index() - event - 1) <
           static_cast<uint16_t>(rings_.index() - old_index);
  }

 private:
  Rings& rings_;
  uint16_t old_ = 0;
};

// How much of a batch the device has taken when the driver decides about the kick.
enum class Taken { kNothing, kAll, kSome };

class VirtqueueFarEventTest : public ::testing::TestWithParam<std::tuple<int, Taken>> {
 protected:
  static void NoKickIsWanted(uint16_t size, uint16_t batch, Taken taken) {
    Rings rings(size, true);
    KickCheck kick(rings);
    std::mt19937 random(batch);
    rings.queue().DisableNotify();
    for (uint32_t total = 0; total < kTurnsOfTheIndex * 65536u;) {
      // What is left from before makes room for less.
      const uint16_t count = std::min(batch, rings.room());
      rings.Add(count);
      total += count;
      const size_t before = taken == Taken::kNothing ? 0
                            : taken == Taken::kAll   ? size
                                                     : random() % (size + 1u);
      rings.Serve(before);
      ASSERT_FALSE(kick.Wanted()) << "size " << size << ", batches of " << batch << ", index "
                                  << rings.index() << ", event " << rings.ring().avail_event();
      if (taken == Taken::kNothing) rings.Serve(size);
      rings.queue().Publish();
      ASSERT_EQ(rings.queue().error(), nullptr);
    }
  }
};

TEST_P(VirtqueueFarEventTest, NoKickIsWantedWhileNotificationsAreOff) {
  const auto [size, taken] = GetParam();
  for (int batch = 1; batch <= size; batch += size > 64 && batch > 4 ? batch / 3 : 1) {
    NoKickIsWanted(static_cast<uint16_t>(size), static_cast<uint16_t>(batch), taken);
    if (HasFatalFailure()) return;
  }
  NoKickIsWanted(static_cast<uint16_t>(size), static_cast<uint16_t>(size), taken);
}
INSTANTIATE_TEST_SUITE_P(, VirtqueueFarEventTest,
                         ::testing::Combine(::testing::Values(1, 2, 8, 64, 1024),
                                            ::testing::Values(Taken::kNothing, Taken::kAll,
                                                              Taken::kSome)));

class VirtqueueNotifyTest : public ::testing::TestWithParam<bool> {};

TEST_P(VirtqueueNotifyTest, AnEntryAfterEnableWantsAKickAndOneBeforeIsSeen) {
  const auto memory = MakeMemory(kMiB);
  FakeDriver driver(*memory, {.size = 8, .event_idx = GetParam()});
  Virtqueue queue(*memory, driver.layout());
  const auto add = [&] {
    driver.NewChain().AppendReadable(kData, 1).Add();
    driver.Publish();
  };
  const auto serve = [&] {
    std::array<DescriptorChain, 8> chains;
    const size_t count = queue.Take(chains);
    for (size_t i = 0; i < count; ++i) queue.Return(std::move(chains[i]), 0);
    queue.Publish();
    while (driver.TakeUsed()) {
    }
  };
  add();
  EXPECT_TRUE(driver.NeedsKick()) << "notifications are on at first";
  for (int round = 0; round < 70000; ++round) {
    queue.DisableNotify();
    serve();
    add();
    ASSERT_FALSE(driver.NeedsKick());
    queue.EnableNotify();
    ASSERT_TRUE(queue.HasWork()) << "added before";
    serve();
    queue.EnableNotify();
    ASSERT_FALSE(queue.HasWork());
    add();
    ASSERT_TRUE(driver.NeedsKick()) << "round " << round;
  }
}
INSTANTIATE_TEST_SUITE_P(, VirtqueueNotifyTest, ::testing::Bool(), [](const auto& event_idx) {
  return event_idx.param ? "EventIdx" : "Flags";
});

TEST(VirtqueueNotify, IsWrittenWhereTheModeHasItAndNowhereElse) {
  Rings flags(8, false);
  flags.queue().DisableNotify();
  EXPECT_EQ(flags.ring().used_flags(), 1);
  EXPECT_EQ(flags.ring().avail_event(), 0);
  flags.queue().EnableNotify();
  EXPECT_EQ(flags.ring().used_flags(), 0);

  Rings event(8, true);
  event.queue().DisableNotify();
  EXPECT_EQ(event.ring().used_flags(), 0) << "section 2.7.10.1: 0 with EVENT_IDX";
  event.Add(3);
  event.Serve(3);
  event.queue().EnableNotify();
  EXPECT_EQ(event.ring().avail_event(), 3);
  EXPECT_EQ(event.ring().used_flags(), 0);
}

// Both sides sleep whenever they may: no kick and no interrupt is lost.
class VirtqueueRaceTest : public ::testing::TestWithParam<bool> {
 protected:
  struct Bell {
    std::atomic<uint32_t> rings{0};
    void Ring() { rings.fetch_add(1, std::memory_order_release); }
    bool WaitPast(uint32_t seen) const {
      return SpinUntil([&] { return rings.load(std::memory_order_acquire) != seen; });
    }
  };

  void Serve(Virtqueue& queue, uint32_t total) {
    for (uint32_t done = 0; done < total;) {
      const uint32_t seen = kick_.rings.load(std::memory_order_acquire);
      std::array<DescriptorChain, 4> chains;
      const size_t count = queue.Take(chains);
      for (size_t i = 0; i < count; ++i) queue.Return(std::move(chains[i]), 0);
      slow_.Queue();
      if (queue.Publish()) interrupt_.Ring();
      done += static_cast<uint32_t>(count);
      if (count > 0 || done == total) continue;
      queue.EnableNotify();
      // As an I/O thread before it sleeps; pairs with the driver's barrier in NeedsKick.
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (!queue.HasWork() && !kick_.WaitPast(seen)) {
        lost_kick_ = true;
        return;
      }
      queue.DisableNotify();
    }
  }

  SlowStores slow_;
  Bell kick_;
  Bell interrupt_;
  std::atomic<bool> lost_kick_{false};
};

TEST_P(VirtqueueRaceTest, NoKickAndNoInterruptIsLost) {
  const auto memory = MakeMemory(kMiB);
  FakeDriver driver(*memory, {.size = 4, .event_idx = GetParam()});
  Virtqueue queue(*memory, driver.layout());
  std::thread device([&] { Serve(queue, kRaces); });
  std::mt19937 random(1);
  uint32_t used = 0;
  for (uint32_t added = 0; used < kRaces;) {
    const uint32_t seen = interrupt_.rings.load(std::memory_order_acquire);
    driver.DisableInterrupts();
    while (driver.TakeUsed()) ++used;
    for (uint32_t n = random() % 4; n > 0 && added < kRaces && driver.free_descriptors() > 0; --n) {
      driver.NewChain().AppendReadable(kData, 1).Add();
      ++added;
    }
    slow_.TakeLines();
    driver.Publish();
    if (driver.NeedsKick()) kick_.Ring();
    // Until about when the device publishes.
    Delay(static_cast<int>(random() % 4096));
    driver.EnableInterrupts();
    if (added == used || driver.HasUsed()) continue;
    if (!interrupt_.WaitPast(seen)) {
      ADD_FAILURE() << "an interrupt was lost after " << used << " chains";
      kick_.Ring();
      break;
    }
  }
  device.join();
  EXPECT_FALSE(lost_kick_);
}
// Either the device sees the wish, or the driver the index: round by round, with stores of the
// device that are late.
TEST_P(VirtqueueRaceTest, AWishAndAnIndexDoNotMissEachOther) {
  constexpr int kRounds = kRaces / 5;  // without the fence in Publish some twenty do
  const auto memory = MakeMemory(kMiB);
  FakeDriver driver(*memory, {.size = 4, .event_idx = GetParam()});
  Virtqueue queue(*memory, driver.layout());
  std::atomic<int> published{0};
  std::atomic<bool> interrupt{false};
  std::thread device([&] {
    for (int round = 1; round <= kRounds; ++round) {
      std::array<DescriptorChain, 1> chain;
      if (!SpinUntil([&] { return queue.HasWork(); }) || queue.Take(chain) != 1) return;
      queue.Return(std::move(chain[0]), 0);
      slow_.Queue();
      if (queue.Publish()) interrupt.store(true, std::memory_order_relaxed);
      published.store(round, std::memory_order_release);
    }
  });
  const OnTwoProcessors apart(device);
  Aim aim;
  for (int round = 1; round <= kRounds && !HasFailure(); ++round) {
    driver.DisableInterrupts();
    interrupt.store(false, std::memory_order_relaxed);
    slow_.TakeLines();
    driver.NewChain().AppendReadable(kData, 1).Add();
    driver.Publish();
    driver.NeedsKick();  // for its barrier: the lines are ours
    aim.Wait();
    driver.EnableInterrupts();
    const bool seen = driver.HasUsed();
    aim.Learn(seen);
    EXPECT_TRUE(SpinUntil([&] { return published.load(std::memory_order_acquire) == round; }));
    EXPECT_TRUE(seen || interrupt.load(std::memory_order_relaxed)) << "round " << round;
    while (driver.TakeUsed()) {
    }
  }
  if (HasFailure()) driver.ring().SetAvailableIndex(0x8000);  // ends the other thread
  device.join();
}
INSTANTIATE_TEST_SUITE_P(, VirtqueueRaceTest, ::testing::Bool(), [](const auto& event_idx) {
  return event_idx.param ? "EventIdx" : "Flags";
});

}  // namespace
}  // namespace ringside::testing
