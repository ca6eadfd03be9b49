// Every way a guest can break a virtqueue: that queue stops, and nothing else is touched.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "devices/virtqueue.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/raw_ring.h"

namespace ringside::testing {
namespace {

constexpr uint16_t kSize = 16;
constexpr uint64_t kRings = 0x10000;
constexpr uint64_t kTable = 0x40000;
constexpr uint64_t kData = 0x80000;
constexpr uint64_t kHole = 0xc0000000;
constexpr uint64_t kHigh = 0x100000000;

struct Case {
  std::string name;
  std::function<void(RawRing&)> write;  // descriptor 0 is the head
  bool indirect = true;
};

std::ostream& operator<<(std::ostream& out, const Case& broken) {
  return out << broken.name;
}

RawDescriptor Table(uint32_t entries) {
  return {.address = kTable, .length = 16 * entries, .flags = kIndirect};
}

// A chain of one descriptor.
Case One(std::string name, const RawDescriptor& descriptor) {
  return {std::move(name), [=](RawRing& ring) { ring.SetDescriptor(0, descriptor); }};
}

// A good buffer, then `last`, in the ring.
Case Second(std::string name, const RawDescriptor& last) {
  return {std::move(name), [=](RawRing& ring) {
            ring.SetDescriptor(0, {.address = kData, .length = 16, .flags = kNext, .next = 1});
            ring.SetDescriptor(1, last);
          }};
}

// A table of two: a good buffer, then `last`.
Case InTable(std::string name, const RawDescriptor& last) {
  return {std::move(name), [=](RawRing& ring) {
            ring.SetDescriptor(0, Table(2));
            ring.SetDescriptorAt(kTable, 0,
                                 {.address = kData, .length = 16, .flags = kNext, .next = 1});
            ring.SetDescriptorAt(kTable, 1, last);
          }};
}

// A good buffer in the region that `warm` is in, which the queue then remembers, and `last`.
Case Behind(uint64_t warm, std::string name, const RawDescriptor& last) {
  return {std::move(name), [=](RawRing& ring) {
            ring.SetDescriptor(0, {.address = warm, .length = 16, .flags = kNext, .next = 1});
            ring.SetDescriptor(1, last);
          }};
}

// Refers to the queue's own descriptors as an indirect table.
RawDescriptor OwnTable() {
  return {.address = kRings, .length = 16 * kSize, .flags = kIndirect};
}

void WriteManyBuffers(RawRing& ring, uint32_t count) {
  ring.SetDescriptor(0, Table(count));
  for (uint32_t i = 0; i < count; ++i) {
    ring.SetDescriptorAt(kTable, static_cast<uint16_t>(i),
                         {.address = kData,
                          .length = 1,
                          .flags = static_cast<uint16_t>(i + 1 < count ? kNext : 0),
                          .next = static_cast<uint16_t>(i + 1)});
  }
}

void Write4GiB(RawRing& ring) {
  for (uint16_t i = 0; i < 4; ++i) {
    ring.SetDescriptor(i, {.address = kGiB,
                           .length = static_cast<uint32_t>(kGiB),
                           .flags = static_cast<uint16_t>(i < 3 ? kNext : 0),
                           .next = static_cast<uint16_t>(i + 1)});
  }
}

std::vector<Case> Chains() {
  const RawDescriptor good = {.address = kData, .length = 16};
  std::vector<Case> cases = {
      One("LoopOfOne", {.address = kData, .length = 1, .flags = kNext, .next = 0}),
      Second("LoopOfTwo", {.address = kData, .length = 1, .flags = kNext, .next = 0}),
      Second("NextIsTheSize", {.address = kData, .length = 1, .flags = kNext, .next = kSize}),
      Second("NextIsFarOut", {.address = kData, .length = 1, .flags = kNext, .next = 0xffff}),
      InTable("LoopInTable", {.address = kData, .length = 1, .flags = kNext, .next = 0}),
      InTable("LoopOfOneInTable", {.address = kData, .length = 1, .flags = kNext, .next = 1}),
      InTable("NextLeavesTable", {.address = kData, .length = 1, .flags = kNext, .next = 2}),
      InTable("NextFarOutOfTable", {.address = kData, .length = 1, .flags = kNext, .next = 0xffff}),
      InTable("TableInTable", {.address = kTable + 0x100, .length = 16, .flags = kIndirect}),
      One("OwnTable", OwnTable()),
      One("OwnTableOfOne", {.address = kRings, .length = 16, .flags = kIndirect}),
      Second("OwnTableBehindABuffer", OwnTable()),
      InTable("OwnTableInTable", OwnTable()),
      One("TableWithNext",
          {.address = kTable, .length = 16, .flags = kIndirect | kNext, .next = 1}),
      One("TableOfNothing", {.address = kTable, .length = 0, .flags = kIndirect}),
      One("TableOfHalfAnEntry", {.address = kTable, .length = 8, .flags = kIndirect}),
      One("TableOfOneAndAHalf", {.address = kTable, .length = 24, .flags = kIndirect}),
      One("TableOutside", {.address = kHigh + kMiB, .length = 16, .flags = kIndirect}),
      One("TableInHole", {.address = kHole, .length = 16, .flags = kIndirect}),
      One("TableOverTheEnd", {.address = kHole - 16, .length = 32, .flags = kIndirect}),
      One("TableWraps", {.address = ~uint64_t{15}, .length = 32, .flags = kIndirect}),
      One("TableTooLong", {.address = kHigh, .length = 0xfffffff0, .flags = kIndirect}),
      One("Empty", {.address = kData, .length = 0}),
      One("EmptyWritable", {.address = kData, .length = 0, .flags = kWrite}),
      One("EmptyAtNull", {}),
      Second("EmptyAtTheEnd", {.address = kData, .length = 0}),
      One("Outside", {.address = kHigh + kMiB, .length = 1}),
      One("FarOutside", {.address = uint64_t{1} << 52, .length = 1}),
      One("InHole", {.address = kHole, .length = 1}),
      One("AtTheEndOfTheHole", {.address = kHigh - 1, .length = 1}),
      One("IntoTheHole", {.address = kHole - 1, .length = 2}),
      One("OutOfTheHole", {.address = kHigh - 1, .length = 2}),
      One("AcrossTheHole", {.address = kHole - 4096, .length = 0x40002000}),
      One("OverTheEnd", {.address = kHigh + kMiB - 1, .length = 2}),
      // Held against the region of the buffer before, which is remembered.
      Behind(kData, "WarmIntoTheHole", {.address = kHole - 1, .length = 2}),
      Behind(kData, "WarmPageIntoTheHole", {.address = kHole - 4095, .length = 4096}),
      Behind(kData, "WarmAtTheHole", {.address = kHole, .length = 1}),
      Behind(kData, "WarmEmpty", {.address = kData, .length = 0}),
      Behind(kHigh, "WarmOverTheEnd", {.address = kHigh + kMiB - 1, .length = 2}),
      Behind(kHigh, "WarmAllAndOneMore", {.address = kHigh, .length = kMiB + 1}),
      Behind(kHigh, "WarmOutOfTheHole", {.address = kHigh - 1, .length = 2}),
      Behind(kHigh, "WarmLongestLength", {.address = kHigh, .length = 0xffffffff}),
      Behind(kHigh, "WarmWraps", {.address = ~uint64_t{0}, .length = 2}),
      One("LongestLength", {.address = kData, .length = 0xffffffff}),
      One("LastAddress", {.address = ~uint64_t{0}, .length = 1}),
      One("Wraps", {.address = ~uint64_t{0}, .length = 2}),
      One("WrapsToMemory", {.address = ~uint64_t{0} - 0xfff, .length = 0x100000}),
      InTable("OutsideInTable", {.address = kHole, .length = 1}),
      {"WritableThenReadable",
       [=](RawRing& ring) {
         ring.SetDescriptor(0, {.address = kData, .length = 1, .flags = kNext | kWrite, .next = 1});
         ring.SetDescriptor(1, good);
       }},
      {"ReadableThenTableOfWritableThenReadable",
       [=](RawRing& ring) {
         ring.SetDescriptor(1, Table(2));
         ring.SetDescriptor(0, {.address = kData, .length = 1, .flags = kNext, .next = 1});
         ring.SetDescriptorAt(kTable, 0,
                              {.address = kData, .length = 1, .flags = kNext | kWrite, .next = 1});
         ring.SetDescriptorAt(kTable, 1, good);
       }},
      {"MoreBuffersThanAllowed", [](RawRing& ring) { WriteManyBuffers(ring, 1025); }},
      {"FourGiB", Write4GiB},
      {"TableNotNegotiated",
       [=](RawRing& ring) {
         ring.SetDescriptor(0, Table(1));
         ring.SetDescriptorAt(kTable, 0, good);
       },
       false},
  };
  return cases;
}

// What a queue may change in a guest it found broken: nothing.
class Untouched {
 public:
  explicit Untouched(const GuestMemory& memory) : memory_(memory), before_(Look()) {}
  ~Untouched() { EXPECT_TRUE(Look() == before_) << "guest memory changed"; }

