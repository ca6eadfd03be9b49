// The NVMe controller model's queues and doorbells, registers and shadows.
#include "tests/support/nvme/nvme_model_fixture.h"

namespace ringside::testing {
namespace {

using nvme::AdminOp;
using nvme::IoOp;
using Driver = NvmeTestDriver;

class NvmeModelQueueTest : public NvmeModelTest {
 protected:
  // Since the model was made; Start takes four.
  bool WaitForDoorbells(uint64_t count) {
    return SpinUntil([&] { return model().counters().doorbells >= count; });
  }
  void ExpectSoon(const std::string& violation) {
    EXPECT_TRUE(SpinUntil([&] { return !model().violations().empty(); }));
    ExpectViolation(violation);
  }
};

TEST_F(NvmeModelQueueTest, GoesRoundItsQueues) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (uint32_t i = 0; i < 3 * Driver::kEntries; ++i) {
    ASSERT_EQ(driver_->Write(i, static_cast<char>(i)), nvme::kSuccess);
  }
  for (uint32_t i = 0; i < 3 * Driver::kEntries; ++i) ASSERT_EQ(driver_->Read(i), i);
  ExpectNoViolation();
  EXPECT_EQ(model().executed(IoOp::kWrite, 5), 1);
  EXPECT_EQ(model().executed(IoOp::kWrite, 5, 2), 0);
}

TEST_F(NvmeModelQueueTest, DoorbellsAreSpacedAsAnnounced) {
  config_.doorbell_stride = 4;
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  EXPECT_EQ(driver_->Read(1), 'a');
  ExpectNoViolation();
}

TEST_F(NvmeModelQueueTest, ADoorbellWrittenTwiceIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Read(1), 0);
  ASSERT_TRUE(WaitForDoorbells(6));  // it is seen that they are two
  ExpectNoViolation();
  driver_->WriteHead(1, driver_->head(1));
  ExpectSoon("head of completion queue 1: 1, written twice");
}

TEST_F(NvmeModelQueueTest, ATailWrittenTwiceIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  driver_->WriteTail(1, 0);  // which is what it starts with
  ExpectSoon("tail of submission queue 1: 0, written twice");
}

TEST_F(NvmeModelQueueTest, ADoorbellOutOfRangeIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  driver_->WriteTail(1, Driver::kEntries);
  ExpectSoon("tail of submission queue 1: 16, out of range");
}

TEST_F(NvmeModelQueueTest, AHeadBeyondTheEntriesIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  driver_->WriteHead(1, 1);
  ExpectSoon("head of completion queue 1: 1, beyond the entries there are");
}

TEST_F(NvmeModelQueueTest, ADoorbellOfNoQueueIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  driver_->WriteTail(2, 1);
  ExpectSoon("tail of submission queue 2: there is no such queue");
}

TEST_F(NvmeModelQueueTest, ADoorbellOfADisabledControllerIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_TRUE(driver_->Disable());
  driver_->WriteTail(0, 1);
  ExpectSoon("tail of submission queue 0: the controller is disabled");
}

TEST_F(NvmeModelQueueTest, MoreCommandsThanThereIsRoomForAreSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  model().Add({.kind = NvmeModelFault::Kind::kHang, .times = 100});
  for (uint32_t i = 0; i < 10; ++i) driver_->Push(1, Driver::Io(IoOp::kRead, i));
  driver_->Ring(1);
  ASSERT_TRUE(WaitForDoorbells(5));
  // Nothing has told the driver yet that those ten were fetched.
  for (uint32_t i = 0; i < 6; ++i) driver_->Push(1, Driver::Io(IoOp::kRead, i));
  driver_->Ring(1);
  ExpectSoon("more commands than there is room for");
}

