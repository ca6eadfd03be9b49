// A request of virtio-blk from the ring and back, over a disk that moves no bytes: what Ringside
// itself costs.
//
//   micro_benchmark --benchmark_filter=blk_queue
//
// An operation is one read of 4 KiB, from taken to published; `batch` of them are made available
// together, and the next ones when all are back, so each turn of the I/O thread publishes one batch
// and takes the next. Driver and device take turns on the I/O thread, which never sleeps or calls
// the kernel. The instructions include the thread's turn, shared by the batch; the driver's own
// part is not in them but measured apart, as `instructions_driver`, and is little, as all it does
// is to store two indices. The driver negotiates EVENT_IDX and polls. `indirect`: the three buffers
// of a request are in an indirect table, as Linux puts them. `idle`: queues beside it that have had
// no work for so long that they are parked. blk_queue_read_limited: the disk has a limit, and is
// far below it.
#include <atomic>
#include <benchmark/benchmark.h>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "base/status.h"
#include "benchmarks/support/turns.h"
#include "block/null_device.h"
#include "devices/blk_queue.h"
#include "tests/support/devices/blk_format.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/raw_ring.h"

namespace ringside::benchmarks {
namespace {

using testing::kIndirect;
using testing::kNext;
using testing::kWrite;
using testing::RawDescriptor;

struct Shape {
  uint16_t batch;
  bool indirect;
  size_t idle_queues;
  bool limited;
};

constexpr uint16_t kQueueSize = 256;
constexpr uint32_t kBytes = 4096;
constexpr uint64_t kDiskSize = 64 * kMiB;
constexpr uint64_t kMemorySize = 8 * kMiB;
// Guest memory: rings, then what the requests need.
constexpr uint64_t RingAddress(size_t queue) {
  return 0x4000 * queue;
}
constexpr uint64_t RequestAddress(uint16_t request) {
  return 4 * kMiB + uint64_t{0x2000} * request;
}
constexpr uint64_t kStatus = 16, kTable = 64, kData = 4096;  // behind the header

// The guest's side: the same requests again and again.
class Driver {
 public:
  Driver(const GuestMemory& memory, const Shape& shape)
      : memory_(memory), shape_(shape), ring_(memory, {RingAddress(0), kQueueSize}) {
    for (uint16_t i = 0; i < shape.batch; ++i) MakeRequest(i);
    // A batch always starts at a multiple of its size, so the entries stay for good.
    for (uint16_t i = 0; i < kQueueSize; ++i) ring_.SetAvailableEntry(i, Head(i % shape.batch));
  }

  const testing::RawRing& ring() const { return ring_; }

  bool AllBack() const { return ring_.used_index() == next_; }
  void AddBatch() {
    ring_.SetUsedEvent(static_cast<uint16_t>(next_ + 0x8000));  // no interrupts
    next_ = static_cast<uint16_t>(next_ + shape_.batch);
    ring_.SetAvailableIndex(next_);
  }

  bool AllSucceeded() const {
    for (uint16_t i = 0; i < shape_.batch; ++i) {
      if (*Host(RequestAddress(i) + kStatus) != std::byte{testing::kBlkOk}) return false;
    }
    return true;
  }

 private:
  uint16_t Head(uint16_t request) const {
    return static_cast<uint16_t>(shape_.indirect ? request : 3 * request);
  }
  std::byte* Host(uint64_t address) const { return memory_.At(address, 1); }

  void MakeRequest(uint16_t request) {
    const uint64_t address = RequestAddress(request);
    const testing::BlkHeader header = {.type = testing::kBlkIn, .sector = uint64_t{8} * request};
    std::memcpy(Host(address), &header, sizeof header);
    *Host(address + kStatus) = std::byte{0xee};
    const uint16_t first = shape_.indirect ? uint16_t{0} : Head(request);
    const auto second = static_cast<uint16_t>(first + 1), third = static_cast<uint16_t>(first + 2);
    const RawDescriptor buffers[] = {
        {.address = address, .length = sizeof header, .flags = kNext, .next = second},
        {.address = address + kData, .length = kBytes, .flags = kNext | kWrite, .next = third},
        {.address = address + kStatus, .length = 1, .flags = kWrite}};
    if (shape_.indirect) {
      std::memcpy(Host(address + kTable), buffers, sizeof buffers);
      ring_.SetDescriptor(
          Head(request),
          {.address = address + kTable, .length = sizeof buffers, .flags = kIndirect});
    } else {
      for (uint16_t i = 0; i < 3; ++i) {
        ring_.SetDescriptor(static_cast<uint16_t>(first + i), buffers[i]);
      }
    }
  }

