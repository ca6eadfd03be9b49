// The NVMe controller model's faults: each does what it says, and no more.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>

#include "base/clock.h"
#include "tests/support/nvme/nvme_model_fixture.h"

namespace ringside::testing {
namespace {

using nvme::AdminOp;
using nvme::IoOp;
using Driver = NvmeTestDriver;
using Kind = NvmeModelFault::Kind;

class NvmeModelFaultTest : public NvmeModelTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(Start()); }
  // Sends a write of one block.
  uint16_t Send(uint64_t start, char content = 'a', uint64_t page = 0) {
    std::memset(driver_->At(Driver::kDataPage + page), content, 512);
    const uint16_t id = driver_->Push(1, Driver::Io(IoOp::kWrite, start, 1, page));
    driver_->Ring(1);
    return id;
  }
  uint16_t SendRead(uint64_t start) {
    *driver_->At(Driver::kDataPage) = std::byte{0xee};
    const uint16_t id = driver_->Push(1, Driver::Io(IoOp::kRead, start));
    driver_->Ring(1);
    return id;
  }
  int Data() { return static_cast<int>(*driver_->At(Driver::kDataPage)); }
  char Content(uint64_t block) { return static_cast<char>(model().Contents(1)[block * 512]); }
  bool NothingComes() { return !driver_->Take(1, Driver::kShort); }
  // 1: it could not.
  uint32_t Abort(uint16_t id) {
    return driver_->Admin(AdminOp::kAbort, {.cdw10 = uint32_t{id} << 16 | 1}).result;
  }
  static uint8_t Code(auto op) { return static_cast<uint8_t>(op); }
};

TEST_F(NvmeModelFaultTest, HitsTheCommandsItNamesAndNoOthers) {
  constexpr nvme::Status kStatus = nvme::kWriteFault | nvme::kDoNotRetry;
  model().Add({.kind = Kind::kStatus,
               .opcode = Code(IoOp::kWrite),
               .skip = 1,
               .times = 2,
               .status = kStatus});
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  EXPECT_EQ(driver_->Read(1), 'a');
  EXPECT_EQ(driver_->Write(1, 'b'), kStatus);
  EXPECT_EQ(driver_->Read(1), 'a');  // not executed
  EXPECT_EQ(driver_->Write(1, 'c'), kStatus);
  EXPECT_EQ(driver_->Write(1, 'd'), nvme::kSuccess);
  EXPECT_EQ(model().executed(IoOp::kWrite, 1), 2);
  model().Add({.kind = Kind::kStatus});
  model().ClearFaults();
  EXPECT_EQ(driver_->Write(1, 'e'), nvme::kSuccess);
  ExpectNoViolation();
}

TEST_F(NvmeModelFaultTest, HitsAdminCommandsApart) {
  model().Add({.kind = Kind::kStatus, .admin = true, .status = nvme::kInternalError});
  EXPECT_EQ(driver_->Flush(), nvme::kSuccess);
  EXPECT_EQ(driver_->Admin(AdminOp::kGetFeatures, {.cdw10 = 7}).status, nvme::kInternalError);
  EXPECT_EQ(driver_->Admin(AdminOp::kGetFeatures, {.cdw10 = 7}).status, nvme::kSuccess);
}

TEST_F(NvmeModelFaultTest, ALostCompletionIsOfACommandThatWasExecuted) {
  model().Add({.kind = Kind::kLoseCompletion});
  const uint16_t id = Send(1);
  EXPECT_TRUE(NothingComes());
  EXPECT_EQ(Content(1), 'a');
  EXPECT_EQ(Abort(id), 1);  // too late
  EXPECT_EQ(driver_->Read(1), 'a');
  ASSERT_TRUE(driver_->Disable());
  ASSERT_NO_FATAL_FAILURE(Enable());
  EXPECT_TRUE(NothingComes());
  ExpectNoViolation();
}

TEST_F(NvmeModelFaultTest, AHangingCommandIsNeverExecuted) {
  model().Add({.kind = Kind::kHang});
  Send(1);
  EXPECT_TRUE(NothingComes());
  EXPECT_EQ(driver_->Read(1), 0);  // others are not held up
  ASSERT_TRUE(driver_->Disable());
  ASSERT_NO_FATAL_FAILURE(Enable());
  EXPECT_TRUE(NothingComes());
  EXPECT_EQ(Content(1), 0);
}

