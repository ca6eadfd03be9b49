#include "benchmarks/support/run.h"

#include <vector>

namespace ringside::benchmarks {
namespace {

// Shows what another reporter shows, and counts errors.
class FailureCounter final : public benchmark::BenchmarkReporter {
 public:
  explicit FailureCounter(BenchmarkReporter& display) : display_(display) {}

  bool ReportContext(const Context& context) override { return display_.ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) failures_ += run.error_occurred ? 1 : 0;
    display_.ReportRuns(runs);
  }
  void Finalize() override { display_.Finalize(); }

  int failures() const { return failures_; }

 private:
  BenchmarkReporter& display_;
  int failures_ = 0;
};

}  // namespace

int RunAll(benchmark::BenchmarkReporter& display) {
  FailureCounter counter(display);
  if (benchmark::RunSpecifiedBenchmarks(&counter) == 0) return 2;
  return counter.failures() == 0 ? 0 : 1;
}

}  // namespace ringside::benchmarks