  const GuestMemory& memory_;
  const Shape shape_;
  testing::RawRing ring_;
  uint16_t next_ = 0;
};

// Plays the driver on the I/O thread.
class DriverSource final : public Source {
 public:
  DriverSource(Driver& driver, const EventFd& wake, IoThread& io_thread)
      : Source(wake.fd()), driver_(driver), io_thread_(io_thread) {}

  void RunAll(Calls& calls) {
    Event done;
    done_ = &done;
    RunOn(io_thread_, [&] {
      enters_ = io_thread_.uring()->enters();
      calls_ = &calls;
    });
    done.Wait();
  }
  uint64_t batches() const { return batches_; }
  // Of the thread while it ran.
  uint64_t enters() const { return total_enters_; }

  bool HasWork() override { return calls_ != nullptr && driver_.AllBack(); }
  void Run() override {
    if (calls_->More()) {
      ++batches_;
      driver_.AddBatch();
    } else {
      calls_ = nullptr;
      total_enters_ += io_thread_.uring()->enters() - enters_;
      done_->Notify();
    }
  }
  void EnableNotify() override {}
  void DisableNotify() override {}

 private:
  Driver& driver_;
  IoThread& io_thread_;
  Event* done_ = nullptr;
  Calls* calls_ = nullptr;
  uint64_t batches_ = 0;
  uint64_t enters_ = 0;
  uint64_t total_enters_ = 0;
};

class NoEvents final : public VirtioEvents {
 public:
  void ConfigChanged() override {}
  void NeedsReset(std::string_view) override { needed = true; }
  std::atomic<bool> needed{false};
};

// The device's side: a busy queue and idle ones, on an I/O thread after the driver.
class Rig {
 public:
  Rig(IoThread& io_thread, const Shape& shape) : io_thread_(io_thread), driver_(*memory_, shape) {
    RunOn(io_thread_, [&] { ok_ = SetUp(shape).ok(); });
  }
  ~Rig() {
    RunOn(io_thread_, [this] {
      for (Source* source : attached_) io_thread_.Detach(*source);
      queues_.clear();
      channel_.reset();
    });
  }

  bool ok() const { return ok_ && !events_.needed; }
  const Driver& driver() const { return driver_; }
  DriverSource& source() { return source_; }
  const QueueStats& stats() const { return stats_; }

