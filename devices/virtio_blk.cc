#include "devices/virtio_blk.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/status.h"
#include "base/sync.h"

namespace ringside {
namespace {

// Section 5.2.3.
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

// The device's share of one I/O thread. Queues come with an activation and go with the reset; the
// channel stays, so that a guest that resets for ever does not make the host open and close.
class VirtioBlk::Part {
 public:
  Part(VirtioBlk& device, IoThread& io_thread) : device_(device), io_thread_(io_thread) {}
  ~Part() {
    if (channel_ == nullptr) return;
    io_thread_.Post(close_);
    closed_.Wait();
  }

  // From the activation on, until the reset is done, all else happens on the I/O thread.
  void Start(uint64_t features, VirtioEvents& events, std::vector<QueueSetup> setups) {
    features_ = features;
    events_ = &events;
    setups_ = std::move(setups);
    io_thread_.Post(start_);
  }
  void Stop() { io_thread_.Post(stop_); }

 private:
  absl::Status OpenChannel() {
    if (channel_ != nullptr) return absl::OkStatus();
    RINGSIDE_ASSIGN_OR_RETURN(channel_, device_.disk_.Open(io_thread_));
    return absl::OkStatus();
  }

  void StartHere() {
    if (const absl::Status status = OpenChannel(); !status.ok()) {
      return events_->NeedsReset(Message(status));
    }
    for (const QueueSetup& setup : setups_) {
      queues_.push_back(
          std::make_unique<BlkQueue>(BlkQueue::Parts{.memory = device_.memory_,
                                                     .io_thread = io_thread_,
                                                     .channel = *channel_,
                                                     .disk = device_.view_,
                                                     .write_back = device_.write_back_,
                                                     .stats = device_.stats_[setup.index],
                                                     .events = *events_,
                                                     .idle_hook = idle_hook_,
                                                     .trace = device_.traces_[setup.index].get()},
                                     setup, features_));
      if (const absl::Status status = io_thread_.Attach(*queues_.back(), Phase::kSubmit);
          !status.ok()) {
        queues_.pop_back();
        return events_->NeedsReset(Message(status));
      }
    }
  }

  void StopHere() {
    for (const auto& queue : queues_) {
      io_thread_.Detach(*queue);
      queue->Stop();
    }
    io_thread_.AtPublish(idle_hook_);
  }

  // What the kernel still reads or writes must stay: the end waits for the last completion.
  void EndIfIdle() {
    if (!std::ranges::all_of(queues_, [](const auto& queue) { return queue->idle(); })) return;
    queues_.clear();
    device_.PartIsDown();
  }

  void CloseHere() {
    channel_.reset();
    closed_.Notify();
  }

  VirtioBlk& device_;
  IoThread& io_thread_;
  uint64_t features_ = 0;
  VirtioEvents* events_ = nullptr;
  std::vector<QueueSetup> setups_;
  std::unique_ptr<BlockChannel> channel_;
  std::vector<std::unique_ptr<BlkQueue>> queues_;
  TaskTo<Part, &Part::StartHere> start_{*this};
  TaskTo<Part, &Part::StopHere> stop_{*this};
  TaskTo<Part, &Part::CloseHere> close_{*this};
  Event closed_;
  HookTo<Part, &Part::EndIfIdle> idle_hook_{*this};
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
  for (IoThread* io_thread : io_threads) {
    parts_.push_back(std::make_unique<Part>(*this, *io_thread));
  }
}

VirtioBlk::~VirtioBlk() = default;

uint64_t VirtioBlk::features() const {
  uint64_t features = kVirtioRingIndirectDesc | kVirtioRingEventIdx | kSegMax | kBlkSize | kFlush |
                      kTopology | kConfigWce;
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
  std::vector<std::vector<QueueSetup>> of_part(parts_.size());
  for (const QueueSetup& queue : queues) of_part[queue.index % parts_.size()].push_back(queue);
  parts_up_.store(parts_.size(), std::memory_order_relaxed);
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i]->Start(features, events, std::move(of_part[i]));
  }
}

void VirtioBlk::Reset(Task& done) {
  // Anew with the next driver, which may not know of the field.
  writeback_field_ = disk_.info().write_back;
  reset_done_ = &done;
  for (const auto& part : parts_) part->Stop();
}

void VirtioBlk::PartIsDown() {
  // Acquire and release: the last part sees that all others are done with the device.
  if (parts_up_.fetch_sub(1, std::memory_order_acq_rel) == 1) reset_done_->Run();
}

}  // namespace ringside
