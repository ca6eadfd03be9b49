// What a guest that floods one disk with the largest requests, or a network with frames, leaves of
// another disk on the same I/O thread.
//
//   fairness_benchmark
//
// In turns, the second disk's reads of 4 KiB are counted alone, and while 256 requests of as many
// bytes as there can be are under way on the first, all over the same pages, or while 256 frames
// are always on their way to a tap; then the first is reset. `left`: the flooded share of the I/Os
// alone, the median of the rounds. `reset_ms`: the longest reset of the flooding device, which
// waits for the parts that are under way and no longer. The driver polls from a thread of its own,
// as the I/O thread does: so it wants two processors.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "benchmarks/support/turns.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_net.h"
#include "file/file_device.h"
#include "net/tap.h"
#include "tests/support/devices/blk_format.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/net/own_network.h"
#include "tests/support/temp_file.h"

namespace ringside::benchmarks {
namespace {

using testing::FakeDriver;

constexpr uint32_t kPage = 4096;
constexpr int64_t kRoundNs = 50'000'000;
constexpr uint64_t kFloodRings = 1 * kMiB, kVictimRings = 4 * kMiB;
constexpr uint64_t kHeader = 6 * kMiB, kStatus = 7 * kMiB;  // of all requests: nobody reads them
constexpr uint64_t kVictimData = 8 * kMiB, kFloodData = 32 * kMiB;
constexpr uint32_t kSegment = 32 * kMiB;
constexpr uint64_t kMemorySize = 64 * kMiB;

class NoEvents final : public VirtioEvents {
 public:
  void ConfigChanged() override {}
  void NeedsReset(std::string_view) override {}
};

// A device with one queue that is used, and its driver.
class Driven {
 public:
  Driven(const GuestMemory& memory, uint64_t rings)
      : memory_(memory),
        options_{.size = 256,
                 .address = rings,
                 .indirect = true,
                 .event_idx = true,
                 .table_entries = 128} {}
  virtual ~Driven() = default;

  void Reset() {
    Event done;
    TaskOf task([&] { done.Notify(); });
    device().Reset(task);
    done.Wait();
  }
  void Publish() {
    driver_->Publish();
    if (driver_->NeedsKick()) kick_.Signal();
  }
  bool Take() { return driver_->TakeUsed().has_value(); }

 protected:
  virtual QueuedDevice& device() = 0;
  void Start(uint16_t queue) {
    driver_ = std::make_unique<FakeDriver>(memory_, options_);
    const QueueSetup setup = driver_->Setup(queue, kick_, line_);
    device().Activate(driver_->features() | kVirtioVersion1, {&setup, 1}, events_);
  }
  const GuestMemory& memory() const { return memory_; }
  FakeDriver& driver() { return *driver_; }

 private:
  const GuestMemory& memory_;
  const FakeDriver::Options options_;
  const EventFd kick_ = *EventFd::Create();
  std::atomic<uint8_t> isr_{0};
  InterruptLine line_{isr_, 1};
  NoEvents events_;
  std::unique_ptr<FakeDriver> driver_;
};

class Disk final : public Driven {
 public:
  Disk(BlockDevice& device, const GuestMemory& memory, IoThread& io_thread, uint64_t rings)
      : Driven(memory, rings), blk_(device, memory, {&io_thread}, {}) {}

  void Start() { Driven::Start(0); }
  void Add(uint32_t type, uint64_t bytes, uint64_t data) {
    const testing::BlkHeader header = {.type = type};
    std::memcpy(memory().At(kHeader, sizeof header), &header, sizeof header);
    FakeDriver::Chain chain = driver().NewChain();
    chain.AppendReadable(kHeader, sizeof header);
    for (uint64_t left = bytes; left > 0;) {
      const auto length = static_cast<uint32_t>(std::min<uint64_t>(left, kSegment));
      if (type == testing::kBlkIn) {
        chain.AppendWritable(data, length);
      } else {
        chain.AppendReadable(data, length);
      }
      left -= length;
    }
    chain.AppendWritable(kStatus, 1).Add();
  }

