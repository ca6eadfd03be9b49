#include "devices/virtio_blk.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ringside {
namespace {

// Section 5.2.3.
constexpr uint64_t kSizeMax = uint64_t{1} << 1;
constexpr uint64_t kSegMax = uint64_t{1} << 2;
constexpr uint64_t kReadOnly = uint64_t{1} << 5;
constexpr uint64_t kBlkSize = uint64_t{1} << 6;
constexpr uint64_t kFlush = uint64_t{1} << 9;
constexpr uint64_t kTopology = uint64_t{1} << 10;
constexpr uint64_t kConfigWce = uint64_t{1} << 11;
constexpr uint64_t kMultiQueue = uint64_t{1} << 12;
constexpr uint64_t kDiscard = uint64_t{1} << 13;
constexpr uint64_t kWriteZeroes = uint64_t{1} << 14;

// Header and status need a descriptor each.
constexpr uint32_t kMaxDataSegments = VirtioBlk::kQueueSize - 2;
// What a driver is asked to make of a segment at most, so that requests are no larger than what is
// begun at once. One that asks for more gets it all the same, in parts: it may not know the limit.
constexpr uint32_t kMaxSegmentBytes = 1 << 20;

}  // namespace

// Section 5.2.4.
struct VirtioBlk::Config {
  uint64_t capacity;  // sectors
  uint32_t size_max;
  uint32_t seg_max;
  uint16_t cylinders;
  uint8_t heads;
  uint8_t sectors;
  uint32_t blk_size;
  uint8_t physical_block_exp;
  uint8_t alignment_offset;
  uint16_t min_io_size;  // logical blocks
  uint32_t opt_io_size;  // logical blocks
  uint8_t writeback;
  uint8_t unused0;
  uint16_t num_queues;
  uint32_t max_discard_sectors;
  uint32_t max_discard_seg;
  uint32_t discard_sector_alignment;
  uint32_t max_write_zeroes_sectors;
  uint32_t max_write_zeroes_seg;
  uint8_t write_zeroes_may_unmap;
  uint8_t unused1[3];
};

VirtioBlk::VirtioBlk(BlockDevice& disk, const GuestMemory& memory,
                     const std::vector<IoThread*>& io_threads, const VirtioBlkConfig& config)
    : disk_(disk),
      memory_(memory),
      stats_(config.queues),
      traces_(config.queues),
      writeback_field_(disk.info().write_back) {
  view_.info = disk.info();
  std::ranges::copy_n(config.serial.begin(),
                      static_cast<ptrdiff_t>(std::min(config.serial.size(), view_.id.size())),
                      view_.id.begin());
  if (config.trace_latency) {
    for (auto& trace : traces_) trace = std::make_unique<LatencyTrace>(kQueueSize);
  }
  MovableQueue::Owner& owner = *this;
  for (uint16_t i = 0; i < config.queues; ++i) {
    const MovableQueue::Shared shared = {.memory = memory_,
                                         .disk = view_,
                                         .write_back = write_back_,
                                         .stats = stats_[i],
                                         .trace = traces_[i].get()};
    queues_.push_back(
        std::make_unique<MovableQueue>(owner, shared, PartOn(*io_threads[i % io_threads.size()])));
  }
}

VirtioBlk::~VirtioBlk() = default;

BlkPart& VirtioBlk::PartOn(IoThread& io_thread) {
  const MutexLock lock(mutex_);
  for (const auto& part : parts_) {
    if (&part->io_thread() == &io_thread) return *part;
  }
  return *parts_.emplace_back(std::make_unique<BlkPart>(disk_, io_thread));
}

void VirtioBlk::MoveQueue(uint16_t queue, IoThread& to, MovableQueue::MoveDone done) {
  queues_[queue]->MoveTo(PartOn(to), std::move(done));
}

void VirtioBlk::Cancel() {
  const MutexLock lock(mutex_);
  for (const auto& part : parts_) part->Cancel();
}

