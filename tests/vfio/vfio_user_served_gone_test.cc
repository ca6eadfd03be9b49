// vfio-user servers that are not there, are not what they should be, go, and come back.
#include <cerrno>

#include "base/status.h"
#include "tests/support/own_threads.h"
#include "tests/vfio/vfio_user_served_fixture.h"
#include "vfio/mmio.h"

namespace ringside {
namespace {

using testing::CountEntries;
using testing::FarEnd;
using ::testing::HasSubstr;
using testing::SharedPages;
using testing::SpinUntil;
using testing::ThreadsComeDownTo;
using testing::VfioUserServedTest;

class VfioUserServedGoneTest : public VfioUserServedTest {};

TEST_F(VfioUserServedGoneTest, ASocketThatIsNotThereIsNamed) {
  const auto device = TryConnect();
  EXPECT_THAT(device.status().ToString(), HasSubstr(path_));
  EXPECT_THAT(device.status().ToString(), HasSubstr("No such file"));
}

TEST_F(VfioUserServedGoneTest, ASocketWhereNobodyListensIsNamed) {
  Serve();
  Kill();
  EXPECT_THAT(TryConnect().status().ToString(), HasSubstr(path_));
}

TEST_F(VfioUserServedGoneTest, AnotherVersionIsRefused) {
  Serve({.major = 1});
  const auto device = TryConnect();
  EXPECT_THAT(device.status().ToString(), HasSubstr(path_));
  EXPECT_THAT(device.status().ToString(), HasSubstr("version"));
}

TEST_F(VfioUserServedGoneTest, AServerThatRefusesAnythingOfTheBeginningIsAnError) {
  for (const auto command : {VfioUserCommand::kVersion, VfioUserCommand::kGetInfo,
                             VfioUserCommand::kGetRegionInfo, VfioUserCommand::kGetIrqInfo}) {
    Serve();
    server_->Refuse(command, EACCES);
    EXPECT_THAT(TryConnect().status().ToString(), HasSubstr("Permission denied"))
        << static_cast<int>(command);
    TearDown();
  }
}

// However far it comes before it dies.
TEST_F(VfioUserServedGoneTest, AServerThatDiesAtTheBeginningIsAnError) {
  uint32_t messages = 0;
  for (; messages < 100; ++messages) {
    Serve();
    server_->DieAfter(messages);
    const auto device = TryConnect();
    TearDown();
    if (device.ok()) break;
    EXPECT_THAT(device.status().ToString(), HasSubstr(path_));
  }
  EXPECT_GT(messages, 3);
  EXPECT_LT(messages, 100);
}

TEST_F(VfioUserServedGoneTest, AServerThatNeverAnswersIsAnError) {
  Serve();
  server_->Pause();
  EXPECT_THAT(TryConnect(absl::Milliseconds(100)).status().ToString(), HasSubstr(path_));
}

TEST_F(VfioUserServedGoneTest, AServerThatAnswersNoMoreIsGone) {
  Serve();
  Connect(absl::Seconds(1));
  EXPECT_FALSE(IsGone());
  server_->Pause();
  EXPECT_EQ(device_->ReadBar(0, 0), 0xffffffff);
  EXPECT_TRUE(WaitUntilGone());
}

TEST_F(VfioUserServedGoneTest, AServerThatEndsIsSeenToAndReadsAsAllOnes) {
  Start();
  const auto mapped = device_->MapBar(0, FarEnd::kMappable, 4096);
  ASSERT_TRUE(mapped.ok());
  EXPECT_FALSE(IsGone());
  Kill();
  EXPECT_TRUE(WaitUntilGone());
  EXPECT_EQ(device_->ReadBar(0, 0), 0xffffffff);
  EXPECT_EQ(device_->ReadConfig(0, 4), 0xffffffff);
  EXPECT_EQ(device_->ReadConfig(0, 2), 0xffff);
  device_->WriteBar(0, 0, 1);
  device_->WriteConfig(4, 2, 0);
  StoreRelease(reinterpret_cast<uint32_t*>(*mapped), 1U);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(end_.bar().host() + FarEnd::kMappable), 0U)
      << "what is stored goes nowhere";
  EXPECT_TRUE(absl::IsUnavailable(device_->Reset())) << device_->Reset();
  EXPECT_TRUE(IsGone());
}

TEST_F(VfioUserServedGoneTest, AServerThatComesBackIsToldEverythingAgain) {
  Start({.max_fds = 3});
  const SharedPages memory(kMiB);
  ASSERT_TRUE(device_->MapDma(memory.At(0x10000)).ok());
  ASSERT_TRUE(device_->MapDma(memory.At(uint64_t{1} << 40)).ok());
  ASSERT_TRUE(SetVectors(10).ok());
  const auto mapped = device_->MapBar(0, FarEnd::kMappable, 8192);
  ASSERT_TRUE(mapped.ok());
  for (int round = 0; round < 3; ++round) {
    Kill();
    ASSERT_TRUE(WaitUntilGone());
    EXPECT_EQ(end_.mappings(), 0);
    Serve({.max_fds = 2});
    EXPECT_EQ(device_->ReadBar(0, 0), 0xffffffff) << "not before a reset";
    ASSERT_TRUE(SpinUntil([&] { return device_->Reset().ok(); }));
    EXPECT_FALSE(IsGone());
    EXPECT_EQ(end_.mappings(), 2);
    EXPECT_NE(end_.Dma(0x10000), nullptr);
    EXPECT_EQ(server_->assigned(), 10);
    EXPECT_TRUE(Arrives(9));
    end_.SetRegister(0x1c, 6);
    EXPECT_EQ(device_->ReadBar(0, 0x1c), 6);
    // The address stays, and what is behind it is the new server's.
    StoreRelease(reinterpret_cast<uint32_t*>(*mapped + 4096), 100U + static_cast<uint32_t>(round));
    EXPECT_EQ(*reinterpret_cast<uint32_t*>(end_.bar().host() + FarEnd::kMappable + 4096),
              100 + round);
  }
  EXPECT_TRUE(device_->UnmapDma(0x10000, kMiB).ok());
  EXPECT_EQ(end_.mappings(), 1);
}

TEST_F(VfioUserServedGoneTest, WhatIsUnmappedMeanwhileIsNotMappedAgain) {
  Start();
  const SharedPages memory(kMiB);
  ASSERT_TRUE(device_->MapDma(memory.At(0)).ok());
  Kill();
  ASSERT_TRUE(WaitUntilGone());
  EXPECT_TRUE(device_->UnmapDma(0, kMiB).ok()) << "nobody can reach it";
  Serve();
  ASSERT_TRUE(SpinUntil([&] { return device_->Reset().ok(); }));
  EXPECT_EQ(end_.mappings(), 0);
}

// Wherever in its coming back it dies once more.
TEST_F(VfioUserServedGoneTest, AServerMayGoAgainBeforeItIsBack) {
  Start();
  const SharedPages memory(kMiB);
  ASSERT_TRUE(device_->MapDma(memory.At(0)).ok());
  ASSERT_TRUE(SetVectors(3).ok());
  uint32_t messages = 0;
  for (bool is_back = false; !is_back; ++messages) {
    ASSERT_LT(messages, 100);
    Kill();
    ASSERT_TRUE(WaitUntilGone());
    Serve();
    server_->DieAfter(messages);
    is_back = device_->Reset().ok();
  }
  EXPECT_GT(messages, 5);
  EXPECT_EQ(end_.mappings(), 1);
  EXPECT_TRUE(Arrives(2));
}

TEST_F(VfioUserServedGoneTest, AnUnmaskThatTheServerTakesAlongIsOver) {
  Start();
  ASSERT_TRUE(SetVectors(2).ok());
  const uint64_t told = server_->received(VfioUserCommand::kSetIrqs);
  device_->MaskVector(1);
  ASSERT_TRUE(SpinUntil([&] { return server_->received(VfioUserCommand::kSetIrqs) > told; }));
  server_->Pause();
  EXPECT_FALSE(device_->UnmaskVector(1));
  Kill();
  ASSERT_TRUE(WaitUntilGone());
  EXPECT_TRUE(SpinUntil([&] { return device_->UnmaskVector(1); })) << "or a thread never sleeps";
}

TEST_F(VfioUserServedGoneTest, NothingIsLeftOpen) {
  const auto round = [this] {
    Start();
    const SharedPages memory(kMiB);
    ASSERT_TRUE(device_->MapDma(memory.At(0)).ok());
    ASSERT_TRUE(SetVectors(kVectors).ok());
    ASSERT_TRUE(device_->MapBar(0, FarEnd::kMappable, 4096).ok());
    Kill();
    ASSERT_TRUE(WaitUntilGone());
    Serve();
    ASSERT_TRUE(SpinUntil([&] { return device_->Reset().ok(); }));
    eventfds_.clear();
    TearDown();
    Serve({.major = 1});
    EXPECT_FALSE(TryConnect().ok());
    TearDown();
  };
  round();
  const size_t before = CountEntries("/proc/self/fd");
  // One that was joined may be listed a moment longer.
  size_t threads = 0;
  for (size_t last = SIZE_MAX; threads != last; absl::SleepFor(absl::Milliseconds(20))) {
    last = std::exchange(threads, CountEntries("/proc/self/task"));
  }
  for (int i = 0; i < 5; ++i) round();
  EXPECT_EQ(CountEntries("/proc/self/fd"), before);
  EXPECT_TRUE(ThreadsComeDownTo(threads));
}

}  // namespace
}  // namespace ringside
