// The NVMe driver on a controller that fails: each fault ends as docs/nvme.md says, every request
// is answered once, and none while the controller could still reach its memory.
#include <cerrno>
#include <thread>

#include "tests/support/nvme/nvme_disk.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::NvmeModelAbort;
using testing::NvmeModelExecuted;
using testing::NvmeModelFault;
using testing::NvmeModelReady;
using testing::NvmeTest;
using testing::Pattern;
using testing::Pieces;
using testing::TestRequest;
using Kind = NvmeModelFault::Kind;

constexpr auto kWriteOp = static_cast<uint8_t>(nvme::IoOp::kWrite);
constexpr auto kFlushOp = static_cast<uint8_t>(nvme::IoOp::kFlush);
constexpr uint32_t kAlways = 1'000'000;

class NvmeFaultTest : public NvmeTest {
 protected:
  // Short, yet no answer takes so long on a machine that has other things to do.
  NvmeFaultTest() : NvmeTest(absl::Milliseconds(400)) {
    for (uint32_t i = 0; i < kWrites; ++i) {
      auto& request = writes_.emplace_back(std::make_unique<TestRequest>(
          BlockOp::kWrite, i * 4096, Pieces{{memory_.At(i * 4096, 4096)}}));
      request->Set(Pattern(4096, static_cast<char>(i)));
    }
  }
  int Write() { return disk_->Run(*writes_[0]); }
  int Flush() {
    TestRequest flush(BlockOp::kFlush, 0);
    return disk_->Run(flush);
  }
  // All at once; how many failed.
  int WriteAll() {
    std::vector<TestRequest*> list;
    for (const auto& write : writes_) list.push_back(write.get());
    disk_->Run(list);
    int failed = 0;
    for (const auto& write : writes_) failed += write->result == 0 ? 0 : 1;
    return failed;
  }
  bool AllStored(bool durable = false) const {
    const auto bytes = durable ? model_->Durable(1) : model_->Contents(1);
    for (uint32_t i = 0; i < kWrites; ++i) {
      const std::string stored(reinterpret_cast<const char*>(bytes.data()) + i * 4096, 4096);
      if (stored != Pattern(4096, static_cast<char>(i))) return false;
    }
    return true;
  }
  size_t Sent(uint8_t opcode) const {
    size_t count = 0;
    for (const NvmeModelExecuted& each : Executed()) count += each.opcode == opcode ? 1 : 0;
    return count;
  }

  static constexpr uint32_t kWrites = 40;
  std::vector<std::unique_ptr<TestRequest>> writes_;
};

TEST_F(NvmeFaultTest, AnErrorThatMayPassIsTriedThreeTimes) {
  Start();
  model_->Add({.kind = Kind::kStatus, .times = 2, .status = nvme::kInternalError});
  EXPECT_EQ(Write(), 0);
  EXPECT_EQ(Count("resent"), 2);
  model_->Add({.kind = Kind::kStatus, .times = 3, .status = nvme::kInternalError});
  EXPECT_EQ(Write(), -EIO);
  EXPECT_EQ(Count("resent"), 4);
  EXPECT_EQ(Write(), 0);
}

TEST_F(NvmeFaultTest, AnErrorForGoodIsNotTriedAgain) {
  Start();
  model_->Add({.kind = Kind::kStatus, .status = nvme::kUnrecoveredRead | nvme::kDoNotRetry});
  EXPECT_EQ(Write(), -EIO);
  EXPECT_EQ(Count("resent"), 0);
  EXPECT_EQ(Count("errors"), 1);
  EXPECT_THAT(log_.lines().back(),
              AllOf(HasSubstr("Write of blocks "), HasSubstr(" of namespace 1: Unrecovered Read "
                                                             "Error (SCT 2h, SC 81h, DNR)")));
}

// QEMU's driver looks at eight bits: a code 0 of another type than the generic one is no success.
TEST_F(NvmeFaultTest, TheTypeOfAStatusCounts) {
  Start();
  for (const nvme::Status status : {0x100, 0x200, 0x300, 0x700}) {
    model_->Add(
        {.kind = Kind::kStatus, .status = static_cast<nvme::Status>(status | nvme::kDoNotRetry)});
    EXPECT_EQ(Write(), -EIO) << status;
  }
}

TEST_F(NvmeFaultTest, OnePieceThatFailsFailsTheRequest) {
  Start({.mdts = 1});
  model_->Add({.kind = Kind::kStatus, .skip = 2, .status = nvme::kWriteFault | nvme::kDoNotRetry});
  TestRequest write(BlockOp::kWrite, 0, Pieces{{memory_.At(0, 512 << 10)}});
  EXPECT_EQ(disk_->Run(write), -EIO);
  EXPECT_EQ(disk_->Run(write), 0);
}

