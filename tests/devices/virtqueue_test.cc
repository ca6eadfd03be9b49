// The split virtqueue with a driver that keeps the rules. What notifications do is in
// virtqueue_notify_test.cc, what breaks a ring in virtqueue_broken_test.cc.
#include "devices/virtqueue.h"

#include <deque>
#include <gtest/gtest.h>
#include <random>

#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"

namespace ringside::testing {
namespace {

constexpr uint64_t kData = 0x80000;
constexpr uint64_t kHigh = 0x100000000;

class VirtqueueTest : public ::testing::Test {
 protected:
  // One region below the hole and one above it.
  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(3 * kGiB + kMiB);
  ChainBuffers buffers_;

  DescriptorChain TakeOne(Virtqueue& queue) {
    std::array<DescriptorChain, 1> chain;
    if (queue.Take(chain) != 1) ADD_FAILURE() << "there is nothing to take";
    return std::move(chain[0]);
  }
  void ExpectSegment(const Segment& segment, uint64_t address, uint32_t length, uint16_t region) {
    EXPECT_EQ(segment.host, memory_->At(address, length));
    EXPECT_EQ(segment.length, length);
    EXPECT_EQ(segment.region, region);
  }
};

// How a driver may describe one and the same chain.
enum class Form { kDirect, kIndirect, kMixed };

class VirtqueueFormTest : public VirtqueueTest, public ::testing::WithParamInterface<Form> {};

TEST_P(VirtqueueFormTest, FindsTheBuffersOfAChainInOrder) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  FakeDriver::Chain chain = driver.NewChain();
  if (GetParam() == Form::kIndirect) chain.Indirect();
  chain.AppendReadable(kData, 16);
  if (GetParam() == Form::kMixed) chain.Indirect();
  chain.AppendReadable(kHigh + 4, 5).AppendWritable(kData + 100, 200).AppendWritable(kHigh, 1);
  const uint16_t head = chain.Add();
  driver.Publish();

  const DescriptorChain taken = TakeOne(queue);
  EXPECT_EQ(taken.head(), head);
  ASSERT_TRUE(queue.Walk(taken, buffers_)) << queue.error();
  ASSERT_EQ(buffers_.readable().size(), 2u);
  ExpectSegment(buffers_.readable()[0], kData, 16, 0);
  ExpectSegment(buffers_.readable()[1], kHigh + 4, 5, 1);
  ASSERT_EQ(buffers_.writable().size(), 2u);
  ExpectSegment(buffers_.writable()[0], kData + 100, 200, 0);
  ExpectSegment(buffers_.writable()[1], kHigh, 1, 1);
}
INSTANTIATE_TEST_SUITE_P(, VirtqueueFormTest,
                         ::testing::Values(Form::kDirect, Form::kIndirect, Form::kMixed));

TEST_F(VirtqueueTest, TheWriteFlagOfAnIndirectDescriptorMeansNothing) {
  FakeDriver driver(*memory_, {.size = 8, .indirect = true});
  Virtqueue queue(*memory_, driver.layout());
  const uint16_t head = driver.NewChain().AppendReadable(kData, 16).Add();
  RawDescriptor descriptor = driver.ring().descriptor(head);
  descriptor.flags |= kWrite;
  driver.ring().SetDescriptor(head, descriptor);
  driver.Publish();
  ASSERT_TRUE(queue.Walk(TakeOne(queue), buffers_)) << queue.error();
  EXPECT_EQ(buffers_.readable().size(), 1u);
}

TEST_F(VirtqueueTest, AChainMayBeLongerThanTheRingThroughATable) {
  FakeDriver driver(*memory_, {.size = 4, .indirect = true, .table_entries = 1024});
  Virtqueue queue(*memory_, driver.layout());
  FakeDriver::Chain chain = driver.NewChain();
  for (uint32_t i = 0; i < 1024; ++i) chain.AppendWritable(kData + i, 1);
  chain.Add();
  driver.Publish();
  ASSERT_TRUE(queue.Walk(TakeOne(queue), buffers_)) << queue.error();
  ASSERT_EQ(buffers_.writable().size(), 1024u);
  ExpectSegment(buffers_.writable()[1023], kData + 1023, 1, 0);
}

TEST_F(VirtqueueTest, AChainMayUseEveryDescriptorOfTheRing) {
  FakeDriver driver(*memory_, {.size = 256});
  Virtqueue queue(*memory_, driver.layout());
  FakeDriver::Chain chain = driver.NewChain();
  for (uint32_t i = 0; i < 256; ++i) chain.AppendReadable(kData + i, 1);
  chain.Add();
  driver.Publish();
  ASSERT_TRUE(queue.Walk(TakeOne(queue), buffers_)) << queue.error();
  EXPECT_EQ(buffers_.readable().size(), 256u);
}

TEST_F(VirtqueueTest, BuffersEndWhereMemoryDoes) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  driver.NewChain().AppendReadable(kLowMemoryEnd - 1, 1).AppendWritable(kHigh, kMiB).Add();
  driver.Publish();
  ASSERT_TRUE(queue.Walk(TakeOne(queue), buffers_)) << queue.error();
  ExpectSegment(buffers_.writable()[0], kHigh, kMiB, 1);
}

