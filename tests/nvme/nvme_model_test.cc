// The NVMe controller model as hardware: registers, life cycle, admin queue, interrupts, handles.
#include <array>
#include <cstring>

#include "tests/support/nvme/nvme_model_fixture.h"
#include "tests/support/status_matchers.h"

namespace ringside::testing {
namespace {

using nvme::AdminOp;
using nvme::IoOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Driver = NvmeTestDriver;

std::span<const std::byte> Buffer(Driver& driver) {
  return {driver.At(Driver::kBufferPage), nvme::kIdentifyBytes};
}
nvme::Status Identify(Driver& driver, uint32_t cns, uint32_t nsid = 0) {
  return driver
      .Admin(AdminOp::kIdentify,
             {.nsid = nsid, .prp1 = Driver::Iova(Driver::kBufferPage), .cdw10 = cns})
      .status;
}

TEST_F(NvmeModelTest, AnnouncesWhatItIsConfiguredFor) {
  config_.queue_entries = 128;
  config_.timeout = 3;
  config_.doorbell_stride = 2;
  config_.min_page = 1;
  ASSERT_NO_FATAL_FAILURE(Attach());
  const nvme::Capabilities cap(device_->ReadBar(0, nvme::kCap) |
                               uint64_t{device_->ReadBar(0, nvme::kCap + 4)} << 32);
  EXPECT_EQ(cap.queue_entries(1024), 128);
  EXPECT_EQ(cap.timeout_ms(), 1500);
  EXPECT_EQ(cap.doorbell_stride(), 16);
  EXPECT_EQ(cap.min_page_shift(), 13);
  EXPECT_TRUE(cap.has_nvm_command_set());
  EXPECT_EQ(device_->ReadConfig(8, 4) >> 8, 0x010802);
  EXPECT_EQ(device_->vectors(), 17);
}

TEST_F(NvmeModelTest, IdentifiesControllerAndNamespaces) {
  config_.namespaces = {{.blocks = 1000, .block_size = 4096, .boundary = 64},
                        {.blocks = 0},
                        {.blocks = 77, .metadata = 8}};
  config_.mdts = 3;
  config_.shadow_doorbells = true;
  config_.write_zeroes = false;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(Identify(*driver_, nvme::kCnsController), nvme::kSuccess);
  namespace controller = nvme::controller;
  EXPECT_EQ(nvme::Field<uint8_t>(Buffer(*driver_), controller::kMdts), 3);
  EXPECT_EQ(nvme::Field<uint32_t>(Buffer(*driver_), controller::kNn), 3);
  EXPECT_EQ(nvme::Field<uint16_t>(Buffer(*driver_), controller::kOncs),
            controller::kOncsDatasetManagement);
  EXPECT_EQ(nvme::Field<uint16_t>(Buffer(*driver_), controller::kOacs),
            controller::kOacsDoorbellBuffers);
  EXPECT_EQ(nvme::Field<uint8_t>(Buffer(*driver_), controller::kVwc) & 1, 1);

  ASSERT_EQ(Identify(*driver_, nvme::kCnsActiveNamespaces), nvme::kSuccess);
  EXPECT_EQ(nvme::Field<uint32_t>(Buffer(*driver_), 0), 1);
  EXPECT_EQ(nvme::Field<uint32_t>(Buffer(*driver_), 4), 3);
  EXPECT_EQ(nvme::Field<uint32_t>(Buffer(*driver_), 8), 0);

  ASSERT_EQ(Identify(*driver_, nvme::kCnsNamespace, 1), nvme::kSuccess);
  EXPECT_EQ(nvme::Field<uint64_t>(Buffer(*driver_), nvme::ns::kSize), 1000);
  EXPECT_EQ(nvme::Field<uint16_t>(Buffer(*driver_), nvme::ns::kBoundary), 64);
  EXPECT_EQ(nvme::Field<uint32_t>(Buffer(*driver_), nvme::ns::kFormat0), 12U << 16);
  ASSERT_EQ(Identify(*driver_, nvme::kCnsNamespace, 2), nvme::kSuccess);
  EXPECT_EQ(nvme::Field<uint64_t>(Buffer(*driver_), nvme::ns::kSize), 0);
  ASSERT_EQ(Identify(*driver_, nvme::kCnsNamespace, 3), nvme::kSuccess);
  EXPECT_EQ(nvme::Field<uint32_t>(Buffer(*driver_), nvme::ns::kFormat0), 9U << 16 | 8);
  EXPECT_EQ(Identify(*driver_, nvme::kCnsNamespace, 4), nvme::kInvalidNamespace);
  ExpectNoViolation();
}

TEST_F(NvmeModelTest, ChecksTheQueuesThatItIsToMake) {
  config_.queues = 2;
  config_.queue_entries = 16;
  config_.vectors = 2;
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto create = [&](AdminOp op, uint32_t cdw10, uint32_t cdw11, uint64_t offset = 0) {
    return driver_->Admin(op, {.prp1 = Driver::Iova(5, offset), .cdw10 = cdw10, .cdw11 = cdw11})
        .status;
  };
  const uint32_t good = 15 << 16 | 2;
  EXPECT_EQ(create(AdminOp::kCreateCq, 15 << 16, 1), nvme::kInvalidQueueId);
  EXPECT_EQ(create(AdminOp::kCreateCq, 15 << 16 | 1, 1), nvme::kInvalidQueueId);  // it is there
  EXPECT_EQ(create(AdminOp::kCreateCq, 15 << 16 | 3, 1), nvme::kInvalidQueueId);
  EXPECT_EQ(create(AdminOp::kCreateCq, 2, 1), nvme::kInvalidQueueSize);
  EXPECT_EQ(create(AdminOp::kCreateCq, 16 << 16 | 2, 1), nvme::kInvalidQueueSize);
  EXPECT_EQ(create(AdminOp::kCreateCq, good, 2 << 16 | 3), nvme::kInvalidVector);
  EXPECT_EQ(create(AdminOp::kCreateCq, good, 0), nvme::kInvalidField);  // not contiguous
  EXPECT_EQ(create(AdminOp::kCreateCq, good, 1, 64), nvme::kPrpOffsetInvalid);
  EXPECT_EQ(create(AdminOp::kCreateSq, good, 2 << 16 | 1), 0x100);  // no completion queue yet
  EXPECT_EQ(create(AdminOp::kCreateCq, good, 1), nvme::kSuccess);
  EXPECT_EQ(create(AdminOp::kCreateSq, good, 2 << 16 | 1), nvme::kSuccess);
  EXPECT_EQ(create(AdminOp::kDeleteCq, 2, 0), 0x10c);  // it is used
  EXPECT_EQ(create(AdminOp::kDeleteSq, 2, 0), nvme::kSuccess);
  EXPECT_EQ(create(AdminOp::kDeleteSq, 2, 0), nvme::kInvalidQueueId);
  EXPECT_EQ(create(AdminOp::kDeleteCq, 2, 0), nvme::kSuccess);
  EXPECT_EQ(create(AdminOp::kDeleteCq, 2, 0), nvme::kInvalidQueueId);
  EXPECT_EQ(driver_->Admin(static_cast<AdminOp>(0xc1)).status, nvme::kInvalidOpcode);
  ExpectNoViolation();
}

TEST_F(NvmeModelTest, GrantsNoMoreQueuesThanItHas) {
  config_.queues = 4;
  ASSERT_NO_FATAL_FAILURE(Attach());
  ASSERT_TRUE(driver_->Enable());
  const auto ask = [&](uint32_t queues) {
    return driver_->Admin(AdminOp::kSetFeatures, {.cdw10 = nvme::kFeatureQueueCount,
                                                  .cdw11 = (queues - 1) << 16 | (queues - 1)});
  };
  EXPECT_EQ(ask(9).result, 3U << 16 | 3);
  EXPECT_EQ(ask(2).result, 1U << 16 | 1);
  EXPECT_EQ(driver_->CreateQueue(3), nvme::kInvalidQueueId);
  EXPECT_EQ(driver_->CreateQueue(2), nvme::kSuccess);
  EXPECT_EQ(ask(4).status, 0x00c);  // too late
}

TEST_F(NvmeModelTest, AResetClearsEverything) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  driver_->Admin(AdminOp::kSetFeatures, {.cdw10 = nvme::kFeatureAsyncEvents, .cdw11 = 0x100});
  ASSERT_TRUE(driver_->Disable());
  ASSERT_TRUE(driver_->Enable());
  EXPECT_EQ(driver_->Admin(AdminOp::kGetFeatures, {.cdw10 = nvme::kFeatureAsyncEvents}).result, 0);
  ASSERT_EQ(driver_->CreateQueue(1), nvme::kSuccess);  // it is not there any more
  EXPECT_EQ(driver_->Read(1), 'a');                    // this was no power cut
  EXPECT_EQ(static_cast<int>(model().Durable(1)[512]), 0);
  ExpectNoViolation();
}

TEST_F(NvmeModelTest, ARegisterIsNotToBeWrittenAtAnyTime) {
  ASSERT_NO_FATAL_FAILURE(Start());
  device_->WriteBar(0, nvme::kAqa, 0);
  device_->WriteBar(0, nvme::kAsq, 0);
  device_->WriteBar(0, 0x0c, 1);
  EXPECT_THAT(model().violations(),
              ElementsAre(HasSubstr("AQA is written while"), HasSubstr("ASQ or ACQ is written"),
                          HasSubstr("register 0xc must not")));
}

TEST_F(NvmeModelTest, IsNotEnabledBeforeItWasDisabled) {
  ASSERT_NO_FATAL_FAILURE(Start());
  model().SetReady(NvmeModelReady::kNeverCleared);
  EXPECT_FALSE(driver_->Disable(Driver::kShort));
  device_->WriteBar(0, nvme::kCc, nvme::kCcEntrySizes | nvme::kCcEnable);
  ExpectViolation("before CSTS.RDY was cleared");
}

TEST_F(NvmeModelTest, AWrongSetUpIsFatal) {
  ASSERT_NO_FATAL_FAILURE(Attach());
  device_->WriteBar(0, nvme::kCc, nvme::kCcEntrySizes | nvme::kCcEnable);
  EXPECT_TRUE(driver_->WaitForStatus(nvme::kCstsFatal, nvme::kCstsFatal));
  ExpectViolation("AQA is wrong");
}

TEST_F(NvmeModelTest, RefusesAPageSizeBelowItsLeast) {
  config_.min_page = 1;
  ASSERT_NO_FATAL_FAILURE(Attach());
  EXPECT_FALSE(driver_->Enable(Driver::kShort));
  ExpectViolation("CC.MPS is wrong");
}

TEST_F(NvmeModelTest, AnOrderlyShutdownMakesWritesDurable) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  device_->WriteBar(0, nvme::kCc, nvme::kCcEntrySizes | nvme::kCcEnable | nvme::kCcShutdownNormal);
  EXPECT_TRUE(driver_->WaitForStatus(nvme::kCstsShutdownMask, nvme::kCstsShutdownComplete));
  model().PowerCut();
  EXPECT_EQ(static_cast<char>(model().Contents(1)[512]), 'a');
}