TEST_F(NvmeFaultTest, ALostCompletionEndsInAReset) {
  Start();
  model_->Add({.kind = Kind::kLoseCompletion, .skip = 3});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(Count("resets"), 1);
  EXPECT_EQ(Flush(), 0);
  EXPECT_TRUE(AllStored(true));
}

TEST_F(NvmeFaultTest, ACommandThatHangsIsAbortedAndSentAgain) {
  Start();
  model_->Add({.kind = Kind::kHang, .skip = 3});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(Count("timeouts"), 1);
  EXPECT_EQ(Count("resent"), 1);
  EXPECT_EQ(Count("resets"), 0);
}

TEST_F(NvmeFaultTest, WhereAbortDoesNotHelpAResetDoes) {
  Start();
  model_->SetAbort(NvmeModelAbort::kRefuses);
  model_->Add({.kind = Kind::kHang, .skip = 3, .times = 2});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(Count("resets"), 1);
}

TEST_F(NvmeFaultTest, AnAbortWithoutAnswerEndsInAReset) {
  Start();
  model_->Add({.kind = Kind::kHang});
  model_->Add(
      {.kind = Kind::kHang, .admin = true, .opcode = static_cast<uint8_t>(nvme::AdminOp::kAbort)});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(Count("resets"), 1);
}

TEST_F(NvmeFaultTest, WhatAlwaysHangsFailsInTheEnd) {
  Start();
  model_->Add({.kind = Kind::kHang, .opcode = kWriteOp, .times = kAlways});
  const absl::Time start = absl::Now();
  EXPECT_EQ(Write(), -EIO);
  // An abort and a time-out for each of three sends.
  EXPECT_LT(absl::Now() - start, 30 * timeout_);
  EXPECT_EQ(Count("resets"), 2);
  model_->ClearFaults();
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
}

// What comes after a reset of what was sent before it would be found by the model.
TEST_F(NvmeFaultTest, WhatIsLateNeverComesAfterItsAnswer) {
  Start();
  model_->SetAbort(NvmeModelAbort::kRefuses);
  model_->Add({.kind = Kind::kHold, .skip = 2, .times = 3});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(model_->held(), 0);
}

TEST_F(NvmeFaultTest, WhatIsSlowIsNotDoneTwice) {
  Start();
  model_->Add({.kind = Kind::kDelay, .delay_ns = absl::ToInt64Nanoseconds(timeout_) / 3});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_EQ(Sent(kWriteOp), kWrites);
  EXPECT_EQ(Count("timeouts"), 0);
}

// What waited for its queue, when the machine begins and after a reset, has all its time from when
// it is sent.
TEST_F(NvmeFaultTest, TheTimeThatAQueueTakesIsNotItsCommands) {
  timeout_ *= 3;  // a busy machine adds to the time of the write
  const int64_t timeout_ns = absl::ToInt64Nanoseconds(timeout_);
  const NvmeModelFault slow_queue = {.kind = Kind::kDelay,
                                     .admin = true,
                                     .opcode = static_cast<uint8_t>(nvme::AdminOp::kCreateSq),
                                     .delay_ns = timeout_ns * 3 / 4};
  const NvmeModelFault slow_write = {.kind = Kind::kDelay, .delay_ns = timeout_ns / 2};
  MakeModel({});
  model_->Add(slow_queue);
  model_->Add(slow_write);
  Connect();
  EXPECT_EQ(Write(), 0);
  EXPECT_EQ(Count("timeouts"), 0);
  model_->Add({.kind = Kind::kLoseCompletion});
  model_->Add(slow_queue);
  model_->Add(slow_write);  // when it is sent again
  EXPECT_EQ(Write(), 0);
  EXPECT_EQ(Count("resets"), 1);
}

TEST_F(NvmeFaultTest, AnEntryOfTheWrongPhaseIsNone) {
  Start();
  model_->Add({.kind = Kind::kWrongPhase, .skip = 3});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
}

// cc8fb0c3ae and 1120407bdf: identifiers that are out of range, or of what has ended already.
TEST_F(NvmeFaultTest, ACompletionThatBelongsToNothingIsCounted) {
  Start();
  for (const uint16_t change : {0x0000, 0x0100, 0x00ff, 0xffff, 0x0080}) {
    model_->Add({.kind = Kind::kDuplicate, .id_xor = change});
    ASSERT_EQ(Write(), 0);
    ASSERT_EQ(Write(), 0);
  }
  EXPECT_EQ(Count("stray_completions"), 5);
  EXPECT_EQ(WriteAll(), 0);
}

TEST_F(NvmeFaultTest, ACompletionUnderAnotherNameIsNoAnswer) {
  Start();
  model_->Add({.kind = Kind::kWrongId, .skip = 3, .id_xor = 0x0100});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(Count("stray_completions"), 1);
}

