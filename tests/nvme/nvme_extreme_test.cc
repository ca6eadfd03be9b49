// The NVMe driver on controllers that are, or say, what none should: refused in one line, or used
// rightly; and none holds anybody for longer than is written, or fills the log.
#include <cerrno>

#include "base/log_limit.h"
#include "base/status.h"
#include "nvme/nvme_controller.h"
#include "tests/support/nvme/nvme_disk.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::NvmeModelConfig;
using testing::NvmeModelFault;
using testing::NvmeModelReady;
using testing::NvmeTest;
using testing::Pattern;
using testing::Pieces;
using testing::TestRequest;
using Kind = NvmeModelFault::Kind;

constexpr uint32_t kAlways = 1'000'000;

class NvmeExtremeTest : public NvmeTest {
 protected:
  explicit NvmeExtremeTest(absl::Duration timeout = absl::Milliseconds(200)) : NvmeTest(timeout) {}
  int Write(uint64_t offset, uint32_t size) {
    TestRequest write(BlockOp::kWrite, offset, Pieces{{memory_.At(0, size)}});
    return disk_->Run(write.Set(Pattern(size, 5)));
  }
  absl::Status Refusal(const NvmeModelConfig& config) {
    MakeModel(config);
    NvmeSettings settings = settings_;
    settings.timeout = timeout_;
    return CreateNvmeController(attachment_->Connect().value(), settings, Logger(&log_)).status();
  }
  size_t AdminCommands(nvme::AdminOp op) const {
    size_t count = 0;
    for (const auto& each : model_->log()) {
      count += each.queue == 0 && each.opcode == static_cast<uint8_t>(op) ? 1 : 0;
    }
    return count;
  }
  void ComeBackAs(const NvmeModelConfig& other) {
    model_->Unplug();
    ASSERT_TRUE(testing::SpinUntil([&] { return Logged("waiting"); }));
    model_->BecomeLike(other);
    model_->PlugIn();
  }
};

// It has room for no command at all.
TEST_F(NvmeExtremeTest, QueuesOfOneEntryAreRefused) {
  const absl::Status status = Refusal({.queue_entries = 1, .takes_any_queue = true});
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("MQES is 0"));
}

// The admin queue, which an event's request is always in, is no smaller for that.
TEST_F(NvmeExtremeTest, QueuesOfTwoEntriesDo) {
  Start({.queue_entries = 2});
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Write(uint64_t{4096} * i, 4096), 0);
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> list;
  for (uint32_t i = 0; i < 20; ++i) {
    list.push_back(requests
                       .emplace_back(std::make_unique<TestRequest>(
                           BlockOp::kWrite, i * 65536, Pieces{{memory_.At(i * 65536, 65536)}}))
                       .get());
  }
  disk_->Run(list);
  for (const auto& request : requests) EXPECT_EQ(request->result, 0);
}

TEST_F(NvmeExtremeTest, WhatWaitsForASlotIsNotForEver) {
  settings_.least_wait = absl::ZeroDuration();  // so it is four time-outs
  Start({.queue_entries = 2});
  model_->Add(
      {.kind = Kind::kDelay, .times = kAlways, .delay_ns = absl::ToInt64Nanoseconds(timeout_) / 2});
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> list;
  for (uint32_t i = 0; i < 40; ++i) {
    list.push_back(requests
                       .emplace_back(std::make_unique<TestRequest>(
                           BlockOp::kWrite, i * 4096, Pieces{{memory_.At(i * 4096, 4096)}}))
                       .get());
  }
  disk_->Run(list);
  const auto failed =
      std::ranges::count_if(requests, [](const auto& request) { return request->result == -EIO; });
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 40);
  EXPECT_EQ(requests.front()->result, 0);
  EXPECT_EQ(requests.back()->result, -EIO);
  EXPECT_TRUE(Logged("have found no room in their queue"));
  model_->ClearFaults();
  EXPECT_EQ(Write(0, 4096), 0);
}

// Ticks are a second at most; so many of them are the time-out.
TEST(NvmePaceTest, ATimeoutIsAsLongAsItSays) {
  for (const absl::Duration timeout : {absl::Milliseconds(10), absl::Milliseconds(200),
                                       absl::Seconds(8), absl::Seconds(30), absl::Hours(1)}) {
    const auto pace = NvmeController::PaceOf({.timeout = timeout});
    const absl::Duration tick = absl::Nanoseconds(pace.tick_ns);
    EXPECT_LE(tick, absl::Seconds(1));
    EXPECT_GE(tick * pace.ticks_a_timeout, timeout) << timeout;
    EXPECT_LT(tick * (pace.ticks_a_timeout - 1), timeout) << timeout;
    EXPECT_GE(tick * pace.ticks_a_wait, std::max(4 * timeout, absl::Minutes(2))) << timeout;
  }
}