 private:
  std::vector<uint8_t> Look() const {
    std::vector<uint8_t> all = PeekBytes(memory_, 0, kMiB);
    const std::vector<uint8_t> high = PeekBytes(memory_, kHigh, kMiB);
    all.insert(all.end(), high.begin(), high.end());
    return all;
  }
  const GuestMemory& memory_;
  const std::vector<uint8_t> before_;
};

class VirtqueueBroken : public ::testing::Test {
 protected:
  Virtqueue::Layout Layout(bool indirect = true) const {
    return {.size = kSize,
            .descriptor_area = ring_.place().descriptors,
            .driver_area = ring_.place().available,
            .device_area = ring_.place().used,
            .indirect = indirect,
            .event_idx = true};
  }
  void ExpectDead(Virtqueue& queue) {
    ASSERT_NE(queue.error(), nullptr);
    EXPECT_FALSE(queue.HasWork());
    std::array<DescriptorChain, 4> chains;
    ring_.SetAvailableIndex(static_cast<uint16_t>(ring_.available_index() + 1));
    EXPECT_FALSE(queue.HasWork());
    EXPECT_EQ(queue.Take(chains), 0u);
    const Untouched untouched(*memory_);
    queue.EnableNotify();
    queue.DisableNotify();
  }

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(3 * kGiB + kMiB);
  RawRing ring_{*memory_, RingPlace(kRings, kSize)};
};

class VirtqueueBrokenChain : public VirtqueueBroken, public ::testing::WithParamInterface<Case> {
 protected:
  // A walk that never ends would take the whole program with it.
  void SetUp() override { alarm(20); }
  void TearDown() override { alarm(0); }