 private:
  QueuedDevice& device() override { return blk_; }

  VirtioBlk blk_;
};

// Frames out of one buffer, header first.
class Card final : public Driven {
 public:
  Card(HostNetwork& network, const GuestMemory& memory, IoThread& io_thread, uint64_t rings)
      : Driven(memory, rings),
        net_(network, link_, memory, {&io_thread}, {.name = "net0", .log = Logger()}) {}

  void Start() { Driven::Start(1); }
  // Has as many under way as go into the ring.
  void Refill(uint32_t frame_bytes) {
    while (Take()) ++sent_;
    while (driver().free_descriptors() > 0) {
      driver()
          .NewChain()
          .AppendReadable(kFloodData, static_cast<uint32_t>(kNetHeaderSize) + frame_bytes)
          .Add();
    }
    Publish();
  }
  uint64_t sent() const { return sent_; }

 private:
  QueuedDevice& device() override { return net_; }

  NetLink link_;
  VirtioNet net_;
  uint64_t sent_ = 0;
};

// `meanwhile` is called while each of them is under way.
template <typename Function>
uint64_t ReadsInARound(Disk& victim, Function meanwhile) {
  const int64_t end_ns = MonotonicNs() + kRoundNs;
  uint64_t reads = 0;
  for (; MonotonicNs() < end_ns; ++reads) {
    victim.Add(testing::kBlkIn, kPage, kVictimData);
    victim.Publish();
    while (!victim.Take()) meanwhile();
  }
  return reads;
}
void Pause() {
  __builtin_ia32_pause();
}

// What is counted: the victim's reads alone, and during a flood.
class Shares {
 public:
  void Add(uint64_t alone, uint64_t flooded) {
    shares_.push_back(static_cast<double>(flooded) / static_cast<double>(alone));
    alone_ += alone;
    flooded_ += flooded;
  }
  // Returns what is left, the median of the rounds.
  double Report(benchmark::State& state) {
    std::ranges::sort(shares_);
    const double left = shares_[shares_.size() / 2];
    state.counters["left"] = left;
    state.counters["alone"] = static_cast<double>(alone_);
    state.counters["flooded"] = static_cast<double>(flooded_);
    return left;
  }
  uint64_t flooded() const { return flooded_; }

