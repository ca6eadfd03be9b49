// What a guest that floods one disk with the largest requests leaves of another disk on the same
// I/O thread.
//
//   fairness_benchmark
//
// In turns, the second disk's reads of 4 KiB are counted alone, and while 256 requests of as many
// bytes as there can be are under way on the first, all over the same pages; then the first is
// reset. `left`: the flooded share of the I/Os alone, the median of the rounds. `reset_ms`: the
// longest reset of the flooding device, which waits for the parts that are under way and no longer.
// The driver polls from a thread of its own, as the I/O thread does: so it wants two processors.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "benchmarks/support/turns.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "file/file_device.h"
#include "tests/support/devices/blk_format.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
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

// A device with one queue, and its driver.
class Disk {
 public:
  Disk(BlockDevice& device, const GuestMemory& memory, IoThread& io_thread, uint64_t rings)
      : memory_(memory),
        options_{.size = 256,
                 .address = rings,
                 .indirect = true,
                 .event_idx = true,
                 .table_entries = 128},
        blk_(device, memory, {&io_thread}, {}) {}

  void Start() {
    driver_ = std::make_unique<FakeDriver>(memory_, options_);
    const QueueSetup setup = driver_->Setup(0, kick_, line_);
    blk_.Activate(driver_->features() | kVirtioVersion1, {&setup, 1}, events_);
  }
  void Reset() {
    Event done;
    TaskOf task([&] { done.Notify(); });
    blk_.Reset(task);
    done.Wait();
  }
  void Add(uint32_t type, uint64_t bytes, uint64_t data) {
    const testing::BlkHeader header = {.type = type};
    std::memcpy(memory_.At(kHeader, sizeof header), &header, sizeof header);
    FakeDriver::Chain chain = driver_->NewChain();
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
  void Publish() {
    driver_->Publish();
    if (driver_->NeedsKick()) kick_.Signal();
  }
  bool Take() { return driver_->TakeUsed().has_value(); }

 private:
  const GuestMemory& memory_;
  const FakeDriver::Options options_;
  const EventFd kick_ = *EventFd::Create();
  std::atomic<uint8_t> isr_{0};
  InterruptLine line_{isr_, 1};
  NoEvents events_;
  std::unique_ptr<FakeDriver> driver_;
  VirtioBlk blk_;
};

uint64_t ReadsInARound(Disk& victim) {
  const int64_t end_ns = MonotonicNs() + kRoundNs;
  uint64_t reads = 0;
  for (; MonotonicNs() < end_ns; ++reads) {
    victim.Add(testing::kBlkIn, kPage, kVictimData);
    victim.Publish();
    while (!victim.Take()) __builtin_ia32_pause();
  }
  return reads;
}

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

  std::vector<double> shares;
  double reset_ms = 0;
  uint64_t alone = 0, flooded_reads = 0;
  for (auto _ : state) {
    const uint64_t before = ReadsInARound(victim);
    flood.Start();
    for (int i = 0; i < 256; ++i) {
      flood.Add(targets.writes ? testing::kBlkOut : testing::kBlkIn, targets.bytes, kFloodData);
    }
    flood.Publish();
    const uint64_t during = ReadsInARound(victim);
    const int64_t start_ns = MonotonicNs();
    flood.Reset();
    reset_ms = std::max(reset_ms, static_cast<double>(MonotonicNs() - start_ns) / 1e6);
    shares.push_back(static_cast<double>(during) / static_cast<double>(before));
    alone += before;
    flooded_reads += during;
  }
  victim.Reset();
  std::ranges::sort(shares);
  state.counters["left"] = shares[shares.size() / 2];
  state.counters["reset_ms"] = reset_ms;
  state.counters["alone"] = static_cast<double>(alone);
  state.counters["flooded"] = static_cast<double>(flooded_reads);
  if (shares[shares.size() / 2] < 0.1) state.SkipWithError("the flood leaves less than a tenth");
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

}  // namespace
}  // namespace ringside::benchmarks