TEST_F(VirtqueueTest, OneByteLessThan4GiBIsAChain) {
  // The same GiB thrice and again without its last byte: what counts is the sum.
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  driver.NewChain()
      .AppendReadable(kGiB, kGiB)
      .AppendReadable(kGiB, kGiB)
      .AppendReadable(kGiB, kGiB)
      .AppendReadable(kGiB, kGiB - 1)
      .Add();
  driver.Publish();
  EXPECT_TRUE(queue.Walk(TakeOne(queue), buffers_)) << queue.error();
}

TEST_F(VirtqueueTest, TakesNoMoreThanAskedFor) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  EXPECT_FALSE(queue.HasWork());
  std::vector<uint16_t> heads;
  for (int i = 0; i < 8; ++i) heads.push_back(driver.NewChain().AppendReadable(kData, 1).Add());
  EXPECT_FALSE(queue.HasWork()) << "not published yet";
  driver.Publish();
  EXPECT_TRUE(queue.HasWork());
  std::array<DescriptorChain, 5> chains;
  ASSERT_EQ(queue.Take(chains), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(chains[i].head(), heads[i]);
  EXPECT_TRUE(queue.HasWork());
  ASSERT_EQ(queue.Take(chains), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(chains[i].head(), heads[5 + i]);
  EXPECT_FALSE(queue.HasWork());
  EXPECT_EQ(queue.Take(chains), 0u);
  EXPECT_EQ(queue.in_flight(), 8u);
}

TEST_F(VirtqueueTest, TheGuestSeesNothingBeforeThePublication) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  for (int i = 0; i < 3; ++i) driver.NewChain().AppendReadable(kData, 1).Add();
  driver.Publish();
  std::array<DescriptorChain, 3> chains;
  ASSERT_EQ(queue.Take(chains), 3u);
  const uint16_t last = chains[2].head();
  const uint16_t first = chains[0].head();
  queue.Return(std::move(chains[2]), 7);
  queue.Return(std::move(chains[0]), 9);
  EXPECT_FALSE(driver.HasUsed());
  EXPECT_TRUE(queue.Publish());
  EXPECT_EQ(driver.TakeUsed(), (UsedElement{last, 7}));
  EXPECT_EQ(driver.TakeUsed(), (UsedElement{first, 9}));
  EXPECT_EQ(driver.TakeUsed(), std::nullopt);
  EXPECT_EQ(queue.in_flight(), 1u);
}

TEST_F(VirtqueueTest, NothingReturnedNothingPublished) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  EXPECT_FALSE(queue.Publish());
  EXPECT_EQ(driver.ring().used_index(), 0);
}

TEST_F(VirtqueueTest, AChainCanBeMovedButIsThereOnce) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  const uint16_t head = driver.NewChain().AppendReadable(kData, 1).Add();
  driver.Publish();
  DescriptorChain first = TakeOne(queue);
  DescriptorChain second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): what is asked here
  EXPECT_TRUE(second.valid());
  EXPECT_EQ(second.head(), head);
  static_assert(!std::is_copy_constructible_v<DescriptorChain>);
  static_assert(!std::is_copy_assignable_v<DescriptorChain>);
}

TEST_F(VirtqueueTest, AnotherGoesOnAtItsPosition) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue::Layout layout = driver.layout();
  for (const uint16_t expected : {5, 10, 15}) {
    Virtqueue queue(*memory_, layout);
    EXPECT_FALSE(queue.HasWork()) << "all that came before is done";
    for (int i = 0; i < 5; ++i) driver.NewChain().AppendReadable(kData, 1).Add();
    driver.Publish();
    std::array<DescriptorChain, 8> chains;
    ASSERT_EQ(queue.Take(chains), 5u);
    for (size_t i = 0; i < 5; ++i) queue.Return(std::move(chains[4 - i]), 0);
    EXPECT_TRUE(queue.Publish());
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(driver.TakeUsed().has_value());
    EXPECT_EQ(driver.TakeUsed(), std::nullopt);
    EXPECT_EQ(queue.position(), expected);
    layout.next = queue.position();
  }
}

// A position may come out of saved state, which may say anything: up to a ring's length before the
// driver's index there are chains to take, and anywhere else the ring is broken.
TEST_F(VirtqueueTest, AnyPositionIsGoneOnFromOrBreaksTheRing) {
  constexpr uint16_t kSize = 8;
  constexpr uint16_t kIndex = 3;
  RawRing ring(*memory_, RingPlace(0x10000, kSize));
  for (uint16_t i = 0; i < kSize; ++i) ring.SetAvailableEntry(i, i);
  ring.SetAvailableIndex(kIndex);
  int broken = 0;
  for (uint32_t next = 0; next <= 0xffff; ++next) {
    Virtqueue queue(*memory_, {.size = kSize,
                               .descriptor_area = ring.place().descriptors,
                               .driver_area = ring.place().available,
                               .device_area = ring.place().used,
                               .next = static_cast<uint16_t>(next)});
    const auto waiting = static_cast<uint16_t>(kIndex - next);
    std::array<DescriptorChain, kSize> chains;
    const size_t taken = queue.Take(chains);
    broken += queue.error() != nullptr ? 1 : 0;
    ASSERT_EQ(taken, waiting <= kSize ? waiting : 0u) << next;
    for (size_t i = 0; i < taken; ++i) {
      EXPECT_EQ(chains[i].head(), (next + i) % kSize);
      queue.Return(std::move(chains[i]), 0);
    }
    EXPECT_EQ(queue.Publish(), taken > 0);
    if (taken > 0) {
      EXPECT_EQ(ring.used_index(), kIndex);
    }
  }
  EXPECT_EQ(broken, 0x10000 - kSize - 1);
}