TEST_F(NvmeModelTest, OnlyOneHandleAtATime) {
  auto first = model().Attach();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(model().Attach(), nullptr);
  first.reset();
  EXPECT_NE(model().Attach(), nullptr);
}

TEST_F(NvmeModelTest, TheEndOfAHandleResetsTheFunction) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  alignas(4096) static std::byte page[4096];
  const DmaMapping mapping = {.host = page, .size = sizeof page, .iova = 0x8000};
  ASSERT_TRUE(device_->MapDma(mapping).ok());
  Detach();
  ASSERT_NO_FATAL_FAILURE(Attach());
  EXPECT_TRUE(device_->MapDma(mapping).ok());
  EXPECT_EQ(driver_->status(), 0);
  EXPECT_EQ(device_->ReadBar(0, nvme::kCc), 0);
  EXPECT_EQ(device_->ReadConfig(4, 2), 0);
  ASSERT_NO_FATAL_FAILURE(Enable());
  EXPECT_EQ(driver_->Read(1), 'a');
  ExpectNoViolation();
}

TEST_F(NvmeModelTest, TheFunctionCanBeReset) {
  ASSERT_NO_FATAL_FAILURE(Start());
  model().SetReady(NvmeModelReady::kNeverCleared);
  EXPECT_FALSE(driver_->Disable(Driver::kShort));
  EXPECT_TRUE(device_->Reset().ok());
  EXPECT_EQ(driver_->status(), 0);
  ASSERT_NO_FATAL_FAILURE(Enable());  // with its mappings
  EXPECT_EQ(driver_->Read(1), 0);
  model().FailFunctionReset(true);
  EXPECT_TRUE(absl::IsUnavailable(device_->Reset()));
  EXPECT_NE(driver_->status(), 0);
}

