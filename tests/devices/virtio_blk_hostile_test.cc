// virtio-blk and a driver that breaks the rules: it can hurt only its own queue.
#include <random>
#include <thread>

#include "tests/support/devices/virtio_blk_fixture.h"

namespace ringside::testing {
namespace {

class VirtioBlkHostileTest : public VirtioBlkFixture {
 protected:
  bool WaitUntilBroken() {
    return SpinUntil([&] { return !events_.reasons().empty(); });
  }
  void PublishRaw(QueueRig& rig, uint16_t index) {
    rig.queue().ring().SetAvailableIndex(index);
    rig.kick.Signal();
  }
  // A chain of one descriptor that refers to itself, as head 0.
  void PublishLoop(QueueRig& rig) {
    rig.queue().ring().SetDescriptor(0, {.address = 0x1000, .length = 16, .flags = kNext});
    rig.queue().ring().SetAvailableEntry(rig.queue().available_index(), 0);
    PublishRaw(rig, static_cast<uint16_t>(rig.queue().available_index() + 1));
  }
};

// A second disk on the I/O threads of the first.
class OtherDisk {
 public:
  OtherDisk(const GuestMemory& memory, IoThread& io_thread)
      : disk_({.size = kMiB}),
        device_(disk_, memory, {&io_thread}, {}),
        rig_(memory, {.queue = {.size = 16, .address = 48 * kMiB}}) {
    const std::vector<QueueSetup> setups = {rig_.Setup(0)};
    device_.Activate(rig_.queue().features(), setups, events_);
  }
  ~OtherDisk() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_.Reset(task);
    done.WaitOrAbort();
  }
  void ExpectWorks() {
    EXPECT_EQ(rig_.Run(rig_.driver.AddRead(0, 512)), kBlkOk);
    EXPECT_TRUE(events_.reasons().empty());
  }