TEST_F(VirtqueueTest, WhatIsPutBackIsTakenAgain) {
  FakeDriver driver(*memory_, {.size = 8});
  Virtqueue queue(*memory_, driver.layout());
  std::vector<uint16_t> heads;
  for (int i = 0; i < 8; ++i) heads.push_back(driver.NewChain().AppendReadable(kData, 1).Add());
  driver.Publish();
  std::array<DescriptorChain, 8> chains;
  ASSERT_EQ(queue.Take(chains), 8u);
  for (size_t i = 8; i > 3; --i) queue.PutBack(std::move(chains[i - 1]));
  EXPECT_EQ(queue.in_flight(), 3u);
  EXPECT_EQ(queue.position(), 3u);
  EXPECT_TRUE(queue.HasWork());
  ASSERT_EQ(queue.Take(std::span(chains).subspan(3)), 5u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(chains[i].head(), heads[i]);
  EXPECT_EQ(queue.error(), nullptr);
}

// Ring sizes, and whether chains go through tables.
class VirtqueueSizeTest : public VirtqueueTest,
                          public ::testing::WithParamInterface<std::tuple<int, bool>> {};

// Batches of any size, returned in any order, through three turns of the 16-bit indices.
TEST_P(VirtqueueSizeTest, EveryChainComesBackOnceAcrossTheWrapOfTheIndices) {
  const auto size = static_cast<uint16_t>(std::get<0>(GetParam()));
  FakeDriver driver(*memory_, {.size = size, .indirect = std::get<1>(GetParam())});
  Virtqueue queue(*memory_, driver.layout());
  std::mt19937 random(size);
  std::vector<DescriptorChain> taken;
  std::deque<UsedElement> expected;
  std::deque<uint16_t> added;
  uint32_t total = 0;
  while (total < 3 * 65536 || !added.empty() || !taken.empty()) {
    for (uint32_t n = random() % (size + 1u); n > 0 && driver.free_descriptors() > 0; --n) {
      if (total >= 3 * 65536) break;
      // The length tells chains apart.
      added.push_back(driver.NewChain().AppendWritable(kData, 1 + total % 1000).Add());
      ++total;
    }
    driver.Publish();
    std::array<DescriptorChain, 32> batch;
    const size_t count = queue.Take(std::span(batch).first(1 + random() % batch.size()));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(batch[i].head(), added.front());
      added.pop_front();
      taken.push_back(std::move(batch[i]));
    }
    for (uint32_t n = random() % (taken.size() + 1); n > 0; --n) {
      std::swap(taken[random() % taken.size()], taken.back());
      ASSERT_TRUE(queue.Walk(taken.back(), buffers_)) << queue.error();
      const uint32_t written = buffers_.writable()[0].length;
      expected.push_back({taken.back().head(), written});
      queue.Return(std::move(taken.back()), written);
      taken.pop_back();
    }
    queue.Publish();
    while (const std::optional<UsedElement> used = driver.TakeUsed()) {
      ASSERT_FALSE(expected.empty());
      ASSERT_EQ(*used, expected.front());
      expected.pop_front();
    }
    ASSERT_TRUE(expected.empty());
    ASSERT_EQ(queue.in_flight(), taken.size());
    ASSERT_EQ(queue.error(), nullptr);
  }
  EXPECT_EQ(queue.error(), nullptr);
  EXPECT_EQ(driver.free_descriptors(), size);
  EXPECT_EQ(driver.used_index(), static_cast<uint16_t>(3 * 65536));
}
INSTANTIATE_TEST_SUITE_P(, VirtqueueSizeTest,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8, 16, 32, 64, 128, 256, 512,
                                                              1024),
                                            ::testing::Bool()));

TEST_F(VirtqueueTest, SizesThatAreNoPowerOfTwoOrTooLargeAreRefused) {
  for (uint32_t size = 0; size <= 0xffff; ++size) {
    const Virtqueue queue(*memory_, {.size = static_cast<uint16_t>(size),
                                     .descriptor_area = 0x100000,
                                     .driver_area = 0x300000,
                                     .device_area = 0x400000});
    const bool good = size != 0 && size <= 1024 && (size & (size - 1)) == 0;
    ASSERT_EQ(queue.error() == nullptr, good) << size;
    ASSERT_FALSE(queue.HasWork());
  }
}

}  // namespace
}  // namespace ringside::testing