TEST_F(NvmeFaultTest, AFatalStatusIsSeenBeforeAnyTimeout) {
  timeout_ = kLong;
  Start();
  model_->Add({.kind = Kind::kFatal, .skip = 10});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(Count("timeouts"), 0);
  EXPECT_EQ(Count("resets"), 1);
  EXPECT_TRUE(Logged("stopped by itself"));
}

TEST_F(NvmeFaultTest, AControllerThatIsGoneFailsEverything) {
  Start();
  model_->Add({.kind = Kind::kGone, .skip = 10});
  EXPECT_EQ(WriteAll(), kWrites - 10);
  EXPECT_EQ(Write(), -EIO);
  ASSERT_FALSE(log_.lines().empty());
  const std::string line = log_.lines().back();
  EXPECT_TRUE(line.ends_with(": its disks fail from now on")) << line;
  const std::string name = line.substr(0, std::min(line.find(": "), line.find(" is gone")));
  EXPECT_FALSE(line.starts_with(name + ": " + name)) << line;
  const auto another = Open(1);
  EXPECT_FALSE(another->status().ok());
}

TEST_F(NvmeFaultTest, AControllerThatComesBackIsWaitedForAndGivenAllAgain) {
  timeout_ = kLong;
  Start({.write_cache = false, .returns = true});
  model_->Add({.kind = Kind::kGone, .skip = 10});
  std::thread other([&] {
    EXPECT_TRUE(testing::SpinUntil([&] { return Logged("waiting"); }));
    model_->PlugIn();
  });
  EXPECT_EQ(WriteAll(), 0);
  other.join();
  EXPECT_TRUE(AllStored());
  EXPECT_TRUE(Logged("is back"));
  EXPECT_EQ(Flush(), 0);
  const auto another = Open(1);
  EXPECT_TRUE(another->status().ok());
}

TEST_F(NvmeFaultTest, AFlushFailsOnceAControllerWithACacheWasGone) {
  timeout_ = kLong;
  Start({.returns = true});
  model_->Unplug();
  EXPECT_TRUE(testing::SpinUntil([&] { return Logged("waiting"); })) << "though nothing is sent";
  model_->PlugIn();
  EXPECT_EQ(Write(), 0);
  EXPECT_EQ(Flush(), -EIO);
}

TEST_F(NvmeFaultTest, AControllerThatDoesNotComeBackFailsEverything) {
  Start({.returns = true});
  model_->Add({.kind = Kind::kGone, .skip = 10});
  EXPECT_EQ(WriteAll(), kWrites - 10);
  EXPECT_TRUE(Logged("disks fail"));
  EXPECT_EQ(Write(), -EIO);
}

TEST_F(NvmeFaultTest, AControllerThatComesBackAsAnotherFailsEverything) {
  timeout_ = kLong;
  Start({.returns = true});
  model_->AnnounceBlocks(1, 8);
  model_->Unplug();
  EXPECT_TRUE(testing::SpinUntil([&] { return Logged("waiting"); }));
  model_->PlugIn();
  EXPECT_EQ(Write(), -EIO);
  EXPECT_TRUE(Logged("another namespace 1"));
}

TEST_F(NvmeFaultTest, AControllerThatDoesNotStopIsResetAsAFunction) {
  Start({.timeout = 1});
  model_->SetReady(NvmeModelReady::kNeverCleared);
  model_->Add({.kind = Kind::kLoseCompletion});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
}

TEST_F(NvmeFaultTest, AControllerThatNothingStopsIsCutOff) {
  Start({.timeout = 1});
  model_->SetReady(NvmeModelReady::kNeverCleared);
  model_->FailFunctionReset(true);
  model_->Add({.kind = Kind::kHold});
  model_->SetAbort(NvmeModelAbort::kRefuses);
  EXPECT_EQ(Write(), -EIO);
  const Segment memory = memory_.At(0, 4096);
  const std::string before(reinterpret_cast<const char*>(memory.host), memory.length);
  model_->Release();
  const std::string after(reinterpret_cast<const char*>(memory.host), memory.length);
  EXPECT_EQ(before, after);
  EXPECT_TRUE(Logged("its disks fail from now on"));
}

// Nor does one that masters the bus all the same.
TEST_F(NvmeFaultTest, AControllerThatIsCutOffHasNoMemoryMapped) {
  Start({.timeout = 1, .ignores_bus_master = true});
  EXPECT_EQ(Flush(), 0);  // so its queue is mapped
  const size_t mappings = model_->mappings();
  model_->SetReady(NvmeModelReady::kNeverCleared);
  model_->FailFunctionReset(true);
  model_->Add({.kind = Kind::kHold});
  model_->SetAbort(NvmeModelAbort::kRefuses);
  EXPECT_EQ(Write(), -EIO);
  EXPECT_EQ(model_->mappings(), mappings - 1) << "the guest's";
  const uint64_t blocked = model_->counters().blocked;
  model_->Release();
  EXPECT_GT(model_->counters().blocked, blocked);
  EXPECT_FALSE(AllStored());
}

