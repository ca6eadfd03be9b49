#include "devices/virtio_blk.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/status.h"
#include "devices/state_check.h"

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

// What the device has on one I/O thread: the channel, opened when it is first needed. It stays, so
// that a guest that resets for ever, or a queue that moves for ever, does not make the host open
// and close.
//
// Threads: Open and channel on the I/O thread; the end on any other.
class VirtioBlk::Share {
 public:
  Share(BlockDevice& disk, IoThread& io_thread) : disk_(disk), io_thread_(io_thread) {}
  // Behind all other tasks of this, and in a later turn than a Cancel that finds nothing in flight:
  // what that has queued for the end of its turn has run.
  ~Share() {
    io_thread_.RunAndWait([] {});
    io_thread_.RunAndWait([this] { channel_.reset(); });
  }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  IoThread& io_thread() const { return io_thread_; }
  absl::Status Open() {
    if (channel_ != nullptr) return absl::OkStatus();
    RINGSIDE_ASSIGN_OR_RETURN(channel_, disk_.Open(io_thread_));
    return absl::OkStatus();
  }
  BlockChannel& channel() { return *channel_; }
  // Any thread: the channel, if there is one, is told that the machine is over.
  void Cancel() { io_thread_.Post(cancel_); }
  // Any other thread.
  int Flush(absl::FunctionRef<bool()> is_over) {
    HostFlush flush(io_thread_);
    bool is_open = false;
    io_thread_.RunAndWait([&] {
      is_open = Open().ok();
      if (is_open) flush.SubmitTo(*channel_);
    });
    if (!is_open) return -EIO;
    while (!flush.ended.WaitFor(kLookAgain)) {
      if (is_over()) Cancel();
    }
    return flush.result;
  }

 private:
  static constexpr absl::Duration kLookAgain = absl::Milliseconds(50);

  // That no guest has asked for.
  struct HostFlush : BlockRequest {
    explicit HostFlush(IoThread& on) : BlockRequest{.op = BlockOp::kFlush}, io_thread(on) {
      done = [](BlockRequest& request) {
        auto& self = static_cast<HostFlush&>(request);
        self.io_thread.RequestEnds();
        self.ended.Notify();
      };
    }
    void SubmitTo(BlockChannel& channel) {
      io_thread.RequestBegins();
      channel.Submit(*this);
    }
    IoThread& io_thread;
    Event ended;
  };

  void CancelHere() {
    if (channel_ != nullptr) channel_->Cancel();
  }

  BlockDevice& disk_;
  IoThread& io_thread_;
  std::unique_ptr<BlockChannel> channel_;
  TaskTo<Share, &Share::CancelHere> cancel_{*this};
};

VirtioBlk::VirtioBlk(BlockDevice& disk, const GuestMemory& memory,
                     const std::vector<IoThread*>& io_threads, const VirtioBlkConfig& config)
    : QueuedDevice(
          memory, io_threads,
          {.count = config.queues, .size = kQueueSize, .trace_latency = config.trace_latency}),
      reports_(config.reports),
      throttle_(config.throttle != nullptr ? *config.throttle : unlimited_),
      rerror_(config.rerror),
      werror_(config.werror),
      begins_write_back_(disk.info().write_back),
      writeback_field_(disk.info().write_back),
      disk_(&disk) {
  view_.info = disk.info();
  std::ranges::copy_n(config.serial.begin(),
                      static_cast<ptrdiff_t>(std::min(config.serial.size(), view_.id.size())),
                      view_.id.begin());
}

VirtioBlk::~VirtioBlk() = default;

// The I/O threads and their channels.

VirtioBlk::Share& VirtioBlk::ShareOf(IoThread& io_thread) {
  const MutexLock lock(mutex_);
  for (const auto& share : shares_) {
    if (&share->io_thread() == &io_thread) return *share;
  }
  return *shares_.emplace_back(std::make_unique<Share>(*disk_, io_thread));
}

absl::Status VirtioBlk::Prepare(IoThread& io_thread) {
  return ShareOf(io_thread).Open();
}

BlkQueue::Disk VirtioBlk::DiskOn(IoThread& io_thread) {
  return {.channel = ShareOf(io_thread).channel(),
          .view = view_,
          .write_back = write_back_,
          .throttle = throttle_,
          .reports = reports_,
          .rerror = rerror_,
          .werror = werror_};
}

std::unique_ptr<QueueWorker> VirtioBlk::NewWorker(uint16_t, const QueueWorker::Parts& parts,
                                                  const QueueSetup& setup, uint64_t features) {
  return std::make_unique<BlkQueue>(parts, DiskOn(parts.io_thread), setup, features);
}