TEST_F(NvmeModelFaultTest, AHangingCommandCanBeAborted) {
  model().Add({.kind = Kind::kHang});
  const uint16_t id = Send(1);
  EXPECT_EQ(Abort(id), 0);
  const auto completion = driver_->Wait(1);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->id, id);
  EXPECT_EQ(completion->status, nvme::kAbortRequested);
  EXPECT_EQ(Content(1), 0);
  EXPECT_EQ(Abort(id), 1);  // it is no more
}

TEST_F(NvmeModelFaultTest, AnAbortMayBeRefusedOrFail) {
  model().Add({.kind = Kind::kHang});
  model().SetAbort(NvmeModelAbort::kRefuses);
  const uint16_t id = Send(1);
  EXPECT_EQ(Abort(id), 1);
  EXPECT_TRUE(NothingComes());
  model().SetAbort(NvmeModelAbort::kAborts);
  model().Add({.kind = Kind::kStatus, .admin = true, .opcode = Code(AdminOp::kAbort)});
  EXPECT_EQ(driver_->Admin(AdminOp::kAbort, {.cdw10 = uint32_t{id} << 16 | 1}).status,
            nvme::kInternalError);
  EXPECT_TRUE(NothingComes());
  EXPECT_EQ(Abort(id), 0);
  EXPECT_TRUE(driver_->Wait(1));
}

TEST_F(NvmeModelFaultTest, AHeldCommandTransfersWhenItIsReleased) {
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  model().Add({.kind = Kind::kHold});
  const uint16_t id = SendRead(1);
  ASSERT_TRUE(model().WaitForHeld(1));
  EXPECT_TRUE(NothingComes());
  EXPECT_EQ(Data(), 0xee);
  model().Release();
  EXPECT_EQ(Data(), 'a');
  EXPECT_EQ(model().held(), 0);
  const auto completion = driver_->Wait(1);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->id, id);
}

TEST_F(NvmeModelFaultTest, AResetDropsWhatIsHeld) {
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  model().Add({.kind = Kind::kHold});
  SendRead(1);
  ASSERT_TRUE(model().WaitForHeld(1));
  device_->WriteBar(0, nvme::kCc, nvme::kCcEntrySizes);
  EXPECT_EQ(model().held(), 0);
  model().Release();
  EXPECT_EQ(Data(), 0xee);
}

TEST_F(NvmeModelFaultTest, AControllerThatDoesNotStopStillTransfers) {
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  model().Add({.kind = Kind::kHold, .times = 3});
  SendRead(1);
  SendRead(1);
  SendRead(1);
  ASSERT_TRUE(model().WaitForHeld(3));
  model().SetReady(NvmeModelReady::kNeverCleared);
  EXPECT_FALSE(driver_->Disable(Driver::kShort));
  EXPECT_EQ(model().held(), 3);
  model().Release();
  EXPECT_EQ(Data(), 'a');
  model().SetReady(NvmeModelReady::kFollows);
  EXPECT_TRUE(driver_->WaitForStatus(nvme::kCstsReady, 0));
  ExpectNoViolation();
}

TEST_F(NvmeModelFaultTest, AControllerThatDoesNotStopCanBeCutOff) {
  model().Add({.kind = Kind::kHold});
  SendRead(1);
  ASSERT_TRUE(model().WaitForHeld(1));
  model().SetReady(NvmeModelReady::kNeverCleared);
  EXPECT_FALSE(driver_->Disable(Driver::kShort));
  ASSERT_TRUE(device_->UnmapDma(Driver::kIova, Driver::kMemory).ok());
  model().Release();
  EXPECT_EQ(Data(), 0xee);
  EXPECT_GT(model().counters().blocked, 0);
  ExpectNoViolation();
}

TEST_F(NvmeModelFaultTest, ADelayedCommandIsExecutedLater) {
  constexpr int64_t kDelayNs = 500'000'000;
  model().Add({.kind = Kind::kDelay, .delay_ns = kDelayNs});
  const int64_t sent_ns = MonotonicNs();
  Send(1);
  EXPECT_EQ(Content(1), 0);
  EXPECT_TRUE(driver_->Wait(1));
  EXPECT_GE(MonotonicNs() - sent_ns, kDelayNs);
  EXPECT_EQ(Content(1), 'a');
}

TEST_F(NvmeModelFaultTest, AWrongPhaseLooksLikeAnOldEntry) {
  model().Add({.kind = Kind::kWrongPhase});
  const uint16_t id = Send(1);
  EXPECT_TRUE(NothingComes());
  EXPECT_EQ(Content(1), 'a');
  nvme::Completion entry;
  std::memcpy(&entry, driver_->At(3), sizeof entry);
  EXPECT_EQ(entry.id, id);
  SendRead(1);
  EXPECT_TRUE(NothingComes());  // it lies behind
  const std::byte* status = driver_->At(3, sizeof entry + offsetof(nvme::Completion, status));
  EXPECT_EQ(LoadAcquire(reinterpret_cast<const uint16_t*>(status)), 1);
}

