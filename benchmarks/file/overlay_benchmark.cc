// What an overlay adds to a request for blocks that it has: a read of 4 KiB through a null disk's
// channel alone, and through an overlay's channel above it.
//
//   micro_benchmark --benchmark_filter=overlay
//
// The instructions include the thread's turn, shared by the batch, and the filling in of the
// requests. `more` is what the overlay's have more than the other's, and has a limit.
#include <benchmark/benchmark.h>
#include <memory>
#include <vector>

#include "benchmarks/support/batches.h"
#include "block/null_device.h"
#include "overlay/overlay_channel.h"
#include "overlay/overlay_header.h"

namespace ringside::benchmarks {
namespace {

constexpr double kMostMore = 80;  // seen: 69
constexpr size_t kBatch = 32;

struct Channels {
  std::unique_ptr<BlockChannel> null;
  std::unique_ptr<BlockChannel> overlay;
};

void ReadOfAllocated(benchmark::State& state) {
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  const OverlayHeader header = *NewOverlayHeader(kBytesPerMapPage, {}, "", kBytesPerMapPage);
  OverlayState overlay(*BlockMap::Create(header), header, 0, true);
  {
    const MutexLock lock(overlay.mutex);
    overlay.map->SetHere(0, kBlocksPerMapPage);
  }
  const auto disk =
      *NullDevice::Create({.size = OverlayFileBytes(header.data_offset, header.size)});
  const BlockInfo info = {.size = header.size};
  CounterPool<OverlayCounters> counters;
  Channels channels;
  RunOn(*io_thread, [&] {
    channels.null = *disk->Open(*io_thread);
    channels.overlay = std::make_unique<OverlayChannel>(*io_thread, *disk->Open(*io_thread),
                                                        nullptr, info, overlay, counters.Take());
  });
  std::vector<std::byte> memory(kBatch * Batches::kBytes);
  Batches alone(*io_thread, *channels.null, kBatch, memory.data());
  Batches above(*io_thread, *channels.overlay, kBatch, memory.data());
  Measure(state, [&](Calls& calls) { above.RunAll(calls); }, kBatch);
  const Cost less = CostOf([&](Calls& calls) { alone.RunAll(calls); }) / kBatch;
  const Cost all = CostOf([&](Calls& calls) { above.RunAll(calls); }) / kBatch;
  if (all.instructions && less.instructions) {
    const double more = *all.instructions - *less.instructions;
    state.counters["more"] = more;
    Require(state, more <= kMostMore, "an overlay costs too many instructions");
  }
  Require(state, !alone.failed() && !above.failed(), "a read failed");
  RunOn(*io_thread, [&] { channels = {}; });
}

BENCHMARK(ReadOfAllocated)->Name("overlay_read_allocated")->UseRealTime();

}  // namespace
}  // namespace ringside::benchmarks
