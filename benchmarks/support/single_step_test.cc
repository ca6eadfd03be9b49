// That instructions are counted one by one.
#include "benchmarks/support/single_step.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

namespace ringside::benchmarks {
namespace {

// Both alike but for the number.
[[gnu::noinline]] uint64_t Count10() {
  StartSingleStep();
  asm volatile(".rept 10\nnop\n.endr");
  return StopSingleStep();
}
[[gnu::noinline]] uint64_t Count110() {
  StartSingleStep();
  asm volatile(".rept 110\nnop\n.endr");
  return StopSingleStep();
}
[[gnu::noinline]] uint64_t CountFill(char* bytes, size_t count) {
  StartSingleStep();
  asm volatile("rep stosb" : "+D"(bytes), "+c"(count) : "a"(0) : "memory");
  return StopSingleStep();
}

TEST(SingleStep, CountsEachInstruction) {
  EXPECT_EQ(Count110(), Count10() + 100);
}

TEST(SingleStep, ARepeatedInstructionIsOne) {
  std::array<char, 1000> bytes;
  EXPECT_EQ(CountFill(bytes.data(), 1000), CountFill(bytes.data(), 1));
}

TEST(SingleStep, TwoThreadsCountApart) {
  std::atomic<bool> go = false, done = false;
  uint64_t of_thread = 0;
  std::thread thread([&] {
    while (!go) continue;
    of_thread = Count110();
    done = true;
  });
  StartSingleStep();
  go = true;
  while (!done) continue;
  const uint64_t of_this_one = StopSingleStep();
  thread.join();
  EXPECT_EQ(of_thread, Count110());
  EXPECT_GT(of_this_one, 0);
}

}  // namespace
}  // namespace ringside::benchmarks
