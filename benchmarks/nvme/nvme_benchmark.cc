// A read of 4 KiB through the NVMe driver, from Submit to done, `depth` at a time.
//
//   micro_benchmark --benchmark_filter=nvme
//
// nvme_read: on the I/O thread alone. What the controller would do is done at the end of the turn
// by a few instructions a command. `driver_instructions` are what is left without those, and
// without what a channel costs that does nothing in the same place: the thread's turn. `doorbells`
// are the registers written, an operation. nvme_read_model: with the controller's model on a thread
// of its own, and an I/O thread that looks. So its time is both of theirs, and its instructions
// have the looking in them.
#include <benchmark/benchmark.h>

#include "benchmarks/support/batches.h"
#include "nvme/nvme_channel.h"
#include "nvme/nvme_device.h"
#include "tests/support/nvme/dma_memory.h"
#include "tests/support/nvme/nvme_model.h"
#include "tests/support/poll/silent_ring.h"

namespace ringside::benchmarks {
namespace {

using testing::DmaMemory;
using testing::NvmeModel;

// Answers every command at the end of the turn that sent it.
class Answers final : public Hook {
 public:
  Answers(NvmeQueue& queue, const uint32_t& doorbell) : queue_(queue), doorbell_(doorbell) {}

  void Run() override {
    const auto tail = static_cast<uint16_t>(LoadAcquire(&doorbell_));
    for (; head_ != tail; head_ = static_cast<uint16_t>((head_ + 1) % NvmeQueue::kEntries)) {
      nvme::Completion& completion = queue_.memory().completions[head_];
      completion.id = queue_.memory().submissions[head_].id;
      StoreRelease(&completion.status, phase_);
      if (head_ == NvmeQueue::kEntries - 1) phase_ ^= 1;
    }
  }

 private:
  NvmeQueue& queue_;
  const uint32_t& doorbell_;
  uint16_t head_ = 0;
  uint16_t phase_ = 1;
};

// What is left without a driver: completes in the next turn whatever it was given.
class Echo final : public BlockChannel {
 public:
  Echo(IoThread& io_thread, int interrupt) : io_thread_(io_thread), source_(*this, interrupt) {
    if (!io_thread.Attach(source_, Phase::kComplete).ok()) std::abort();
  }
  ~Echo() override { io_thread_.Detach(source_); }
  void Submit(BlockRequest& request) override { requests_.Push(request); }

 private:
  class Completions final : public Source {
   public:
    Completions(Echo& echo, int interrupt) : Source(interrupt), echo_(echo) {}
    bool HasWork() override { return !echo_.requests_.empty(); }
    void Run() override {
      while (BlockRequest* request = echo_.requests_.Pop()) {
        request->result = 0;
        request->done(*request);
      }
    }
    void EnableNotify() override {}
    void DisableNotify() override {}

   private:
    Echo& echo_;
  };

