// That a benchmark program does not end with 0 when something was not measured.
#include "benchmarks/support/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "benchmarks/support/measure.h"

namespace ringside::benchmarks {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

void Works(benchmark::State& state) {
  Measure(state, [](Calls& calls) {
    while (calls.More()) asm volatile(".rept 20\nnop\n.endr" ::: "memory");
  });
}
void MeasuresNothing(benchmark::State& state) {
  Works(state);
  Require(state, state.iterations() == 0, "no request was done");
}
void CannotStart(benchmark::State& state) {
  state.SkipWithError("no disk");
}
void Allocates(benchmark::State& state) {
  Measure(state, [](Calls& calls) {
    while (calls.More()) operator delete(operator new(1));
  });
}

BENCHMARK(Works)->Iterations(1);
BENCHMARK(MeasuresNothing)->Iterations(1);
BENCHMARK(CannotStart)->Iterations(1);
BENCHMARK(Allocates)->Iterations(1);

class Recorder final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      names.push_back(run.benchmark_name());
      errors.push_back(run.error_message);
    }
  }
  std::vector<std::string> names, errors;
};

class RunTest : public ::testing::Test {
 protected:
  int Run(const std::string& filter) {
    benchmark::SetBenchmarkFilter(filter);
    return RunAll(recorder_);
  }
  Recorder recorder_;
};

TEST_F(RunTest, WhatMeasuresEndsWithZero) {
  EXPECT_EQ(Run("Works"), 0);
  EXPECT_THAT(recorder_.errors, ElementsAre(""));
}

TEST_F(RunTest, AMissedRequirementEndsWithOne) {
  EXPECT_EQ(Run("MeasuresNothing"), 1);
  EXPECT_THAT(recorder_.errors, Contains("no request was done"));
}

TEST_F(RunTest, OneThatCannotStartEndsWithOne) {
  EXPECT_EQ(Run("CannotStart"), 1);
}

TEST_F(RunTest, OneFailureOfManyEndsWithOne) {
  EXPECT_EQ(Run("Works|CannotStart"), 1);
  EXPECT_THAT(recorder_.names, ElementsAre("Works/iterations:1", "CannotStart/iterations:1"));
}

TEST_F(RunTest, AnAllocationIsAFailure) {
  EXPECT_EQ(Run("Allocates"), 1);
  EXPECT_THAT(recorder_.errors, Contains("the hot path allocates"));
}

TEST_F(RunTest, NothingToRunEndsWithTwo) {
  EXPECT_EQ(Run("NoSuchName"), 2);
}

}  // namespace
}  // namespace ringside::benchmarks
