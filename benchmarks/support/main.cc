// The main of every benchmark here. Exit code: 0 if everything was measured, 1 if something was
// not, 2 for bad options.
#include <benchmark/benchmark.h>
#include <cstdio>
#include <string_view>

#include "benchmarks/support/run.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    // The reporter would see the means of the repetitions that worked, and nothing of the others.
    if (option.starts_with("--benchmark_report_aggregates_only") ||
        option.starts_with("--benchmark_display_aggregates_only")) {
      std::fprintf(stderr, "%s would hide failures; leave it out\n", argv[i]);
      return 2;
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const int exit_code = ringside::benchmarks::RunAll(*benchmark::CreateDefaultDisplayReporter());
  benchmark::Shutdown();
  return exit_code;
}
