// The ceiling: its ring against a driver's view of the same memory, its loop against the measuring
// guest, which checks what it reads.
#include <array>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "benchmarks/ceiling_ring.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// ---- The ring ----

class CeilingRingTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kDescriptors = 0x1000, kAvailable = 0x2000, kUsed = 0x3000;
  static constexpr uint64_t kTable = 0x4000, kHeader = 0x5000, kData = 0x6000, kStatus = 0x7000;

  struct Descriptor {
    uint64_t address;
    uint32_t length;
    uint16_t flags, next;
  };

  template <typename T>
  T& At(uint64_t address) {
    return *reinterpret_cast<T*>(&memory_[address]);
  }

  BareRing Ring() {
    return {memory_.data(),
            {.size = 4,
             .descriptor_area = kDescriptors,
             .driver_area = kAvailable,
             .device_area = kUsed,
             .call = &call_}};
  }
  // A chain of three from `table` on, and the head that leads to it.
  void Offer(uint64_t table, uint16_t head, uint32_t type) {
    At<std::array<uint64_t, 2>>(kHeader) = {type, 3};
    At<std::array<Descriptor, 3>>(table) = {
        Descriptor{kHeader, 16, 1, 0}, {kData, 4096, 1, 0}, {kStatus, 1, 2, 0}};
    auto& index = At<uint16_t>(kAvailable + 2);
    At<uint16_t>(kAvailable + 4 + 2 * (index & 3)) = head;
    ++index;
  }
  bool interrupted() { return interrupts_.exchange(0) != 0; }

  alignas(4096) std::array<std::byte, 0x8000> memory_{};
  std::atomic<uint8_t> interrupts_{0};
  InterruptLine call_{interrupts_, 1};
};

TEST_F(CeilingRingTest, TakesChainsOfTheRingAndOfATable) {
  BareRing ring = Ring();
  BareRequest request;
  EXPECT_FALSE(ring.Take(request));
  Offer(kDescriptors + 16, 1, /*type=*/0);
  ASSERT_TRUE(ring.Take(request));
  EXPECT_EQ(request.head, 1);
  EXPECT_FALSE(request.is_write);
  EXPECT_EQ(request.data, &memory_[kData]);
  EXPECT_EQ(request.length, 4096u);
  EXPECT_EQ(request.offset, 3 * 512u);
  At<Descriptor>(kDescriptors) = {kTable, 48, 4, 0};
  Offer(kTable, 0, /*type=*/1);
  ASSERT_TRUE(ring.Take(request));
  EXPECT_EQ(request.head, 0);
  EXPECT_TRUE(request.is_write);
  EXPECT_EQ(request.status, &memory_[kStatus]);
  EXPECT_FALSE(ring.Take(request));
}

TEST_F(CeilingRingTest, PublishesAndInterruptsWhereTheDriverAsks) {
  BareRing ring = Ring();
  auto& used_event = At<uint16_t>(kAvailable + 4 + 2 * 4);
  EXPECT_FALSE(ring.Publish());
  for (uint16_t i = 0; i < 10; ++i) {
    const bool asks = i % 3 == 0;
    used_event = static_cast<uint16_t>(asks ? i : i + 0x8000);
    ring.Return({.status = &memory_[kStatus], .length = 512, .head = i, .is_write = false}, i != 5);
    EXPECT_EQ(At<uint16_t>(kUsed + 2), i) << "not before Publish";
    EXPECT_EQ(ring.Publish(), asks);
    EXPECT_EQ(interrupted(), asks);
    EXPECT_EQ(At<uint16_t>(kUsed + 2), i + 1);
    using Element = std::array<uint32_t, 2>;
    EXPECT_EQ(At<Element>(kUsed + 4 + 8 * (i & 3)), (Element{i, 513}));
    EXPECT_EQ(memory_[kStatus], std::byte{i == 5});
  }
}

