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

#include "benchmarks/support/batches.h"
#include "file/file_device.h"
#include "tests/support/count_of.h"
#include "tests/support/temp_file.h"

namespace ringside::benchmarks {
namespace {

void InlineRead(benchmark::State& state) {
  const auto batch = static_cast<size_t>(state.range(0));
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  const testing::TempFile file(batch * Batches::kBytes);
  const auto disk = FileDevice::Create({.path = file.path(), .read_only = true}, Logger());
  if (!disk.ok()) return state.SkipWithError(std::string(disk.status().message()).c_str());
  std::unique_ptr<BlockChannel> channel;
  RunOn(*io_thread, [&] {
    if (auto opened = (*disk)->Open(*io_thread); opened.ok()) channel = *std::move(opened);
  });
  if (channel == nullptr) return state.SkipWithError("there is no channel");
  std::vector<std::byte> memory(batch * Batches::kBytes);
  Batches batches(*io_thread, *channel, batch, memory.data());
  Measure(state, [&](Calls& calls) { batches.RunAll(calls); }, state.range(0));
  const std::vector<BlockCounter> counters = (*disk)->Statistics().counters;
  const auto count = [&](const char* name) { return testing::CountOf(counters, name); };
  Require(state, !batches.failed() && count("errors") == 0, "a read failed");
  Require(state, count("served_inline") == count("reads"), "a read went to the engine");
  RunOn(*io_thread, [&] { channel.reset(); });
}

BENCHMARK(InlineRead)->Name("inline_read_tmpfs")->ArgName("batch")->Arg(1)->Arg(32)->UseRealTime();

}  // namespace
}  // namespace ringside::benchmarks