  IoThread& io_thread_;
  Fifo<BlockRequest> requests_;
  Completions source_;
};

class Nothing final : public Hook {
 public:
  void Run() override {}
};

// Of `depth` commands.
Cost CostOfAnswers(NvmeQueue& queue, size_t depth) {
  uint32_t doorbell = 0;
  Answers answers(queue, doorbell);
  return CostOf([&](Calls& calls) {
    while (calls.More()) {
      doorbell = static_cast<uint32_t>((doorbell + depth) % NvmeQueue::kEntries);
      answers.Run();
    }
  });
}

Cost CostOfEcho(IoThread& io_thread, size_t depth, const EventFd& interrupt, std::byte* memory) {
  std::unique_ptr<Echo> echo;
  RunOn(io_thread, [&] { echo = std::make_unique<Echo>(io_thread, interrupt.fd()); });
  Batches batches(io_thread, *echo, depth, memory);
  Nothing nothing;
  batches.AfterSubmit(nothing);
  const Cost cost = CostOf([&](Calls& calls) { batches.RunAll(calls); });
  RunOn(io_thread, [&] { echo.reset(); });
  return cost / static_cast<double>(depth);
}

void NvmeRead(benchmark::State& state) {
  const auto depth = static_cast<size_t>(state.range(0));
  const auto io_thread = StartIoThread(state, PollKind::kAlways);
  if (io_thread == nullptr) return;
  NvmeModel model;
  const auto device = model.Attach();
  DmaSpace space(*device);
  const DmaMemory memory;
  const MemoryRegion region = memory.region();
  const auto offsets = space.MapMemory({&region, 1});
  auto interrupt = EventFd::Create();
  auto queue_memory = space.Allocate(sizeof(NvmeQueue::Memory));
  if (!offsets.ok() || !interrupt.ok() || !queue_memory.ok()) {
    return state.SkipWithError("no queue");
  }
  alignas(64) uint32_t doorbells[2] = {};
  NvmeWatch watch;
  NvmeQueue queue({.id = 1,
                   .entries = NvmeQueue::kEntries,
                   .submission_doorbell = {&doorbells[0], nullptr, nullptr},
                   .completion_doorbell = {&doorbells[1], nullptr, nullptr},
                   .interrupt = interrupt->fd(),
                   .device = *device,
                   .watch = watch,
                   .control = *interrupt},
                  *std::move(queue_memory), *io_thread);
  const NvmeNamespace ns = {.id = 1, .info = {.size = 1 << 30}};
  NvmeCounters counters;
  const std::atomic<bool> cache_lost = false;
  const std::string name = "model";
  LogLimit log{Logger()};
  std::unique_ptr<NvmeChannel> channel;
  RunOn(*io_thread, [&] {
    auto made = NvmeChannel::Create({.io_thread = *io_thread,
                                     .queue = queue,
                                     .ns = ns,
                                     .counters = counters,
                                     .offsets = *offsets,
                                     .cache_lost = cache_lost,
                                     .name = name,
                                     .log = log});
    if (made.ok()) channel = *std::move(made);
    if (channel != nullptr) channel->Thaw();
  });
  if (channel == nullptr) return state.SkipWithError("no channel");
  Answers answers(queue, doorbells[0]);
  Batches batches(*io_thread, *channel, depth, memory.At(0, 0).host);
  batches.AfterSubmit(answers);
  const Cost cost = Measure(state, [&](Calls& calls) { batches.RunAll(calls); }, state.range(0));
  RunOn(*io_thread, [&] { channel.reset(); });
  const Cost driver = cost - CostOfEcho(*io_thread, depth, *interrupt, memory.At(0, 0).host) -
                      CostOfAnswers(queue, depth) / static_cast<double>(depth);
  if (driver.instructions) state.counters["driver_instructions"] = *driver.instructions;
  Require(state, !batches.failed(), "a read failed");
  const auto commands = static_cast<double>(counters.commands.Get());
  state.counters["doorbells"] = static_cast<double>(counters.doorbells.Get()) / commands;
}

void NvmeReadModel(benchmark::State& state) {
  const auto io_thread = StartIoThread(state, PollKind::kAlways);
  if (io_thread == nullptr) return;
  NvmeModel model({.busy = true, .keep_log = false});
  auto controller = CreateNvmeController(model.Attach(), {}, Logger());
  if (!controller.ok()) return state.SkipWithError("no controller");
  auto device = NvmeDevice::Create(*std::move(controller), {});
  const DmaMemory memory;
  const MemoryRegion region = memory.region();
  if (!device.ok() || !(*device)->MapMemory({&region, 1}).ok()) {
    return state.SkipWithError("no device");
  }
  std::unique_ptr<BlockChannel> channel;
  RunOn(*io_thread, [&] {
    if (auto opened = (*device)->Open(*io_thread); opened.ok()) channel = *std::move(opened);
  });
  if (channel == nullptr) return state.SkipWithError("no channel");
  const testing::SilentRing ring(*io_thread);
  Batches batches(*io_thread, *channel, static_cast<size_t>(state.range(0)), memory.At(0, 0).host);
  const uint64_t enters = io_thread->uring()->enters();
  Measure(state, [&](Calls& calls) { batches.RunAll(calls); }, state.range(0));
  Require(state, io_thread->uring()->enters() - enters < 10, "there are system calls");
  Require(state, !batches.failed() && model.violations().empty(), "a read failed");
  state.counters["sleeps"] = static_cast<double>(io_thread->stats().sleeps.Get());
  RunOn(*io_thread, [&] { channel.reset(); });
}

BENCHMARK(NvmeRead)->Name("nvme_read")->ArgName("depth")->Arg(1)->Arg(32)->UseRealTime();
BENCHMARK(NvmeReadModel)->Name("nvme_read_model")->ArgName("depth")->Arg(1)->Arg(32)->UseRealTime();

}  // namespace
}  // namespace ringside::benchmarks