TEST_F(NvmeModelTest, AFunctionResetMayBeMissing) {
  config_.function_reset = false;
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->Reset()));
  EXPECT_EQ(driver_->Read(1), 0);
}

TEST_F(NvmeModelTest, MappingsAreCheckedAsByTheKernel) {
  config_.max_mappings = 2;
  ASSERT_NO_FATAL_FAILURE(Attach());
  std::byte* const host = driver_->At(0);
  const auto map = [&](uint64_t iova, uint64_t size, uint64_t offset = 0) {
    return device_->MapDma({.host = host + offset, .size = size, .iova = iova});
  };
  EXPECT_THAT(map(0xfee00000, 4096), IsBadInput("0xfee00000", "no range"));
  EXPECT_THAT(map(0xfedff000, 8192), IsBadInput("0xfedff000", "no range"));
  EXPECT_THAT(map(uint64_t{1} << 39, 4096), IsBadInput("0x8000000000", "no range"));
  EXPECT_THAT(map(512, 4096), IsBadInput("0x200", "whole pages"));
  EXPECT_THAT(map(0, 512), IsBadInput("512 bytes", "whole pages"));
  EXPECT_THAT(map(0, 4096, 512), IsBadInput("4096 bytes", "whole pages"));
  EXPECT_TRUE(absl::IsAlreadyExists(map(Driver::kIova - 4096, 8192)));
  EXPECT_TRUE(absl::IsAlreadyExists(map(Driver::kIova + 4096, 4096)));
  EXPECT_TRUE(map(0, 8192).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(map(0x10000, 4096)));
  EXPECT_THAT(device_->UnmapDma(0, 4096), IsBadInput("4096 bytes", "not mapped like that"));
  EXPECT_TRUE(device_->UnmapDma(0, 8192).ok());
  EXPECT_TRUE(map(0x10000, 4096).ok());
}

