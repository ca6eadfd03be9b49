// The NVMe driver on a controller in another process, by vfio-user:
//
//   nvme_user_benchmark --socket /run/ctrl/cntrl
//
// Random reads of 4 KiB with so many always in flight, from an I/O thread that looks for as long as
// it takes. The controller's process needs a processor of its own: pin both. To be compared with
// what SPDK's own initiator gets out of the same target, by its program spdk_nvme_perf.
#include <CLI/CLI.hpp>
#include <benchmark/benchmark.h>
#include <vector>

#include "base/status.h"
#include "benchmarks/support/run.h"
#include "nvme/nvme_device.h"
#include "tests/support/nvme/dma_memory.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/silent_ring.h"
#include "vfio/vfio_user_device.h"

namespace ringside::benchmarks {
namespace {

using testing::DmaMemory;
using testing::RunOn;

constexpr uint32_t kBytes = 4096;
constexpr uint64_t kReadsATime = 200'000;

// Whoever is done is submitted again, somewhere else.
class RandomReads {
 public:
  RandomReads(IoThread& io_thread, BlockChannel& channel, const DmaMemory& memory, uint64_t size,
              size_t depth)
      : io_thread_(io_thread), channel_(channel), blocks_(size / kBytes), reads_(depth) {
    for (size_t i = 0; i < depth; ++i) {
      Read& read = reads_[i];
      read.owner = this;
      read.segment = memory.At(i * kBytes, kBytes);
      read.op = BlockOp::kRead;
      read.segments = {&read.segment, 1};
      read.done = [](BlockRequest& request) {
        static_cast<Read&>(request).owner->Done(static_cast<Read&>(request));
      };
    }
  }

  void Run(uint64_t count) {
    Event over;
    over_ = &over;
    RunOn(io_thread_, [&] {
      left_ = count;
      for (Read& read : reads_) Submit(read);
    });
    over.Wait();
  }
  bool failed() const { return failed_; }

 private:
  struct Read : BlockRequest {
    RandomReads* owner = nullptr;
    Segment segment = {};
  };

  void Submit(Read& read) {
    if (left_ == 0) return;
    --left_;
    ++in_flight_;
    // xorshift64: some three instructions, of which none waits for memory.
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    read.offset = random_ % blocks_ * kBytes;
    channel_.Submit(read);
  }
  void Done(Read& read) {
    failed_ |= read.result != 0;
    --in_flight_;
    Submit(read);
    if (in_flight_ == 0) over_->Notify();
  }

  IoThread& io_thread_;
  BlockChannel& channel_;
  const uint64_t blocks_;
  std::vector<Read> reads_;
  Event* over_ = nullptr;
  uint64_t random_ = 88172645463325252;
  uint64_t left_ = 0;
  size_t in_flight_ = 0;
  bool failed_ = false;
};

void RandomRead(benchmark::State& state, NvmeDevice& device, const DmaMemory& memory) {
  const auto io_thread =
      IoThread::Start("benchmark", IoThread::Waiter::kUring, {.poll = {.kind = PollKind::kAlways}});
  if (!io_thread.ok()) return state.SkipWithError(std::string(Message(io_thread.status())).c_str());
  absl::StatusOr<std::unique_ptr<BlockChannel>> channel;
  RunOn(**io_thread, [&] { channel = device.Open(**io_thread); });
  if (!channel.ok()) return state.SkipWithError(std::string(Message(channel.status())).c_str());
  const testing::SilentRing ring(**io_thread);
  RandomReads reads(**io_thread, **channel, memory, device.info().size,
                    static_cast<size_t>(state.range(0)));
  reads.Run(1);  // once its queue is there
  for ([[maybe_unused]] auto _ : state) reads.Run(kReadsATime);
  if (reads.failed()) state.SkipWithError("a read failed");
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kReadsATime));
  RunOn(**io_thread, [&] { channel->reset(); });
}

absl::Status Register(const std::string& socket, std::unique_ptr<NvmeDevice>& device,
                      const DmaMemory& memory) {
  RINGSIDE_ASSIGN_OR_RETURN(auto pci_device, OpenVfioUserDevice(socket));
  RINGSIDE_ASSIGN_OR_RETURN(auto controller,
                            CreateNvmeController(std::move(pci_device), {}, Logger()));
  RINGSIDE_ASSIGN_OR_RETURN(device, NvmeDevice::Create(std::move(controller), {}));
  const MemoryRegion region = memory.region();
  RINGSIDE_RETURN_IF_ERROR(device->MapMemory({&region, 1}));
  benchmark::RegisterBenchmark("nvme_user_randread",
                               [&](benchmark::State& state) { RandomRead(state, *device, memory); })
      ->ArgName("depth")
      ->Arg(1)
      ->Arg(8)
      ->Arg(64)
      ->UseRealTime();
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringside::benchmarks

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  CLI::App app("The NVMe driver on a controller in another process, by vfio-user.");
  std::string socket;
  app.add_option("--socket", socket, "of the controller, such as DIR/cntrl of SPDK's target")
      ->required();
  CLI11_PARSE(app, argc, argv);
  const ringside::testing::DmaMemory memory;
  std::unique_ptr<ringside::NvmeDevice> device;
  if (const absl::Status status = ringside::benchmarks::Register(socket, device, memory);
      !status.ok()) {
    fprintf(stderr, "%s\n", std::string(ringside::Message(status)).c_str());
    return 1;
  }
  benchmark::ConsoleReporter reporter;
  const int code = ringside::benchmarks::RunAll(reporter);
  benchmark::ClearRegisteredBenchmarks();
  return code;
}