// avail_event is never where the driver's index will be before it is moved again.
TEST_F(CeilingRingTest, NeverAsksForAKick) {
  BareRing ring = Ring();
  for (uint32_t i = 0; i < 200'000; ++i) {
    const auto event = At<uint16_t>(kUsed + 4 + 8 * 4);
    const auto index = static_cast<uint16_t>(i);
    // The driver moves its index by up to a ring's worth.
    EXPECT_GE(static_cast<uint16_t>(event - index), 4) << i;
    ring.Return({.status = &memory_[kStatus], .length = 0, .head = 0, .is_write = true}, true);
    ring.Publish();
  }
}

// ---- The program ----

class CeilingTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  static ProcessResult Run(std::vector<std::string> options) {
    options.insert(options.begin(), {RINGSIDE_CEILING, "--kernel", RINGSIDE_GUEST_ELF});
    return RunProcess(options);
  }
  // `least` requests or more. How many within the time that is measured is another matter: the
  // guest and the spinning loop may have to share a processor with others.
  static void ExpectServes(const std::vector<std::string>& disk, const std::string& jobs,
                           int least) {
    for (const std::string wait : {" wait=poll", " wait=irq"}) {
      std::vector<std::string> options = disk;
      options.insert(options.end(),
                     {"--cmdline", jobs + wait + " qd=1,32 runtime=200ms warmup=1ms"});
      const ProcessResult result = Run(options);
      ASSERT_EQ(result.status, 0) << result.errors;
      EXPECT_THAT(result.output, Not(HasSubstr("FAIL")));
      int found = 0;
      std::istringstream lines(result.output);
      for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("{")) continue;
        const Json job = Json::parse(line);
        ++found;
        EXPECT_FALSE(job.contains("error")) << line;
        EXPECT_EQ(job["errors"], 0);
        EXPECT_EQ(job["mismatches"], 0);
      }
      EXPECT_EQ(found, 2) << result.output;
      const Json report = Json::parse(result.errors);
      EXPECT_GE(report["requests"], least);
      EXPECT_EQ(report["errors"], 0);
      EXPECT_GT(report["serving_cpu_ns"], 0);
      EXPECT_GT(report["cpu_ns"], report["serving_cpu_ns"]);
    }
  }
};

TEST_F(CeilingTest, ServesWithoutAStorage) {
  ExpectServes({"--null", "1G"}, "rw=randrw", 1 + 32);
}

TEST_F(CeilingTest, WhatTheGuestWroteItReadsByPread) {
  const testing::TempFile file(1 << 20, ".");
  ExpectServes({"--file", file.path(), "--engine", "pread"}, "rw=randrw verify=1 size=256k",
               2 * 2 * 64);
}

TEST_F(CeilingTest, WhatTheGuestWroteItReadsByIoUring) {
  if (const auto status = testing::UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  const testing::TempFile file(1 << 20, ".");
  ExpectServes({"--file", file.path(), "--engine", "io_uring"}, "rw=randrw verify=1 size=256k",
               2 * 2 * 64);
}

TEST_F(CeilingTest, RefusesWhatCannotBe) {
  struct Case {
    std::vector<std::string> options;
    std::string says;
  };
  for (const auto& [options, says] :
       {Case{{}, "give --file PATH or --null SIZE"},
        Case{{"--null", "1G", "--file", "x"}, "give --file PATH or --null SIZE"},
        Case{{"--null", "1G", "--engine", "pread"}, "--engine pread moves data"},
        Case{{"--file", "x"}, "give pread or io_uring"},
        Case{{"--file", "/nonexistent", "--engine", "pread"}, "cannot open '/nonexistent'"},
        Case{{"--null", "1G", "--memory", "2G"}, "give --memory 1G or less"},
        Case{{"--null", "big"}, "'big' is not a size"}}) {
    const ProcessResult result = Run(options);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr(says));
  }
}

}  // namespace
}  // namespace ringside
