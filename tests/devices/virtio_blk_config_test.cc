// virtio-blk's configuration space and features (VIRTIO 1.2, sections 5.2.3 to 5.2.5), against the
// layout that Linux has of them.
#include <linux/virtio_blk.h>

#include "tests/support/devices/random_state.h"
#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/status_matchers.h"

namespace ringside::testing {
namespace {

constexpr uint64_t Bit(int bit) {
  return uint64_t{1} << bit;
}

class VirtioBlkConfigTest : public VirtioBlkFixture {
 protected:
  template <typename T>
  T Read(size_t offset) {
    T value;
    device_->ReadConfig(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  virtio_blk_config ReadAll() { return Read<virtio_blk_config>(0); }
  void WriteWce(uint8_t value, uint64_t features) {
    device_->WriteConfig(offsetof(virtio_blk_config, wce), std::as_bytes(std::span(&value, 1)),
                         features);
  }
  uint8_t wce() { return Read<uint8_t>(offsetof(virtio_blk_config, wce)); }
};

TEST_F(VirtioBlkConfigTest, TellsWhatTheDiskIs) {
  Make({.queues = 3,
        .info = {.size = 1234 * 4096,
                 .logical_block = 4096,
                 .physical_block = 16384,
                 .optimal_io = 65536,
                 .can_discard = true,
                 .discard_alignment = 32768}});
  const virtio_blk_config config = ReadAll();
  EXPECT_EQ(config.capacity, 1234u * 8);
  EXPECT_EQ(config.size_max, 1u << 20);
  EXPECT_NE(device_->features() & Bit(VIRTIO_BLK_F_SIZE_MAX), 0u);
  EXPECT_EQ(config.seg_max, VirtioBlk::kQueueSize - 2u);
  EXPECT_EQ(config.blk_size, 4096u);
  EXPECT_EQ(config.physical_block_exp, 2);
  EXPECT_EQ(config.alignment_offset, 0);
  EXPECT_EQ(config.min_io_size, 4);
  EXPECT_EQ(config.opt_io_size, 16u);
  EXPECT_EQ(config.num_queues, 3);
  EXPECT_EQ(config.max_discard_sectors, kMaxDiscardSectors);
  EXPECT_EQ(config.max_discard_seg, kMaxDiscardRanges);
  EXPECT_EQ(config.discard_sector_alignment, 64u);
  EXPECT_EQ(config.max_write_zeroes_sectors, kMaxDiscardSectors);
  EXPECT_EQ(config.max_write_zeroes_seg, kMaxDiscardRanges);
  EXPECT_EQ(config.write_zeroes_may_unmap, 1);
}

TEST_F(VirtioBlkConfigTest, OfAnOrdinaryDisk) {
  Make({});
  const virtio_blk_config config = ReadAll();
  EXPECT_EQ(config.capacity, kDiskSize / 512);
  EXPECT_EQ(config.blk_size, 512u);
  EXPECT_EQ(config.physical_block_exp, 0);
  EXPECT_EQ(config.min_io_size, 1);
  EXPECT_EQ(config.opt_io_size, 0u);
  EXPECT_EQ(config.discard_sector_alignment, 1u);
  EXPECT_EQ(config.num_queues, 1);
}

TEST_F(VirtioBlkConfigTest, MayBeReadInAnyPiecesAndBeyondItsEnd) {
  Make({});
  const auto whole = Read<std::array<uint8_t, 64>>(0);
  for (size_t offset = 0; offset < 64; ++offset) {
    EXPECT_EQ(Read<uint8_t>(offset), whole[offset]);
    std::array<std::byte, 64> piece;
    for (size_t size = 1; offset + size <= 64; ++size) {
      device_->ReadConfig(offset, std::span(piece).first(size));
      ASSERT_EQ(std::memcmp(piece.data(), &whole[offset], size), 0);
    }
  }
  for (const uint64_t offset : {uint64_t{64}, uint64_t{1} << 32, ~uint64_t{0} - 7, ~uint64_t{0}}) {
    std::array<std::byte, 8> piece;
    piece.fill(std::byte{0xee});
    device_->ReadConfig(offset, piece);
    EXPECT_EQ(piece, (std::array<std::byte, 8>{}));
  }
}

TEST_F(VirtioBlkConfigTest, FeaturesFollowTheDisk) {
  constexpr uint64_t kAlways = Bit(28) | Bit(29) | Bit(VIRTIO_BLK_F_SIZE_MAX) |
                               Bit(VIRTIO_BLK_F_SEG_MAX) | Bit(VIRTIO_BLK_F_BLK_SIZE) |
                               Bit(VIRTIO_BLK_F_FLUSH) | Bit(VIRTIO_BLK_F_TOPOLOGY) |
                               Bit(VIRTIO_BLK_F_CONFIG_WCE);
  constexpr uint64_t kDiscards = Bit(VIRTIO_BLK_F_DISCARD) | Bit(VIRTIO_BLK_F_WRITE_ZEROES);
  Make({.info = {.size = kDiskSize}});
  EXPECT_EQ(device_->features(), kAlways);
  Make({.queues = 2, .info = {.size = kDiskSize, .can_discard = true}});
  EXPECT_EQ(device_->features(), kAlways | Bit(VIRTIO_BLK_F_MQ) | kDiscards);
  Make({.info = {.size = kDiskSize, .read_only = true, .can_discard = true}});
  EXPECT_EQ(device_->features(), kAlways | Bit(VIRTIO_BLK_F_RO));
  EXPECT_EQ(device_->id(), 2);
  EXPECT_EQ(device_->max_queue_size(0), VirtioBlk::kQueueSize);
}

TEST_F(VirtioBlkConfigTest, SerialsAreCutToTheirPlace) {
  for (const std::string serial : {"", "x", "0123456789ABCDEFGHIJ", "0123456789ABCDEFGHIJKLM"}) {
    Start({.serial = serial});
    const uint16_t id = driver().Add(kBlkGetId, 0, {}, 20);
    EXPECT_EQ(rig().Run(id), kBlkOk);
    std::string expected = serial.substr(0, 20);
    expected.resize(20);
    EXPECT_TRUE(std::ranges::equal(driver().data(id, 20), std::as_bytes(std::span(expected))));
    Reset();
  }
}

TEST_F(VirtioBlkConfigTest, OnlyTheCacheFieldIsWritableAndOnlyIfNegotiated) {
  Make({});
  const auto before = Read<std::array<uint8_t, 64>>(0);
  const std::array<std::byte, 64> zeroes{};  // the field is 1
  for (uint64_t offset = 0; offset < 80; ++offset) {
    for (const size_t size : {1, 2, 4, 8, 64}) {
      if (offset == offsetof(virtio_blk_config, wce) && size == 1) continue;
      device_->WriteConfig(offset, std::span(zeroes).first(size), ~uint64_t{0});
    }
  }
  device_->WriteConfig(~uint64_t{0}, std::span(zeroes).first(1), ~uint64_t{0});
  WriteWce(0, 0);
  WriteWce(0, ~Bit(VIRTIO_BLK_F_CONFIG_WCE));
  EXPECT_EQ((Read<std::array<uint8_t, 64>>(0)), before);
  EXPECT_EQ(wce(), 1);
  WriteWce(0, Bit(VIRTIO_BLK_F_CONFIG_WCE));
  EXPECT_EQ(wce(), 0);
  WriteWce(0x80, Bit(VIRTIO_BLK_F_CONFIG_WCE));
  EXPECT_EQ(wce(), 1) << "a field of one bit";
}

// Whether writes are durable by themselves, by disk and by what the driver knows of caches.
struct CacheCase {
  bool disk_write_back, flush, config_wce;
  bool durable;
};

class VirtioBlkCacheTest : public VirtioBlkConfigTest,
                           public ::testing::WithParamInterface<CacheCase> {};

TEST_P(VirtioBlkCacheTest, WritesAreDurableUnlessTheDriverCanFlush) {
  const CacheCase& cache = GetParam();
  Make({.info = {.size = kDiskSize, .write_back = cache.disk_write_back, .can_discard = true}});
  EXPECT_EQ(wce(), cache.disk_write_back);
  uint64_t features = this->features() & ~(kBlkFlushFeature | kBlkConfigWceFeature);
  if (cache.flush) features |= kBlkFlushFeature;
  if (cache.config_wce) features |= kBlkConfigWceFeature;
  Activate(features);
  EXPECT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 1))), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddRange(kBlkWriteZeroes, {0, 1, 0})), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddFlush()), kBlkOk);
  const std::vector<MemoryDisk::Record> records = disk_->records();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].durable, cache.durable);
  EXPECT_EQ(records[1].durable, cache.durable);
  EXPECT_FALSE(records[2].durable) << "a read";
}
INSTANTIATE_TEST_SUITE_P(
    , VirtioBlkCacheTest,
    ::testing::Values(CacheCase{true, true, true, false}, CacheCase{true, true, false, false},
                      CacheCase{true, false, false, true}, CacheCase{true, false, true, false},
                      CacheCase{false, true, true, true}, CacheCase{false, true, false, true},
                      CacheCase{false, false, false, true}));

