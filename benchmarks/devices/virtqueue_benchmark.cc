// The ring arithmetic and the parsing of requests, without threads and disks.
//
//   micro_benchmark --benchmark_filter='next_descriptor|queue_|request_parse'
//
// Names and set-up are those of Firecracker's criterion benchmarks (src/vmm/benches/queue.rs and
// block_request.rs): buffers of 1024 bytes from address 2048 on, in a queue of 256 entries (of 16
// for request_parse) in one small region of memory. An operation is all 16 or 256 of a case's name.
// What differs, because this queue has another interface:
// - next_descriptor_16: Walk goes through the chain and looks up every buffer; Firecracker's
//   iterator looks up none until it is asked to.
// - queue_pop_16: Take and Walk, which together do what pop does. The queue is a copy made for the
//   operation, where Firecracker sets its index back; and all entries of the ring are there once.
// - queue_add_used_*: only a chain that was taken can be returned, so the time is that of Take,
//   Return and Publish; the instructions are without Take. Firecracker writes the used index with
//   every element, this queue once.
// - request_parse: Walk and ParseBlkRequest, since Firecracker's parse goes through the chain, too.
// - Memory is 68 KiB, not 65,562 bytes: regions are made of pages.
#include <array>
#include <benchmark/benchmark.h>
#include <cstring>
#include <memory>
#include <span>

#include "benchmarks/support/measure.h"
#include "devices/blk_request.h"
#include "devices/virtqueue.h"
#include "tests/support/devices/blk_format.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/raw_ring.h"

namespace ringside::benchmarks {
namespace {

using testing::kNext;
using testing::kWrite;

constexpr uint32_t kBufferSize = 1024;
constexpr uint64_t BufferAddress(uint16_t i) {
  return 2048 + uint64_t{kBufferSize} * i;
}

struct Rig {
  explicit Rig(uint16_t size) : ring(*memory, testing::RingPlace(0, size)) {}

  Virtqueue MakeQueue() const {
    const testing::RingPlace& place = ring.place();
    return {*memory,
            {.size = place.size,
             .descriptor_area = place.descriptors,
             .driver_area = place.available,
             .device_area = place.used}};
  }
  // So many chains of one buffer.
  void MakeChains(uint16_t count) {
    for (uint16_t i = 0; i < count; ++i) {
      ring.SetDescriptor(
          i, {.address = BufferAddress(i % 16), .length = kBufferSize, .flags = kWrite});
      ring.SetAvailableEntry(i, i);
    }
    ring.SetAvailableIndex(count);
  }
  // One chain of so many buffers.
  void MakeChain(uint16_t count) {
    for (uint16_t i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      ring.SetDescriptor(i, {.address = BufferAddress(i),
                             .length = kBufferSize,
                             .flags = static_cast<uint16_t>(last ? kWrite : kWrite | kNext),
                             .next = static_cast<uint16_t>(last ? 0 : i + 1)});
    }
    ring.SetAvailableIndex(1);
  }

  const std::unique_ptr<GuestMemory> memory = MakeMemory(68 * 1024);
  testing::RawRing ring;
};

void NextDescriptor(benchmark::State& state, uint16_t count) {
  Rig rig(256);
  rig.MakeChain(count);
  Virtqueue queue = rig.MakeQueue();
  DescriptorChain chain;
  ChainBuffers buffers;
  queue.Take({&chain, 1});
  Measure(state, [&](Calls& calls) {
    while (calls.More()) {
      benchmark::DoNotOptimize(queue.Walk(chain, buffers));
      benchmark::ClobberMemory();
    }
  });
  Require(state, queue.error() == nullptr && buffers.writable().size() == count,
          "the chain was not walked");
}

void QueuePop(benchmark::State& state, uint16_t count) {
  Rig rig(256);
  rig.MakeChains(count);
  const Virtqueue fresh = rig.MakeQueue();
  std::array<DescriptorChain, 256> chains;
  ChainBuffers buffers;
  size_t missed = 0;
  Measure(state, [&](Calls& calls) {
    while (calls.More()) {
      Virtqueue queue = fresh;
      const size_t taken = queue.Take(chains);
      for (size_t i = 0; i < taken; ++i) {
        if (!queue.Walk(chains[i], buffers)) ++missed;
        benchmark::ClobberMemory();
      }
      missed += count - taken;
    }
  });
  Require(state, missed == 0 && buffers.writable().size() == 1, "chains were not popped");
}

void QueueAddUsed(benchmark::State& state, uint16_t count) {
  Rig rig(256);
  rig.MakeChains(count);
  const Virtqueue fresh = rig.MakeQueue();
  std::array<DescriptorChain, 256> chains;
  bool missed = false;
  const Cost take = CostOf([&](Calls& calls) {
    while (calls.More()) {
      Virtqueue queue = fresh;
      missed |= queue.Take(chains) != count;
      benchmark::ClobberMemory();
    }
  });
  const Cost all = Measure(state, [&](Calls& calls) {
    while (calls.More()) {
      Virtqueue queue = fresh;
      missed |= queue.Take(chains) != count;
      uint32_t written = 1;
      for (DescriptorChain& chain : std::span(chains).first(count)) {
        queue.Return(std::move(chain), written++);
      }
      benchmark::DoNotOptimize(queue.Publish());
    }
  });
  Report(state, all - take);
  Require(state, !missed && rig.ring.used_index() == count, "chains were not returned");
}

void RequestParse(benchmark::State& state) {
  constexpr uint64_t kHeader = 0x2000, kData = 0x3000, kStatus = 0x4000;
  constexpr uint32_t kBytes = 0x1000;
  Rig rig(16);
  const testing::BlkHeader header = {.type = testing::kBlkIn, .sector = 99};
  std::memcpy(rig.memory->At(kHeader, sizeof header), &header, sizeof header);
  rig.ring.SetDescriptor(0, {.address = kHeader, .length = 16, .flags = kNext, .next = 1});
  rig.ring.SetDescriptor(1,
                         {.address = kData, .length = kBytes, .flags = kNext | kWrite, .next = 2});
  rig.ring.SetDescriptor(2, {.address = kStatus, .length = 1, .flags = kWrite});
  rig.ring.SetAvailableIndex(1);
  Virtqueue queue = rig.MakeQueue();
  DescriptorChain chain;
  queue.Take({&chain, 1});

  const BlkView disk = {.info = {.size = uint64_t{1024} * kSectorSize}};
  ChainBuffers buffers;
  BlockRequest request = {};
  uint64_t parsed = 0, calls_done = 0;
  Measure(state, [&](Calls& calls) {
    while (calls.More()) {
      ++calls_done;
      if (!queue.Walk(chain, buffers)) continue;
      const BlkParse parse = ParseBlkRequest(buffers, disk, request);
      if (parse.kind == BlkParse::Kind::kSubmit && parse.bytes == kBytes) ++parsed;
      benchmark::ClobberMemory();
    }
  });
  Require(
      state,
      parsed == calls_done && request.op == BlockOp::kRead && request.offset == 99 * kSectorSize,
      "the request was not understood");
}

BENCHMARK_CAPTURE(NextDescriptor, 16, 16)->Name("next_descriptor_16");
BENCHMARK_CAPTURE(QueuePop, 16, 16)->Name("queue_pop_16");
BENCHMARK_CAPTURE(QueueAddUsed, 16, 16)->Name("queue_add_used_16");
BENCHMARK_CAPTURE(QueueAddUsed, 256, 256)->Name("queue_add_used_256");
BENCHMARK(RequestParse)->Name("request_parse");

}  // namespace
}  // namespace ringside::benchmarks