 private:
  std::vector<double> shares_;
  uint64_t alone_ = 0, flooded_ = 0;
};

// The files of one benchmark: where the flood goes, and what it leaves something of.
struct Targets {
  const char* directory;  // of the flooded file
  uint64_t bytes;         // of each of its requests
  bool writes;
  bool victim_on_tmpfs;
};

void Fairness(benchmark::State& state, const Targets& targets, Engine engine) {
  const auto io_thread = StartIoThread(state, PollKind::kAlways);
  if (io_thread == nullptr) return;
  const testing::TempFile flooded_file(targets.bytes, targets.directory), victim_file(kMiB);
  const auto flooded = FileDevice::Create(
      {.path = flooded_file.path(), .cache = CacheMode::kWriteback, .aio = engine}, Logger());
  const auto null = NullDevice::Create({.size = kMiB});
  const auto file = FileDevice::Create({.path = victim_file.path()}, Logger());
  if (!flooded.ok() || !null.ok() || !file.ok()) return state.SkipWithError("there is no disk");
  const auto memory = MakeMemory(kMemorySize);
  BlockDevice* left =
      targets.victim_on_tmpfs ? static_cast<BlockDevice*>(file->get()) : null->get();
  Disk victim(*left, *memory, *io_thread, kVictimRings);
  Disk flood(**flooded, *memory, *io_thread, kFloodRings);
  victim.Start();

  Shares shares;
  double reset_ms = 0;
  for (auto _ : state) {
    const uint64_t alone = ReadsInARound(victim, Pause);
    flood.Start();
    for (int i = 0; i < 256; ++i) {
      flood.Add(targets.writes ? testing::kBlkOut : testing::kBlkIn, targets.bytes, kFloodData);
    }
    flood.Publish();
    shares.Add(alone, ReadsInARound(victim, Pause));
    const int64_t start_ns = MonotonicNs();
    flood.Reset();
    reset_ms = std::max(reset_ms, static_cast<double>(MonotonicNs() - start_ns) / 1e6);
  }
  victim.Reset();
  state.counters["reset_ms"] = reset_ms;
  if (shares.Report(state) < 0.1) state.SkipWithError("the flood leaves less than a tenth");
}

// Frames of that many bytes go out to a tap of a network name space of this thread's own.
void FairnessBesideFrames(benchmark::State& state, uint32_t frame_bytes) {
  const testing::OwnNetwork own_network;
  if (!own_network.allowed()) return state.SkipWithError(testing::OwnNetwork::kNotAllowed);
  const auto tap = Tap::ByName("flooded", 1, 0);
  if (!tap.ok()) return state.SkipWithError(std::string(tap.status().message()).c_str());
  const auto io_thread = StartIoThread(state, PollKind::kAlways);
  if (io_thread == nullptr) return;
  const auto null = NullDevice::Create({.size = kMiB});
  const auto memory = MakeMemory(kMemorySize);
  Disk victim(**null, *memory, *io_thread, kVictimRings);
  Card flood(**tap, *memory, *io_thread, kFloodRings);
  victim.Start();

  Shares shares;
  for (auto _ : state) {
    const uint64_t alone = ReadsInARound(victim, Pause);
    flood.Start();
    shares.Add(alone, ReadsInARound(victim, [&] { flood.Refill(frame_bytes); }));
    flood.Reset();
  }
  victim.Reset();
  const double frames_per_read =
      static_cast<double>(flood.sent()) / static_cast<double>(shares.flooded());
  state.counters["frames_per_read"] = frames_per_read;
  shares.Report(state);
  if (flood.sent() == 0) state.SkipWithError("no frame was sent beside the reads");
  // A read waits for the turn under way, and is shown at the end of its own.
  if (frames_per_read > 2.1 * kNetTurnFrames) state.SkipWithError("a turn carries too many frames");
}

#define RINGSIDE_FAIRNESS(name, ...)                                        \
  BENCHMARK_CAPTURE(Fairness, name, Targets{__VA_ARGS__}, Engine::kIoUring) \
      ->Name("fairness/" #name)                                             \
      ->Iterations(8)                                                       \
      ->UseRealTime()

RINGSIDE_FAIRNESS(reads_of_tmpfs_beside_null, "/dev/shm", 126 * uint64_t{kSegment}, false, false);
RINGSIDE_FAIRNESS(reads_of_tmpfs_beside_tmpfs, "/dev/shm", 126 * uint64_t{kSegment}, false, true);
RINGSIDE_FAIRNESS(writes_to_tmpfs_beside_null, "/dev/shm", 256 * kMiB, true, false);
RINGSIDE_FAIRNESS(reads_of_cache_beside_null, ".", 512 * kMiB, false, false);
RINGSIDE_FAIRNESS(reads_of_cache_beside_tmpfs, ".", 512 * kMiB, false, true);
RINGSIDE_FAIRNESS(writes_to_cache_beside_null, ".", 256 * kMiB, true, false);
#undef RINGSIDE_FAIRNESS

BENCHMARK_CAPTURE(FairnessBesideFrames, frames_of_64_bytes_beside_null, 64)
    ->Name("fairness/frames_of_64_bytes_beside_null")
    ->Iterations(8)
    ->UseRealTime();
BENCHMARK_CAPTURE(FairnessBesideFrames, frames_of_1500_bytes_beside_null, 1500)
    ->Name("fairness/frames_of_1500_bytes_beside_null")
    ->Iterations(8)
    ->UseRealTime();

}  // namespace
}  // namespace ringside::benchmarks