std::unique_ptr<QueueWorker> VirtioBlk::NextWorker(uint16_t, const QueueWorker::Parts& parts,
                                                   QueueWorker& before) {
  return std::make_unique<BlkQueue>(parts, DiskOn(parts.io_thread), static_cast<BlkQueue&>(before));
}

absl::Status VirtioBlk::Exchange(BlockDevice& next) {
  std::vector<IoThread*> io_threads;
  {
    const MutexLock lock(mutex_);
    for (const auto& share : shares_) io_threads.push_back(&share->io_thread());
  }
  // Where the driver has not come yet, or the machine has not started, there are none.
  for (uint16_t i = 0; i < queue_count(); ++i) {
    if (std::ranges::find(io_threads, &io_thread(i)) == io_threads.end()) {
      io_threads.push_back(&io_thread(i));
    }
  }
  std::vector<std::unique_ptr<Share>> shares;
  for (IoThread* const io_thread : io_threads) {
    Share& share = *shares.emplace_back(std::make_unique<Share>(next, *io_thread));
    absl::Status status;
    io_thread->RunAndWait([&] { status = share.Open(); });
    RINGSIDE_RETURN_IF_ERROR(status);
  }
  {
    const MutexLock lock(mutex_);
    disk_ = &next;
    shares_.swap(shares);  // whose ends wait for their threads
  }
  begins_write_back_.store(next.info().write_back, std::memory_order_relaxed);
  RenewWorkers();
  return absl::OkStatus();
}

// Any channel will do, as what is written is the disk's; where the driver has not come yet, or the
// device was made anew, there is none before this.
int VirtioBlk::Flush(absl::FunctionRef<bool()> is_over) {
  return view_.info.read_only ? 0 : ShareOf(io_thread(0)).Flush(is_over);
}

void VirtioBlk::Cancel() {
  const MutexLock lock(mutex_);
  for (const auto& share : shares_) share->Cancel();
}

void VirtioBlk::Forget(IoThread& io_thread) {
  std::unique_ptr<Share> forgotten;  // its end waits for the thread
  const MutexLock lock(mutex_);
  const auto share = std::ranges::find_if(
      shares_, [&](const auto& each) { return &each->io_thread() == &io_thread; });
  if (share == shares_.end()) return;
  forgotten = std::move(*share);
  shares_.erase(share);
}

// What the driver sees.

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
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = offset < kConfigSize && i < kConfigSize - offset ? bytes[offset + i] : std::byte{0};
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

absl::Status VirtioBlk::CheckSaved() const {
  if (kept() == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%d requests that failed are kept, and cannot be saved; mend the disk, resume the machine so "
      "that they are tried again, and pause it again",
      kept()));
}

std::vector<uint8_t> VirtioBlk::SaveState() const {
  static_assert(kConfigSize == offsetof(Config, unused1) + sizeof Config::unused1);
  const Config config = MakeConfig();
  const auto* bytes = reinterpret_cast<const uint8_t*>(&config);
  return {bytes, bytes + kConfigSize};
}

absl::Status VirtioBlk::CheckState(std::span<const uint8_t> state) const {
  const std::vector<uint8_t> here = SaveState();
  if (state.size() != here.size()) {
    return BadInput("the saved disk's configuration has %d bytes; a disk has %d", state.size(),
                    here.size());
  }
  for (size_t i = 0; i < kConfigSize; ++i) {
    if (i == offsetof(Config, writeback)) {
      RINGSIDE_RETURN_IF_ERROR(CheckBits("writeback field of the disk", state[i], 1));
    } else if (state[i] != here[i]) {
      return BadInput(
          "byte %d of the saved disk's configuration is %#x, and %#x here; restore with a disk of "
          "the same size, block size and queues",
          i, state[i], here[i]);
    }
  }
  return absl::OkStatus();
}

void VirtioBlk::RestoreState(std::span<const uint8_t> state) {
  writeback_field_ = state[offsetof(Config, writeback)];
}

// Section 5.2.6.2: a driver that knows neither of flushes nor of the field relies on every write.
void VirtioBlk::SetWriteBack(uint64_t features) {
  const bool field = writeback_field_ != 0;
  write_back_.store((features & kConfigWce) != 0 ? field : field && (features & kFlush) != 0,
                    std::memory_order_relaxed);
}

void VirtioBlk::Activated(uint64_t features) {
  view_.discard = (features & kDiscard) != 0;
  view_.write_zeroes = (features & kWriteZeroes) != 0;
  SetWriteBack(features);
}

// Anew with the next driver, which may not know of the field.
void VirtioBlk::ResetBegins() {
  writeback_field_ = begins_write_back_.load(std::memory_order_relaxed);
}

}  // namespace ringside