 private:
  absl::Status SetUp(const Shape& shape) {
    RINGSIDE_ASSIGN_OR_RETURN(disk_, NullDevice::Create({.size = kDiskSize}));
    RINGSIDE_ASSIGN_OR_RETURN(channel_, disk_->Open(io_thread_));
    view_.info = disk_->info();
    if (shape.limited) throttle_.Set({.iops_total = {.average = 1'000'000'000}});
    RINGSIDE_RETURN_IF_ERROR(Attach(source_));
    RINGSIDE_RETURN_IF_ERROR(AddQueue(driver_.ring(), stats_));
    for (size_t i = 1; i <= shape.idle_queues; ++i) {
      const testing::RawRing ring(*memory_, {RingAddress(i), kQueueSize});
      RINGSIDE_RETURN_IF_ERROR(AddQueue(ring, idle_stats_));
    }
    return absl::OkStatus();
  }
  absl::Status AddQueue(const testing::RawRing& ring, QueueStats& stats) {
    RINGSIDE_ASSIGN_OR_RETURN(EventFd kick, EventFd::Create());
    kicks_.push_back(std::make_unique<EventFd>(std::move(kick)));
    const QueueSetup setup = {.size = kQueueSize,
                              .descriptor_area = ring.place().descriptors,
                              .driver_area = ring.place().available,
                              .device_area = ring.place().used,
                              .kick = kicks_.back().get(),
                              .call = &call_};
    queues_.push_back(std::make_unique<BlkQueue>(
        BlkQueue::Parts{.memory = *memory_,
                        .io_thread = io_thread_,
                        .stats = stats,
                        .events = events_,
                        .idle_hook = idle_hook_},
        BlkQueue::Disk{
            .channel = *channel_, .view = view_, .write_back = write_back_, .throttle = throttle_},
        setup, kVirtioVersion1 | kVirtioRingIndirectDesc | kVirtioRingEventIdx));
    return Attach(*queues_.back());
  }
  absl::Status Attach(Source& source) {
    RINGSIDE_RETURN_IF_ERROR(io_thread_.Attach(source, Phase::kTake));
    attached_.push_back(&source);
    return absl::OkStatus();
  }
  void Nothing() {}

  IoThread& io_thread_;
  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(kMemorySize);
  Driver driver_;
  const EventFd driver_wake_ = *EventFd::Create();
  DriverSource source_{driver_, driver_wake_, io_thread_};
  std::unique_ptr<NullDevice> disk_;
  std::unique_ptr<BlockChannel> channel_;
  BlkView view_;
  const std::atomic<bool> write_back_{true};
  DiskThrottle throttle_;
  QueueStats stats_, idle_stats_;
  NoEvents events_;
  std::atomic<uint8_t> isr_{0};
  InterruptLine call_{isr_, 1};
  HookTo<Rig, &Rig::Nothing> idle_hook_{*this};
  std::vector<std::unique_ptr<EventFd>> kicks_;
  std::vector<std::unique_ptr<BlkQueue>> queues_;
  std::vector<Source*> attached_;
  bool ok_ = false;
};

// What the driver does for a batch, on a ring where all is back at once.
Cost CostOfDriver(const Shape& shape) {
  const auto memory = MakeMemory(kMemorySize);
  Driver driver(*memory, shape);
  uint64_t waits = 0;
  return CostOf([&](Calls& calls) {
    while (calls.More()) {
      if (!driver.AllBack()) ++waits;
      driver.AddBatch();
      benchmark::ClobberMemory();
    }
  });
}

void BlkQueueRead(benchmark::State& state, bool limited) {
  const Shape shape = {.batch = static_cast<uint16_t>(state.range(0)),
                       .indirect = state.range(1) != 0,
                       .idle_queues = static_cast<size_t>(state.range(2)),
                       .limited = limited};
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  Rig rig(*io_thread, shape);
  if (!rig.ok()) return state.SkipWithError("the queues cannot be made");

  // Until the idle queues are parked.
  Calls settling(2000);
  rig.source().RunAll(settling);
  Require(state, io_thread->stats().parked.Get() == shape.idle_queues, "a queue was not parked");

  if (limited) {
    // Until the clock of the limits has measured its rate: while instructions are counted one by
    // one, it would do so again and again.
    absl::SleepFor(absl::Milliseconds(200));
    Calls measuring(10);
    rig.source().RunAll(measuring);
  }

  const Cost driver = CostOfDriver(shape) / shape.batch;
  const Cost all = Measure(state, [&](Calls& calls) { rig.source().RunAll(calls); }, shape.batch);
  Report(state, all - driver);
  if (driver.instructions) state.counters["instructions_driver"] = *driver.instructions;

  const uint64_t requests = rig.source().batches() * shape.batch;
  Require(state, rig.ok() && rig.driver().AllSucceeded() && rig.stats().errors.Get() == 0,
          "a request failed");
  Require(state,
          requests > 0 && rig.stats().reads.Get() == requests &&
              rig.stats().bytes_read.Get() == requests * kBytes,
          "not every request was done");
  Require(state, rig.stats().batches.Get() == rig.source().batches(), "a batch was split");
  Require(state, rig.stats().signals.total() == 0 && rig.source().enters() == 0,
          "the thread called the kernel");
}

BENCHMARK_CAPTURE(BlkQueueRead, limited, true)
    ->Name("blk_queue_read_limited")
    ->ArgNames({"batch", "indirect", "idle"})
    ->ArgsProduct({{1}, {1}, {0}});
BENCHMARK_CAPTURE(BlkQueueRead, plain, false)
    ->Name("blk_queue_read")
    ->ArgNames({"batch", "indirect", "idle"})
    ->ArgsProduct({{1, 32}, {0, 1}, {0}})
    ->ArgsProduct({{1, 32}, {1}, {100}});

}  // namespace
}  // namespace ringside::benchmarks