uint64_t VirtioBlk::in_flight() const {
  uint64_t sum = 0;
  for (const BlkQueueStats& stats : stats_) sum += stats.in_flight.Get();
  return sum;
}

uint64_t VirtioBlk::features() const {
  uint64_t features = kVirtioRingIndirectDesc | kVirtioRingEventIdx | kSizeMax | kSegMax |
                      kBlkSize | kFlush | kTopology | kConfigWce;
  if (queue_count() > 1) features |= kMultiQueue;
  if (view_.info.read_only) features |= kReadOnly;
  if (view_.info.can_discard && !view_.info.read_only) features |= kDiscard | kWriteZeroes;
  return features;
}

VirtioBlk::Config VirtioBlk::MakeConfig() const {
  const BlockInfo& info = view_.info;
  const uint32_t per_physical = info.physical_block / info.logical_block;
  Config config = {};
  config.capacity = info.size / kSectorSize;
  config.size_max = kMaxSegmentBytes;
  config.seg_max = kMaxDataSegments;
  config.blk_size = info.logical_block;
  config.physical_block_exp = static_cast<uint8_t>(std::bit_width(std::max(per_physical, 1u)) - 1);
  config.min_io_size = static_cast<uint16_t>(std::clamp(per_physical, 1u, 0xffffu));
  config.opt_io_size = info.optimal_io / info.logical_block;
  config.writeback = writeback_field_;
  config.num_queues = queue_count();
  config.max_discard_sectors = kMaxDiscardSectors;
  config.max_discard_seg = kMaxDiscardRanges;
  config.discard_sector_alignment =
      std::max(info.discard_alignment, info.logical_block) / uint32_t{kSectorSize};
  config.max_write_zeroes_sectors = kMaxDiscardSectors;
  config.max_write_zeroes_seg = kMaxDiscardRanges;
  config.write_zeroes_may_unmap = 1;
  return config;
}

void VirtioBlk::ReadConfig(uint64_t offset, std::span<std::byte> data) {
  const Config config = MakeConfig();
  const auto* bytes = reinterpret_cast<const std::byte*>(&config);
  constexpr uint64_t kSize = offsetof(Config, unused1) + sizeof Config::unused1;
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = offset < kSize && i < kSize - offset ? bytes[offset + i] : std::byte{0};
  }
}

void VirtioBlk::WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) {
  // The only field a driver may write, and only if it negotiated to.
  if (offset != offsetof(Config, writeback) || data.size() != 1 || (features & kConfigWce) == 0) {
    return;
  }
  writeback_field_ = data[0] != std::byte{0};
  SetWriteBack(features);
}

// Section 5.2.6.2: a driver that knows neither of flushes nor of the field relies on every write.
void VirtioBlk::SetWriteBack(uint64_t features) {
  const bool field = writeback_field_ != 0;
  write_back_.store((features & kConfigWce) != 0 ? field : field && (features & kFlush) != 0,
                    std::memory_order_relaxed);
}

void VirtioBlk::Activate(uint64_t features, std::span<const QueueSetup> queues,
                         VirtioEvents& events) {
  view_.discard = (features & kDiscard) != 0;
  view_.write_zeroes = (features & kWriteZeroes) != 0;
  SetWriteBack(features);
  // One more than are up, so that Reset itself is done with the device before it is over.
  queues_up_.store(queues.size() + 1, std::memory_order_relaxed);
  for (const QueueSetup& queue : queues) queues_[queue.index]->Start(features, queue, events);
}

void VirtioBlk::Reset(Task& done) {
  // Anew with the next driver, which may not know of the field.
  writeback_field_ = disk_.info().write_back;
  reset_done_ = &done;
  for (const auto& queue : queues_) queue->Stop();
  QueueIsDown();
}

void VirtioBlk::QueueIsDown() {
  // Acquire and release: the last one sees that all others are done with the device.
  if (queues_up_.fetch_sub(1, std::memory_order_acq_rel) == 1) reset_done_->Run();
}

}  // namespace ringside