  // In the tables and behind them, so that whoever follows a wrong index finds nothing to object
  // to.
  void FillWithGoodDescriptors() {
    const RawDescriptor good = {.address = kData, .length = 16};
    for (uint64_t address = kRings; address < ring_.place().available; address += 16) {
      ring_.SetDescriptorAt(address, 0, good);
    }
    for (uint32_t i = 0; i <= 0xffff; ++i) {
      ring_.SetDescriptorAt(kTable, static_cast<uint16_t>(i), good);
    }
  }
};

TEST_P(VirtqueueBrokenChain, BreaksTheQueue) {
  Virtqueue queue(*memory_, Layout(GetParam().indirect));
  FillWithGoodDescriptors();
  GetParam().write(ring_);
  ring_.SetAvailableEntry(0, 0);
  ring_.SetAvailableIndex(1);
  {
    const Untouched untouched(*memory_);
    std::array<DescriptorChain, 4> chains;
    ASSERT_EQ(queue.Take(chains), 1u) << "a head is not yet a chain";
    ASSERT_EQ(queue.error(), nullptr);
    ChainBuffers buffers;
    EXPECT_FALSE(queue.Walk(chains[0], buffers));
  }
  if (GetParam().name.starts_with("Loop")) {
    EXPECT_THAT(queue.error(), ::testing::HasSubstr("loops")) << "not only by becoming too long";
  }
  if (GetParam().name.starts_with("OwnTable")) {
    EXPECT_THAT(queue.error(), ::testing::HasSubstr("indirect")) << "as above";
  }
  ExpectDead(queue);
}
INSTANTIATE_TEST_SUITE_P(, VirtqueueBrokenChain, ::testing::ValuesIn(Chains()),
                         [](const auto& broken) { return broken.param.name; });

// What a queue remembers of an earlier chain's last buffer lets nothing pass that would not have
// passed at first.
TEST_F(VirtqueueBroken, ByABufferThatEndsAByteBehindTheRegionOfAnEarlierChain) {
  struct {
    uint64_t start, end;
  } const regions[] = {{kData, kHole}, {kHigh, kHigh + kMiB}};
  for (const auto& [start, end] : regions) {
    for (const uint32_t length : {2u, 512u, 4096u}) {
      ring_.Zero();
      Virtqueue queue(*memory_, Layout());
      ring_.SetDescriptor(0, {.address = start, .length = 16});
      ring_.SetDescriptor(1, {.address = end - length, .length = length});
      ring_.SetDescriptor(2, {.address = end - length + 1, .length = length});
      for (uint16_t i = 0; i < 3; ++i) ring_.SetAvailableEntry(i, i);
      ring_.SetAvailableIndex(3);
      std::array<DescriptorChain, 3> chains;
      ASSERT_EQ(queue.Take(chains), 3u);
      ChainBuffers buffers;
      EXPECT_TRUE(queue.Walk(chains[0], buffers));
      EXPECT_TRUE(queue.Walk(chains[1], buffers)) << "it ends where the region does";
      EXPECT_FALSE(queue.Walk(chains[2], buffers)) << length << " bytes, one of them too far";
    }
  }
}

TEST_F(VirtqueueBroken, ByAHeadBeyondTheQueue) {
  for (const uint16_t head : {kSize, uint16_t{kSize + 1}, uint16_t{0x8000}, uint16_t{0xffff}}) {
    ring_.Zero();
    Virtqueue queue(*memory_, Layout());
    ring_.SetAvailableEntry(0, 3);
    ring_.SetAvailableEntry(1, head);
    ring_.SetAvailableIndex(2);
    std::array<DescriptorChain, 4> chains;
    {
      const Untouched untouched(*memory_);
      EXPECT_EQ(queue.Take(chains), 1u) << "the good one before it";
    }
    EXPECT_EQ(chains[0].head(), 3);
    ExpectDead(queue);
  }
}

// A slot is claimed by head; a second claim is a protocol error, at once or while the first one is
// still in flight.
TEST_F(VirtqueueBroken, ByAHeadThatIsClaimedTwiceAtOnce) {
  Virtqueue queue(*memory_, Layout());
  ring_.SetAvailableEntry(0, 3);
  ring_.SetAvailableEntry(1, 3);
  ring_.SetAvailableIndex(2);
  std::array<DescriptorChain, 4> chains;
  EXPECT_EQ(queue.Take(chains), 1u);
  ExpectDead(queue);
}

TEST_F(VirtqueueBroken, ByAHeadThatIsClaimedAgainWhileInFlight) {
  Virtqueue queue(*memory_, Layout());
  ring_.SetAvailableEntry(0, 3);
  ring_.SetAvailableIndex(1);
  std::array<DescriptorChain, 4> chains;
  ASSERT_EQ(queue.Take(chains), 1u);
  ring_.SetAvailableEntry(1, 3);
  ring_.SetAvailableIndex(2);
  std::array<DescriptorChain, 4> more;
  EXPECT_EQ(queue.Take(more), 0u);
  ExpectDead(queue);
}

TEST_F(VirtqueueBroken, NotByAHeadThatCameBack) {
  Virtqueue queue(*memory_, Layout());
  for (uint16_t i = 0; i < 100; ++i) {
    ring_.SetAvailableEntry(i, 3);
    ring_.SetAvailableIndex(static_cast<uint16_t>(i + 1));
    std::array<DescriptorChain, 4> chains;
    ASSERT_EQ(queue.Take(chains), 1u);
    queue.Return(std::move(chains[0]), 0);
    queue.Publish();
  }
  EXPECT_EQ(queue.error(), nullptr);
}

TEST_F(VirtqueueBroken, ByAnIndexThatJumpsBeyondTheQueue) {
  for (const uint16_t start : {0, 5, 0xfff8, 0xffff}) {
    for (const uint16_t jump : {kSize + 1, 0x7fff, 0x8000, 0xffff}) {
      ring_.Zero();
      Virtqueue queue(*memory_, Layout());
      std::array<DescriptorChain, 1> chain;
      for (uint32_t i = 0; i < start; ++i) {
        ring_.SetAvailableIndex(static_cast<uint16_t>(i + 1));
        ASSERT_EQ(queue.Take(chain), 1u);
        queue.Return(std::move(chain[0]), 0);
      }
      ring_.SetAvailableIndex(static_cast<uint16_t>(start + jump));
      {
        const Untouched untouched(*memory_);
        EXPECT_EQ(queue.Take(chain), 0u) << start << " by " << jump;
      }
      ExpectDead(queue);
    }
  }
}

TEST_F(VirtqueueBroken, NotByAQueueThatIsFull) {
  Virtqueue queue(*memory_, Layout());
  for (uint16_t i = 0; i < kSize; ++i) ring_.SetAvailableEntry(i, i);
  ring_.SetAvailableIndex(kSize);
  std::array<DescriptorChain, kSize> chains;
  EXPECT_EQ(queue.Take(chains), kSize);
  EXPECT_EQ(queue.error(), nullptr);
}

TEST_F(VirtqueueBroken, ByItsUser) {
  Virtqueue queue(*memory_, Layout());
  EXPECT_FALSE(queue.Break("a request is no request"));
  EXPECT_STREQ(queue.error(), "a request is no request");
  ExpectDead(queue);
}

TEST_F(VirtqueueBroken, ByAreasThatAreMisalignedOrNotMemory) {
  struct {
    const char* name;
    uint64_t Virtqueue::Layout::* area;
    uint64_t alignment, size;
  } const areas[] = {
      {"descriptors", &Virtqueue::Layout::descriptor_area, 16, 16 * kSize},
      {"available", &Virtqueue::Layout::driver_area, 2, 6 + 2 * kSize},
      {"used", &Virtqueue::Layout::device_area, 4, 6 + 8 * kSize},
  };
  const auto works = [&](uint64_t Virtqueue::Layout::* area, uint64_t address) {
    Virtqueue::Layout layout = Layout();
    layout.*area = address;
    Virtqueue queue(*memory_, layout);
    const bool works = queue.error() == nullptr;
    if (!works) ExpectDead(queue);
    return works;
  };
  for (const auto& [name, area, alignment, size] : areas) {
    SCOPED_TRACE(name);
    const uint64_t room = (size + alignment - 1) / alignment * alignment;
    for (uint64_t offset = 1; offset < alignment; ++offset) {
      EXPECT_FALSE(works(area, kTable + offset)) << offset;
    }
    EXPECT_TRUE(works(area, kTable + alignment));
    EXPECT_TRUE(works(area, kHole - room));
    EXPECT_FALSE(works(area, kHole - room + alignment));
    EXPECT_FALSE(works(area, kHole));
    EXPECT_FALSE(works(area, kHigh - alignment));
    EXPECT_TRUE(works(area, kHigh));
    EXPECT_TRUE(works(area, kHigh + kMiB - room));
    EXPECT_FALSE(works(area, kHigh + kMiB - room + alignment));
    EXPECT_FALSE(works(area, kHigh + kMiB));
    EXPECT_FALSE(works(area, ~uint64_t{0} - alignment + 1));
  }
}

}  // namespace
}  // namespace ringside::testing