TEST_F(VirtioBlkConfigTest, TheCacheFieldSwitchesWhileTheDeviceRuns) {
  Start({});
  const auto durable = [&] {
    EXPECT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 1))), kBlkOk);
    return disk_->records().back().durable;
  };
  EXPECT_FALSE(durable());
  WriteWce(0, features());
  EXPECT_TRUE(durable());
  // What was written before may still need it.
  EXPECT_EQ(rig().Run(driver().AddFlush()), kBlkOk);
  EXPECT_EQ(disk_->records().back().op, BlockOp::kFlush);
  WriteWce(1, features());
  EXPECT_FALSE(durable());
}

TEST_F(VirtioBlkConfigTest, TheCacheFieldIsTheDisksAgainAfterAReset) {
  Start({});
  WriteWce(0, features());
  Reset();
  EXPECT_EQ(wce(), 1);
  MakeRigs();
  Activate();
  EXPECT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 1))), kBlkOk);
  EXPECT_FALSE(disk_->records().back().durable);
}

// Saved state.

TEST_F(VirtioBlkConfigTest, ASavedDeviceGoesOnWithItsCacheFieldWhereItsRingWas) {
  Start({});
  WriteWce(0, features());
  EXPECT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 1))), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddWrite(512, Pattern(512, 2))), kBlkOk);
  const std::vector<uint8_t> state = device_->SaveState();
  // Nothing is in flight; who looks at the queue is its thread.
  uint16_t position = 0;
  threads_[0]->RunAndWait([&] { position = device_->Position(0); });
  EXPECT_EQ(position, 2);
  Reset();

  device_ = std::make_unique<VirtioBlk>(*disk_, *memory_, std::vector{threads_[0].get()},
                                        VirtioBlkConfig{});
  ASSERT_EQ(device_->CheckState(state), absl::OkStatus());
  device_->RestoreState(state);
  EXPECT_EQ(device_->SaveState(), state);
  EXPECT_EQ(wce(), 0);
  QueueSetup setup = rig().Setup(0);
  setup.next = position;
  device_->Activate(features(), {{setup}}, events_);
  active_ = true;
  const uint16_t head = driver().AddRead(512, 512);
  EXPECT_EQ(rig().Run(head), kBlkOk);
  EXPECT_EQ(Data(0, head, 512), Pattern(512, 2));
  EXPECT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 3))), kBlkOk);
  EXPECT_TRUE(disk_->records().back().durable);
}

