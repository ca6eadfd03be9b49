// Running benchmarks so that one that did not measure is noticed: Google Benchmark 1.7 reports an
// error and still ends its program with 0.
#pragma once

#include <benchmark/benchmark.h>

namespace ringside::benchmarks {

// Runs what --benchmark_filter selects. The program's exit code: 0 if all ran without an error, 1
// if one failed, 2 if there was none to run.
int RunAll(benchmark::BenchmarkReporter& display);

}  // namespace ringside::benchmarks