TEST_F(NvmeFaultTest, AControllerThatDoesNotComeUpIsGivenUp) {
  Start({.timeout = 1});
  model_->Add({.kind = Kind::kLoseCompletion});
  model_->SetReady(NvmeModelReady::kNeverSet);
  EXPECT_EQ(Write(), -EIO);
  EXPECT_EQ(WriteAll(), kWrites);
}

// What was cached outlives a reset of the controller: a flush that is sent again makes it durable.
TEST_F(NvmeFaultTest, AFlushAcrossAResetIsOne) {
  Start();
  EXPECT_EQ(WriteAll(), 0);
  model_->Add({.kind = Kind::kLoseCompletion, .opcode = kWriteOp});
  model_->Add({.kind = Kind::kHang, .opcode = kFlushOp});
  model_->SetAbort(NvmeModelAbort::kRefuses);
  EXPECT_EQ(Flush(), 0);
  EXPECT_EQ(Count("resets"), 1);
  EXPECT_TRUE(AllStored(true));
}

// What was cached does not outlive the power: no flush may say that it is durable.
TEST_F(NvmeFaultTest, NoFlushSucceedsWhenTheCacheIsLost) {
  Start();
  EXPECT_EQ(WriteAll(), 0);
  model_->PowerCut();
  EXPECT_EQ(Flush(), -EIO);
  EXPECT_FALSE(AllStored(true));
  EXPECT_TRUE(Logged("no flush will succeed"));
  EXPECT_EQ(Write(), 0);
  EXPECT_EQ(Flush(), -EIO);
}

TEST_F(NvmeFaultTest, APowerCutOfADeviceWithoutACacheLosesNothing) {
  Start({.write_cache = false});
  EXPECT_EQ(WriteAll(), 0);
  model_->PowerCut();
  EXPECT_EQ(Flush(), 0);
  EXPECT_TRUE(AllStored(true));
}

// It notices nothing while nobody uses it, and is there when somebody does.
TEST_F(NvmeFaultTest, AfterAPauseTimeIsStillKept) {
  Start();
  absl::SleepFor(4 * timeout_);
  model_->Add({.kind = Kind::kHang});
  EXPECT_EQ(Write(), 0);
  EXPECT_EQ(Count("timeouts"), 1);
}

TEST_F(NvmeFaultTest, AQueueThatCannotBeMadeFails) {
  Start();
  EXPECT_EQ(Write(), 0);  // so its queue is there
  model_->Add({.kind = Kind::kStatus,
               .admin = true,
               .opcode = static_cast<uint8_t>(nvme::AdminOp::kCreateSq),
               .status = nvme::kInternalError});
  const auto second = Open(1);
  ASSERT_TRUE(second->status().ok());
  TestRequest read(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
  EXPECT_EQ(second->Run(read), -EIO);
  EXPECT_EQ(Write(), 0);
}

TEST_F(NvmeFaultTest, AControllerThatStopsWhileItComesUpIsResetAgain) {
  Start();
  model_->Add({.kind = Kind::kFatal, .skip = 3});
  model_->Add({.kind = Kind::kHang,
               .admin = true,
               .opcode = static_cast<uint8_t>(nvme::AdminOp::kCreateCq)});
  EXPECT_EQ(WriteAll(), 0);
  EXPECT_TRUE(AllStored());
  EXPECT_EQ(Count("resets"), 2);
}

TEST_F(NvmeFaultTest, AControllerThatNeverTakesItsQueuesIsGivenUp) {
  Start();
  EXPECT_EQ(Write(), 0);
  model_->Add({.kind = Kind::kFatal});
  model_->Add({.kind = Kind::kHang,
               .admin = true,
               .opcode = static_cast<uint8_t>(nvme::AdminOp::kCreateCq),
               .times = kAlways});
  EXPECT_EQ(WriteAll(), kWrites);
}

TEST_F(NvmeFaultTest, AControllerThatCannotBeBroughtUpIsAnError) {
  MakeModel({.timeout = 1});
  model_->SetReady(NvmeModelReady::kNeverSet);
  const auto controller =
      CreateNvmeController(attachment_->Connect().value(), {.timeout = timeout_}, Logger(&log_));
  EXPECT_TRUE(absl::IsDeadlineExceeded(controller.status())) << controller.status();
  Disconnect();
  EXPECT_NE(model_->Attach(), nullptr);
}

}  // namespace
}  // namespace ringside