class NvmeModelVectorsTest : public NvmeModelTest {
 protected:
  void StartWithVectors() {
    ASSERT_NO_FATAL_FAILURE(Attach());
    const std::array fds = {admin_.fd(), io_.fd()};
    ASSERT_TRUE(device_->SetVectors(fds).ok());
    ASSERT_NO_FATAL_FAILURE(Enable());
  }
  EventFd admin_ = EventFd::Create().value();
  EventFd io_ = EventFd::Create().value();
};

TEST_F(NvmeModelVectorsTest, AnInterruptComesOnceABatch) {
  ASSERT_NO_FATAL_FAILURE(StartWithVectors());
  EXPECT_TRUE(WaitForFd(admin_.fd(), POLLIN));
  EXPECT_EQ(io_.Clear(), 0);
  for (int i = 0; i < 8; ++i) driver_->Push(1, Driver::Io(IoOp::kRead, 1));
  driver_->Ring(1);
  EXPECT_TRUE(WaitForFd(io_.fd(), POLLIN));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(driver_->Wait(1));
  EXPECT_EQ(io_.Clear(), 1);
}

TEST_F(NvmeModelVectorsTest, AMaskedVectorIsPendingUntilItIsUnmasked) {
  ASSERT_NO_FATAL_FAILURE(StartWithVectors());
  device_->MaskVector(1);
  EXPECT_EQ(driver_->Read(1), 0);
  EXPECT_FALSE(WaitForFd(io_.fd(), POLLIN, Driver::kShort));
  EXPECT_TRUE(device_->UnmaskVector(1));
  EXPECT_TRUE(WaitForFd(io_.fd(), POLLIN));
  EXPECT_EQ(io_.Clear(), 1);
  // One that was not masked has nothing pending.
  device_->MaskVector(1);
  EXPECT_TRUE(device_->UnmaskVector(1));
  EXPECT_FALSE(WaitForFd(io_.fd(), POLLIN, Driver::kShort));
}