TEST_F(NvmeModelFaultTest, ACompletionComesTwice) {
  model().Add({.kind = Kind::kDuplicate});
  const uint16_t id = Send(1);
  for (int i = 0; i < 2; ++i) {
    const auto completion = driver_->Wait(1);
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->id, id);
  }
  EXPECT_EQ(model().executed(IoOp::kWrite, 1), 1);
}

TEST_F(NvmeModelFaultTest, ACompletionHasAWrongIdentifier) {
  model().Add({.kind = Kind::kWrongId, .id_xor = 0x4000});
  model().Add({.kind = Kind::kDuplicate, .id_xor = 0x4000});
  const uint16_t first = Send(1);
  const auto wrong = driver_->Wait(1);
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->id, first ^ 0x4000);
  EXPECT_TRUE(NothingComes());
  const uint16_t second = Send(2);
  EXPECT_EQ(driver_->Wait(1)->id, second);
  EXPECT_EQ(driver_->Wait(1)->id, second ^ 0x4000);
}

TEST_F(NvmeModelFaultTest, AFatalControllerStopsUntilItIsReset) {
  model().Add({.kind = Kind::kFatal});
  Send(1);
  EXPECT_TRUE(driver_->WaitForStatus(nvme::kCstsFatal, nvme::kCstsFatal));
  SendRead(1);
  EXPECT_TRUE(NothingComes());
  EXPECT_EQ(Content(1), 0);
  ASSERT_TRUE(driver_->Disable());
  EXPECT_EQ(driver_->status(), 0);
  ASSERT_NO_FATAL_FAILURE(Enable());
  EXPECT_EQ(driver_->Read(1), 0);
  model().SetFatal();
  EXPECT_EQ(driver_->status() & nvme::kCstsFatal, nvme::kCstsFatal);
  ExpectNoViolation();
}

TEST_F(NvmeModelFaultTest, ADeviceThatIsGoneReadsAsAllOnes) {
  model().Add({.kind = Kind::kGone});
  Send(1);
  EXPECT_TRUE(SpinUntil([&] { return driver_->status() == nvme::kGone; }));
  EXPECT_EQ(device_->ReadBar(0, nvme::kCap), nvme::kGone);
  EXPECT_EQ(device_->ReadConfig(0, 2), 0xffff);
  device_->WriteBar(0, nvme::kCc, 0);
  EXPECT_TRUE(NothingComes());
  EXPECT_FALSE(device_->Reset().ok());
  Detach();
  ASSERT_NO_FATAL_FAILURE(Attach());
  EXPECT_EQ(driver_->status(), nvme::kGone);
}

TEST_F(NvmeModelFaultTest, ReadyMayNeverBeSet) {
  ASSERT_TRUE(driver_->Disable());
  model().SetReady(NvmeModelReady::kNeverSet);
  EXPECT_FALSE(driver_->Enable(Driver::kShort));
  model().SetReady(NvmeModelReady::kFollows);
  EXPECT_TRUE(driver_->WaitForStatus(nvme::kCstsReady, nvme::kCstsReady));
  ExpectNoViolation();
}

class NvmeModelOrderTest : public NvmeModelTest {
 protected:
  // The order in which so many commands come back, by their places in the order they were sent.
  std::vector<int> Order(int count) {
    std::vector<uint16_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(driver_->Push(1, Driver::Io(IoOp::kRead, 0)));
    driver_->Ring(1);
    std::vector<int> order;
    for (int i = 0; i < count; ++i) {
      const auto completion = driver_->Wait(1);
      if (!completion) return order;
      order.push_back(
          static_cast<int>(std::find(ids.begin(), ids.end(), completion->id) - ids.begin()));
    }
    return order;
  }
};

TEST_F(NvmeModelOrderTest, CommandsTakeTheirTime) {
  config_.service_ns = 5'000'000;
  ASSERT_NO_FATAL_FAILURE(Start());
  const int64_t sent_ns = MonotonicNs();
  EXPECT_THAT(Order(4), ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_GE(MonotonicNs() - sent_ns, config_.service_ns);
  ExpectNoViolation();
}

TEST_F(NvmeModelOrderTest, CommandsCompleteInRandomOrder) {
  config_.shuffle_seed = 1;
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::vector<int> order = Order(12);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), 12);
  ExpectNoViolation();
}

}  // namespace
}  // namespace ringside::testing