// A boundary counts also for requests that go the short way.
TEST_F(NvmeExtremeTest, TheSmallestRequestsAreSplitAtTheBoundary) {
  Start({.namespaces = {{.boundary = 8}}});
  EXPECT_EQ(Write(0, 4096), 0);  // the first has to wait for its queue, which is the long way
  model_->ClearLog();
  EXPECT_EQ(Write(2048, 4096), 0);
  ASSERT_EQ(Executed().size(), 2);
  for (const auto& each : Executed()) EXPECT_LE(each.start % 8 + each.blocks, 8);
  EXPECT_EQ(Write(4096, 4096), 0);
  EXPECT_EQ(Executed().size(), 3);
}

TEST_F(NvmeExtremeTest, FewOfManyNamespacesAreNamed) {
  Start({.namespaces = std::vector<testing::NvmeModelNamespace>(200, {.blocks = 8})});
  const auto disk = Open(1000);
  EXPECT_TRUE(absl::IsNotFound(disk->status()));
  EXPECT_THAT(std::string(Message(disk->status())), HasSubstr("there is: 1, 2, 3"));
  EXPECT_LT(disk->status().message().size(), 200);
}

TEST_F(NvmeExtremeTest, OpeningHasAnEndWhateverCapSays) {
  settings_.open_limit = absl::Milliseconds(300);
  const absl::Time start = absl::Now();
  MakeModel({.timeout = 255});  // two minutes
  model_->SetReady(NvmeModelReady::kNeverSet);
  NvmeSettings settings = settings_;
  const absl::Status status =
      CreateNvmeController(attachment_->Connect().value(), settings, Logger(&log_)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("waited for long enough"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

// No log page is late, however busy the machine is: a reset would take the events back.
class NvmeEventsTest : public NvmeExtremeTest {
 protected:
  NvmeEventsTest() : NvmeExtremeTest(kLong) {}
};

TEST_F(NvmeEventsTest, DoNotFillTheLog) {
  Start();
  constexpr size_t kEvents = 50;
  for (size_t i = 0; i < kEvents; ++i) model_->SendAsyncEvent(0x00020001);
  ASSERT_TRUE(
      testing::SpinUntil([&] { return AdminCommands(nvme::AdminOp::kGetLogPage) == kEvents; }));
  EXPECT_LE(log_.lines().size(), size_t{LogLimit::kLines});
}

// Each would keep its place in the admin queue, until that runs over.
TEST_F(NvmeExtremeTest, AnEventWhoseLogNeverComesEndsInAReset) {
  Start();
  model_->Add({.kind = Kind::kHang,
               .admin = true,
               .opcode = static_cast<uint8_t>(nvme::AdminOp::kGetLogPage)});
  model_->SendAsyncEvent(0x00020001);
  EXPECT_TRUE(testing::SpinUntil([&] { return Count("resets") == 1; }));
  EXPECT_EQ(Write(0, 4096), 0);
}

// Where the model itself can go and come back. It is waited for until a busy test has plugged it
// in.
class NvmeBackTest : public NvmeExtremeTest {
 protected:
  NvmeBackTest() : NvmeExtremeTest(kLong) {}
};

TEST_F(NvmeBackTest, GoingAndComingBackDoesNotFillTheLog) {
  Start({.write_cache = false, .returns = true});
  for (int i = 0; i < 12; ++i) {
    const uint64_t before = model_->counters().resets;
    model_->Unplug();
    // It is looked for.
    ASSERT_TRUE(testing::SpinUntil([&] { return model_->counters().resets > before; }));
    model_->PlugIn();
    ASSERT_EQ(Write(0, 4096), 0);
  }
  EXPECT_LE(log_.lines().size(), size_t{LogLimit::kLines});
}

TEST_F(NvmeBackTest, SmallerTransfersAreAnotherController) {
  Start({.mdts = 5, .write_cache = false, .returns = true});
  ComeBackAs({.mdts = 1, .write_cache = false});
  EXPECT_EQ(Write(0, 128 << 10), -EIO);
  EXPECT_TRUE(Logged("came back as another controller"));
  EXPECT_EQ(Executed().size(), 0);
}

TEST_F(NvmeBackTest, LargerTransfersAreNot) {
  Start({.mdts = 1, .write_cache = false, .returns = true});
  ComeBackAs({.mdts = 5, .write_cache = false});
  EXPECT_EQ(Write(0, 128 << 10), 0);
}

TEST_F(NvmeBackTest, ShorterQueuesAndOtherDoorbellsAreAnotherController) {
  Start({.write_cache = false, .returns = true});
  ComeBackAs({.queue_entries = 4, .write_cache = false});
  EXPECT_EQ(Write(0, 4096), -EIO);
  EXPECT_TRUE(Logged("CAP is"));
  Disconnect();
  model_.reset();
}

TEST_F(NvmeBackTest, AnotherCacheIsAnotherController) {
  Start({.write_cache = false, .returns = true});
  ComeBackAs({.write_cache = true});
  EXPECT_EQ(Write(0, 4096), -EIO);
  EXPECT_TRUE(Logged("came back as another controller"));
}

}  // namespace
}  // namespace ringside