TEST_F(VirtioBlkConfigTest, StateIsTakenForTheSameDiskOnly) {
  Make({});
  const std::vector<uint8_t> here = device_->SaveState();
  EXPECT_EQ(here.size(), VirtioBlk::kConfigSize);
  // Each byte and what a driver may have made of it.
  for (size_t i = 0; i < VirtioBlk::kConfigSize; ++i) {
    for (const int flip : {1, 2, 0x80}) {
      std::vector<uint8_t> state = here;
      state[i] ^= static_cast<uint8_t>(flip);
      const bool is_field = i == offsetof(virtio_blk_config, wce) && flip == 1;
      ASSERT_EQ(device_->CheckState(state).ok(), is_field) << i;
    }
  }
  Make({.info = {.size = 2 * kDiskSize}});
  EXPECT_THAT(device_->CheckState(here), IsBadInput("configuration", "same size"));
  std::vector<uint8_t> state = device_->SaveState();
  state[offsetof(virtio_blk_config, wce)] = 2;
  EXPECT_THAT(device_->CheckState(state), IsBadInput("writeback", "0x2"));
}

TEST_F(VirtioBlkConfigTest, AnyBytesOfAStateAreTakenOrRefused) {
  Make({});
  const std::vector<uint8_t> here = device_->SaveState();
  RandomState random(5);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> state = here;
    round % 2 == 0 ? random.Fill(state, 2 * here.size()) : random.Mutate(state);
    if (device_->CheckState(state).ok()) {
      ++taken;
      device_->RestoreState(state);
      ASSERT_EQ(device_->SaveState(), state);
      device_->RestoreState(here);
    }
    ASSERT_EQ(device_->SaveState(), here);
  }
  EXPECT_GT(taken, 20);
}

TEST_F(VirtioBlkConfigTest, DiscardAndZeroesNeedTheirFeatures) {
  for (const uint64_t missing : {kBlkDiscardFeature, kBlkWriteZeroesFeature}) {
    Make({});
    Activate(features() & ~missing);
    EXPECT_EQ(rig().Run(driver().AddRange(kBlkDiscard, {0, 1, 0})),
              missing == kBlkDiscardFeature ? kBlkUnsupported : kBlkOk);
    EXPECT_EQ(rig().Run(driver().AddRange(kBlkWriteZeroes, {0, 1, 0})),
              missing == kBlkWriteZeroesFeature ? kBlkUnsupported : kBlkOk);
    Reset();
  }
}

TEST_F(VirtioBlkConfigTest, IndirectTablesAndEventIdxNeedTheirFeatures) {
  Make({.driver = {.queue = {.size = 8, .indirect = true}}});
  Activate(features() & ~kVirtioRingIndirectDesc);
  driver().AddRead(0, 512);
  rig().Publish();
  EXPECT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
  Reset();

  setting_.driver.queue.indirect = false;
  MakeRigs();
  Activate(features() & ~kVirtioRingEventIdx);
  // An event far away, which counts only if it was negotiated.
  rig().queue().ring().SetUsedEvent(100);
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_TRUE(WaitForFd(rig().call.fd(), POLLIN));
}

}  // namespace
}  // namespace ringside::testing
