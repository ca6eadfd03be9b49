// A read of 4 KiB from a file on tmpfs that the I/O thread does itself, from Submit to done.
//
//   micro_benchmark --benchmark_filter=inline
//
// `batch` of them are submitted in a turn, and the next ones in the turn after. The instructions
// include the thread's turn, shared by the batch, and the filling in of the requests; the system
// call's own are the kernel's.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <memory>
#include <unistd.h>
#include <vector>

#include "benchmarks/support/turns.h"
#include "block/file_device.h"
#include "tests/support/test_disk.h"

namespace ringside::benchmarks {
namespace {

constexpr uint32_t kBytes = 4096;

// Submits a batch, and the next when all are done.
class Batches final : public Hook {
 public:
  Batches(IoThread& io_thread, BlockChannel& channel, size_t batch)
      : io_thread_(io_thread), channel_(channel), reads_(batch) {
    for (size_t i = 0; i < batch; ++i) {
      Read& read = reads_[i];
      read.batches = this;
      read.segment = {.host = memory_.data() + i * kBytes, .length = kBytes, .region = 0};
      read.op = BlockOp::kRead;
      read.offset = i * kBytes;
      read.segments = {&read.segment, 1};
      read.done = [](BlockRequest& request) { static_cast<Read&>(request).Done(); };
    }
  }

  void RunAll(Calls& calls) {
    Event all_done;
    calls_ = &calls;
    all_done_ = &all_done;
    RunOn(io_thread_, [this] { io_thread_.AtPublish(*this); });
    all_done.Wait();
  }
  bool failed() const { return failed_; }

 private:
  struct Read : BlockRequest {
    void Done() {
      batches->failed_ |= result != 0;
      if (--batches->left_ == 0) batches->io_thread_.AtPublish(*batches);
    }
    Batches* batches = nullptr;
    Segment segment = {};
  };

  void Run() override {
    if (!calls_->More()) return all_done_->Notify();
    left_ = reads_.size();
    for (Read& read : reads_) channel_.Submit(read);
  }

  IoThread& io_thread_;
  BlockChannel& channel_;
  std::vector<Read> reads_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(reads_.size() * kBytes);
  Calls* calls_ = nullptr;
  size_t left_ = 0;
  bool failed_ = false;
  Event* all_done_ = nullptr;
};

void InlineRead(benchmark::State& state) {
  const auto batch = static_cast<size_t>(state.range(0));
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  const testing::TempFile file(batch * kBytes);
  const auto disk = FileDevice::Create({.path = file.path(), .read_only = true}, Logger());
  if (!disk.ok()) return state.SkipWithError(std::string(disk.status().message()).c_str());
  std::unique_ptr<BlockChannel> channel;
  RunOn(*io_thread, [&] {
    if (auto opened = (*disk)->Open(*io_thread); opened.ok()) channel = *std::move(opened);
  });
  if (channel == nullptr) return state.SkipWithError("there is no channel");
  Batches batches(*io_thread, *channel, batch);
  Measure(state, [&](Calls& calls) { batches.RunAll(calls); }, state.range(0));
  const FileStatistics statistics = (*disk)->statistics().back();
  Require(state, !batches.failed() && statistics.errors == 0, "a read failed");
  Require(state, statistics.served_inline == statistics.requests[0], "a read went to the engine");
  RunOn(*io_thread, [&] { channel.reset(); });
}

BENCHMARK(InlineRead)->Name("inline_read_tmpfs")->ArgName("batch")->Arg(1)->Arg(32)->UseRealTime();

}  // namespace
}  // namespace ringside::benchmarks