TEST_F(NvmeModelQueueTest, AFullCompletionQueueIsSeenAndWaitsForRoom) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (uint32_t i = 0; i < Driver::kEntries - 1; ++i) {
    driver_->Push(1, Driver::Io(IoOp::kRead, i));
  }
  driver_->Ring(1);
  for (uint32_t i = 0; i < Driver::kEntries - 1; ++i) ASSERT_TRUE(driver_->Take(1));
  ExpectNoViolation();
  const uint16_t id = driver_->Push(1, Driver::Io(IoOp::kRead, 0));
  driver_->Ring(1);
  ExpectSoon("completion queue 1 is full");
  EXPECT_FALSE(driver_->Take(1, Driver::kShort));
  driver_->WriteHead(1, driver_->head(1));
  const auto completion = driver_->Wait(1);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->id, id);
}

TEST_F(NvmeModelQueueTest, RoomMadeJustBeforeIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  model().Add({.kind = NvmeModelFault::Kind::kHold});
  for (uint32_t i = 0; i < Driver::kEntries - 1; ++i) {
    driver_->Push(1, Driver::Io(IoOp::kRead, i));
  }
  driver_->Ring(1);
  for (uint32_t i = 0; i < Driver::kEntries - 2; ++i) ASSERT_TRUE(driver_->Take(1));
  driver_->Push(1, Driver::Io(IoOp::kRead, 0));
  driver_->Ring(1);
  ASSERT_TRUE(driver_->Take(1));  // no room is left for the one that is held
  driver_->WriteHead(1, driver_->head(1));
  model().Release();
  ASSERT_TRUE(driver_->Wait(1));
  ExpectNoViolation();
}

TEST_F(NvmeModelQueueTest, AnIdentifierInFlightIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  model().Add({.kind = NvmeModelFault::Kind::kHold});
  driver_->Push(1, Driver::Io(IoOp::kRead, 1), 7);
  driver_->Push(1, Driver::Io(IoOp::kRead, 2), 7);
  driver_->Ring(1);
  const auto completion = driver_->Wait(1);
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, 0x003);
  ExpectViolation("command identifier 7 is in flight");
}

TEST_F(NvmeModelQueueTest, TheReservedIdentifierIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  driver_->Push(1, Driver::Io(IoOp::kRead, 1), 0xffff);
  driver_->Ring(1);
  ASSERT_TRUE(driver_->Wait(1));
  ExpectViolation("command identifier 65535 is reserved");
}

TEST_F(NvmeModelQueueTest, AQueueDeletedWithCommandsInFlightIsSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  model().Add({.kind = NvmeModelFault::Kind::kHang});
  driver_->Push(1, Driver::Io(IoOp::kRead, 1));
  driver_->Ring(1);
  ASSERT_TRUE(WaitForDoorbells(5));
  EXPECT_EQ(driver_->Admin(AdminOp::kDeleteSq, {.cdw10 = 1}).status, nvme::kSuccess);
  ExpectViolation("submission queue 1 is deleted with command");
  EXPECT_EQ(driver_->Wait(1)->status, nvme::kAbortedSqDeletion);
}

TEST_F(NvmeModelQueueTest, ADoorbellBeforeTheDeletionIsNone) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(driver_->Read(1), 0);  // acknowledges at its end
    ASSERT_EQ(driver_->Admin(AdminOp::kDeleteSq, {.cdw10 = 1}).status, nvme::kSuccess);
    ASSERT_EQ(driver_->Admin(AdminOp::kDeleteCq, {.cdw10 = 1}).status, nvme::kSuccess);
    ASSERT_EQ(driver_->CreateQueue(1), nvme::kSuccess);
  }
  ExpectNoViolation();
}

TEST_F(NvmeModelQueueTest, AQueueThatCannotBeReachedIsFatal) {
  ASSERT_NO_FATAL_FAILURE(Start());
  device_->WriteConfig(4, 2, 2);  // no bus master
  driver_->Push(1, Driver::Io(IoOp::kRead, 1));
  driver_->Ring(1);
  EXPECT_TRUE(driver_->WaitForStatus(nvme::kCstsFatal, nvme::kCstsFatal));
  ExpectViolation("without bus mastering: an entry of a submission queue");
}