 private:
  RecordingVirtioEvents events_;
  MemoryDisk disk_;
  VirtioBlk device_;
  QueueRig rig_;
};

TEST_F(VirtioBlkHostileTest, ABrokenRingIsReportedOnceAndHurtsNobodyElse) {
  Start({.queues = 2});
  OtherDisk other(*memory_, *threads_[0]);
  EXPECT_EQ(rig(1).Run(driver(1).AddRead(0, 512)), kBlkOk);
  PublishLoop(rig(0));
  ASSERT_TRUE(WaitUntilBroken());
  for (int i = 0; i < 20; ++i) {
    PublishLoop(rig(0));
    EXPECT_EQ(rig(1).Run(driver(1).AddRead(0, 512)), kBlkOk);
    other.ExpectWorks();
  }
  EXPECT_EQ(events_.reasons().size(), 1u);
  EXPECT_FALSE(rig(0).queue().HasUsed());
  // And can be mended.
  Reset();
  MakeRigs();
  Activate();
  EXPECT_EQ(rig(0).Run(driver(0).AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(events_.reasons().size(), 1u);
}

TEST_F(VirtioBlkHostileTest, EachBrokenQueueIsReported) {
  Start({.queues = 3, .threads = 2});
  for (int i = 0; i < 3; ++i) PublishLoop(rig(i));
  EXPECT_TRUE(SpinUntil([&] { return events_.reasons().size() == 3; }));
  Settle();
  EXPECT_EQ(events_.reasons().size(), 3u);
}

TEST_F(VirtioBlkHostileTest, AreasOutsideMemoryAreReportedAtActivation) {
  for (uint64_t QueueSetup::* area :
       {&QueueSetup::descriptor_area, &QueueSetup::driver_area, &QueueSetup::device_area}) {
    Make({});
    OtherDisk other(*memory_, *threads_[0]);
    std::vector<QueueSetup> setups = {rig().Setup(0)};
    setups[0].*area = kLowMemoryEnd;
    const size_t before = events_.reasons().size();
    device_->Activate(features(), setups, events_);
    active_ = true;
    EXPECT_TRUE(SpinUntil([&] { return events_.reasons().size() > before; }));
    driver().AddRead(0, 512);
    rig().queue().Publish();
    rig().kick.Signal();
    other.ExpectWorks();
    EXPECT_EQ(events_.reasons().size(), before + 1);
    EXPECT_EQ(disk_->submitted(), 0u);
    Reset();
  }
}

// What was freed for the second claim used to be the first one's.
TEST_F(VirtioBlkHostileTest, AHeadThatIsClaimedAgainWhileInFlightLeavesTheFirstClaimAlone) {
  Start({.driver = {.queue = {.size = 64}, .segment = 512}});
  disk_->Hold(true);
  const std::vector<std::byte> data = Pattern(8192, 1);  // in more segments than are inline
  const uint16_t head = driver().AddWrite(0, data);
  rig().Publish();
  ASSERT_TRUE(disk_->WaitForHeld(1));
  rig().queue().ring().SetAvailableEntry(1, head);
  PublishRaw(rig(), 2);
  ASSERT_TRUE(WaitUntilBroken());
  disk_->ReleaseAll();
  Settle();
  EXPECT_EQ(disk_->Content(0, 8192), data);
  EXPECT_EQ(disk_->submitted(), 1u);
  EXPECT_FALSE(rig().queue().HasUsed()) << "a broken ring is not written";
}

TEST_F(VirtioBlkHostileTest, AResetAfterABreakStillWaitsForTheDisk) {
  Start({});
  disk_->Hold(true);
  driver().AddRead(0, 512);
  rig().Publish();
  ASSERT_TRUE(disk_->WaitForHeld(1));
  PublishLoop(rig());
  ASSERT_TRUE(WaitUntilBroken());
  BeginReset();
  Settle();
  EXPECT_FALSE(reset_done());
  disk_->ReleaseAll();
  WaitForReset();
}

TEST_F(VirtioBlkHostileTest, ARequestWithoutHeaderOrStatusBreaksTheQueue) {
  struct {
    const char* name;
    uint32_t header;
    bool status;
  } const cases[] = {{"no status", 16, false}, {"no header", 0, true}, {"short header", 15, true}};
  for (const auto& [name, header, status] : cases) {
    SCOPED_TRACE(name);
    Start({});
    const size_t before = events_.reasons().size();
    FakeDriver::Chain chain = rig().queue().NewChain();
    if (header > 0) chain.AppendReadable(rig().driver.end(), header);
    if (status) chain.AppendWritable(rig().driver.end() + 64, 1);
    chain.Add();
    rig().Publish();
    EXPECT_TRUE(SpinUntil([&] { return events_.reasons().size() > before; }));
    Settle();
    EXPECT_FALSE(rig().queue().HasUsed());
    Reset();
  }
}

// While chains are taken, their used elements are not yet seen; a ring's worth of them is the most
// that the used ring can hold.
TEST_F(VirtioBlkHostileTest, ATurnTakesNoMoreThanARing) {
  constexpr uint16_t kSize = 64;
  Start({.driver = {.queue = {.size = kSize}}});
  disk_->Hold(true);
  // Every descriptor is a request of its own: a table, answered right away. Head 0 is a read.
  RawRing& ring = rig().queue().ring();
  const uint64_t tables = rig().driver.end();
  for (uint16_t head = 0; head < kSize; ++head) {
    const uint64_t table = tables + head * uint64_t{4096};
    const BlkHeader header = {.type = head == 0 ? kBlkIn : kBlkGetId};
    std::memcpy(memory_->At(table + 64, sizeof header), &header, sizeof header);
    ring.SetDescriptorAt(table, 0, {table + 64, 16, kNext, 1});
    ring.SetDescriptorAt(table, 1, {table + 512, 513, kWrite, 0});
    ring.SetDescriptor(head, {table, 32, kIndirect, 0});
  }
  // From within its turn: the heads that were answered, once more.
  disk_->OnSubmit([&] {
    for (uint16_t i = 0; i + 1 < kSize; ++i) {
      ring.SetAvailableEntry(static_cast<uint16_t>(kSize + i), static_cast<uint16_t>(i + 1));
    }
    ring.SetAvailableIndex(2 * kSize - 1);
  });
  for (uint16_t i = 0; i < kSize; ++i) {
    ring.SetAvailableEntry(i, static_cast<uint16_t>((i + 1) % kSize));
  }
  PublishRaw(rig(), kSize);
  // All but the read, in two turns.
  ASSERT_TRUE(SpinUntil([&] { return ring.used_index() == 2 * (kSize - 1); }));
  Settle();
  EXPECT_EQ(device_->stats(0).batches.Get(), 2u);
  EXPECT_TRUE(events_.reasons().empty());
}

#if defined(__clang__)
#define RINGSIDE_UNSEEN_BY_TSAN __attribute__((no_sanitize("thread")))
#else
#define RINGSIDE_UNSEEN_BY_TSAN
#endif

// Overwrites what the device reads, as another vCPU of a hostile guest would: a race by intent, on
// memory that the device reads once.
class Scribbler {
 public:
  Scribbler(std::span<std::byte> target, uint32_t seed) : target_(target), random_(seed) {}

  RINGSIDE_UNSEEN_BY_TSAN void Scribble(int stores) {
    for (int i = 0; i < stores; ++i) {
      random_ = random_ * 1664525 + 1013904223;
      const size_t place = (random_ >> 8) % (target_.size() / 2) * 2;
      auto* field = reinterpret_cast<volatile uint16_t*>(&target_[place]);
      // Mostly small values, which look like something.
      *field = static_cast<uint16_t>(random_ % 4 == 0 ? random_ >> 16 : (random_ >> 16) % 20);
    }
  }

 private:
  const std::span<std::byte> target_;
  uint32_t random_;
};

TEST_F(VirtioBlkHostileTest, AGuestThatRewritesItsRingsWhileTheyAreReadHurtsItselfAlone) {
  constexpr int kRounds = 150;
  Make({.driver = {.queue = {.size = 32}, .max_bytes = 1024, .segment = 256}});
  OtherDisk other(*memory_, *threads_[0]);
  for (int round = 0; round < kRounds; ++round) {
    setting_.driver.queue.indirect = round % 2 == 0;
    MakeRigs();
    // Rings, tables and headers; buffers lie in between.
    const uint64_t begin = rig().queue().ring().place().descriptors;
    Scribbler scribbler({memory_->At(begin, driver().end() - begin), driver().end() - begin},
                        static_cast<uint32_t>(round));
    for (int i = 0; i < 3; ++i) driver().AddWrite(i, Pattern(1024, i));
    for (int i = 0; i < 2; ++i) driver().Add(kBlkGetId, 0, {}, 20);
    rig().queue().Publish();
    // In some rounds so much that the device is sure to meet a broken ring.
    if (round % 3 == 0) scribbler.Scribble(20000);
    Activate();
    std::thread other_cpu([&] { scribbler.Scribble(20000); });
    for (int i = 0; i < 20; ++i) rig().kick.Signal();
    other_cpu.join();
    if (round % 10 == 0) other.ExpectWorks();
    Reset();
  }
  other.ExpectWorks();
  EXPECT_GT(events_.reasons().size(), kRounds / 10u) << "the device has met broken rings";
  EXPECT_LE(events_.reasons().size(), kRounds * 1u) << "each said so once";
}

}  // namespace
}  // namespace ringside::testing