TEST_F(NvmeModelVectorsTest, VectorsAreReplacedAsAWhole) {
  ASSERT_NO_FATAL_FAILURE(StartWithVectors());
  device_->MaskVector(1);
  const std::array fds = {-1, admin_.fd()};
  ASSERT_TRUE(device_->SetVectors(fds).ok());
  admin_.Clear();
  EXPECT_EQ(driver_->Read(1), 0);
  EXPECT_TRUE(WaitForFd(admin_.fd(), POLLIN));  // unmasked, too
  EXPECT_EQ(io_.Clear(), 0);
  EXPECT_THAT(device_->SetVectors(std::vector<int>(18, -1)), IsBadInput("18", "than the 17"));
}

TEST_F(NvmeModelVectorsTest, UnmaskingMayTakeItsTime) {
  config_.unmask_calls = 2;
  ASSERT_NO_FATAL_FAILURE(StartWithVectors());
  device_->MaskVector(1);
  EXPECT_EQ(driver_->Read(1), 0);
  EXPECT_FALSE(device_->UnmaskVector(1));
  EXPECT_FALSE(WaitForFd(io_.fd(), POLLIN, Driver::kShort));
  EXPECT_TRUE(device_->UnmaskVector(1));
  EXPECT_TRUE(WaitForFd(io_.fd(), POLLIN));
}

class NvmeModelEventTest : public NvmeModelTest {
 protected:
  uint16_t Ask() {
    const uint16_t id = driver_->Push(0, {.opcode = static_cast<uint8_t>(AdminOp::kAsyncEvent)});
    driver_->Ring(0);
    return id;
  }
  nvme::Status ReadLog(uint32_t page) {
    return driver_
        ->Admin(AdminOp::kGetLogPage,
                {.prp1 = Driver::Iova(Driver::kBufferPage), .cdw10 = page | 127 << 16})
        .status;
  }
};

TEST_F(NvmeModelEventTest, AnEventAnswersARequest) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const uint16_t first = Ask();
  const uint16_t second = Ask();
  EXPECT_FALSE(driver_->Wait(0, Driver::kShort));
  model().SendAsyncEvent(2 << 16 | 1 << 8 | 1);
  auto completion = driver_->Wait(0);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->id, first);
  EXPECT_EQ(completion->result, 2U << 16 | 1 << 8 | 1);
  // The next of its type waits until this one's log page was read.
  model().SendAsyncEvent(2 << 16 | 1);
  EXPECT_FALSE(driver_->Wait(0, Driver::kShort));
  driver_->Push(0, {.opcode = static_cast<uint8_t>(AdminOp::kGetLogPage),
                    .prp1 = Driver::Iova(Driver::kBufferPage),
                    .cdw10 = 2 | 127 << 16});
  driver_->Ring(0);
  completion = driver_->Wait(0);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->id, second);
  EXPECT_TRUE(driver_->Wait(0));
  EXPECT_EQ(ReadLog(0x77), 0x109);
}

TEST_F(NvmeModelEventTest, NoticesMustBeAskedFor) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Ask();
  constexpr uint32_t kChanged = 4 << 16 | 0 << 8 | 2;
  model().SendAsyncEvent(kChanged);
  EXPECT_FALSE(driver_->Wait(0, Driver::kShort));
  EXPECT_EQ(
      driver_->Admin(AdminOp::kSetFeatures, {.cdw10 = nvme::kFeatureAsyncEvents, .cdw11 = 1 << 8})
          .status,
      nvme::kSuccess);
  model().SendAsyncEvent(kChanged);
  EXPECT_TRUE(driver_->Wait(0));
}

TEST_F(NvmeModelEventTest, OnlySoManyRequestsAtATime) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (int i = 0; i < 4; ++i) Ask();
  EXPECT_EQ(driver_->Admin(AdminOp::kAsyncEvent).status, 0x105);
}

TEST_F(NvmeModelEventTest, ABadDoorbellIsTold) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Ask();
  driver_->WriteTail(1, 100);
  const auto completion = driver_->Wait(0);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->result, 1U << 16 | 1 << 8);
}

}  // namespace
}  // namespace ringside::testing