class NvmeModelShadowTest : public NvmeModelQueueTest {
 protected:
  void SetUp() override {
    config_.shadow_doorbells = true;
    ASSERT_NO_FATAL_FAILURE(Attach());
    ASSERT_TRUE(driver_->Enable());
    ASSERT_EQ(driver_
                  ->Admin(AdminOp::kDoorbellBuffers, {.prp1 = Driver::Iova(Driver::kShadowPage),
                                                      .prp2 = Driver::Iova(Driver::kEventPage)})
                  .status,
              nvme::kSuccess);
    ASSERT_EQ(driver_->CreateQueue(1), nvme::kSuccess);
  }
  uint32_t* Shadow(bool completion) {
    return reinterpret_cast<uint32_t*>(driver_->At(Driver::kShadowPage, completion ? 12 : 8));
  }
  uint32_t TailEvent() {
    return LoadAcquire(reinterpret_cast<uint32_t*>(driver_->At(Driver::kEventPage, 8)));
  }
  void PushRead() {
    driver_->Push(1, Driver::Io(IoOp::kRead, 1));
    StoreRelease(Shadow(false), driver_->tail(1));
  }
  void TakeOne() {
    ASSERT_TRUE(driver_->Take(1));
    StoreRelease(Shadow(true), driver_->head(1));
  }
};

TEST_F(NvmeModelShadowTest, AsleepItWantsTheRegisterAtItsEventIndex) {
  int slept = 0;
  for (int i = 0; i < 30 && slept < 3; ++i) {
    EXPECT_TRUE(SpinUntil([&] { return TailEvent() == driver_->tail(1); }));
    absl::SleepFor(absl::Milliseconds(5));
    PushRead();
    // On its way to sleep it looks once more; a busy machine may keep it there for longer.
    const bool was_seen = driver_->Take(1, Driver::kShort).has_value();
    driver_->Ring(1);
    if (was_seen) {
      StoreRelease(Shadow(true), driver_->head(1));
    } else {
      ASSERT_NO_FATAL_FAILURE(TakeOne());
      ++slept;
    }
  }
  EXPECT_EQ(slept, 3);
  ExpectNoViolation();
}

class NvmeModelAwakeTest : public NvmeModelShadowTest {
 protected:
  NvmeModelAwakeTest() { config_.busy = true; }
};

TEST_F(NvmeModelAwakeTest, AwakeItSeesTheShadowAlone) {
  // Its event index stays 0, so it wants the register at the first entry of each round alone.
  for (uint32_t i = 0; i < 4 * Driver::kEntries; ++i) {
    PushRead();
    if (i % Driver::kEntries == 0) driver_->Ring(1);
    ASSERT_NO_FATAL_FAILURE(TakeOne());
  }
  EXPECT_EQ(TailEvent(), 0);
  EXPECT_GT(model().counters().shadow_checks, 0);
  ExpectNoViolation();
}

TEST_F(NvmeModelShadowTest, ARegisterWrittenTwiceIsSeen) {
  PushRead();
  driver_->Ring(1);
  ASSERT_NO_FATAL_FAILURE(TakeOne());
  ExpectNoViolation();
  driver_->Ring(1);
  ExpectSoon("tail of submission queue 1: 1, written twice");
}

TEST_F(NvmeModelShadowTest, AShadowOutOfRangeIsSeen) {
  StoreRelease(Shadow(false), Driver::kEntries);
  driver_->WriteTail(1, 1);
  ExpectSoon("tail of submission queue 1: 16, out of range");
}

TEST_F(NvmeModelShadowTest, TheBuffersAreWholePagesThatAreMapped) {
  const auto set = [&](uint64_t shadows) {
    return driver_
        ->Admin(AdminOp::kDoorbellBuffers,
                {.prp1 = shadows, .prp2 = Driver::Iova(Driver::kEventPage)})
        .status;
  };
  EXPECT_EQ(set(Driver::Iova(Driver::kShadowPage, 8)), nvme::kInvalidField);
  ExpectNoViolation();
  EXPECT_EQ(set(0x1000), nvme::kDataTransferError);
  ExpectViolation("outside of the mappings: shadow doorbells");
}

TEST_F(NvmeModelQueueTest, ShadowDoorbellsMustBeOffered) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Admin(AdminOp::kDoorbellBuffers).status, nvme::kInvalidOpcode);
}

}  // namespace
}  // namespace ringside::testing
