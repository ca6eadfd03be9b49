// A PCI device in another process's hands: what a client does arrives, and nothing else.
#include <cerrno>
#include <cstring>

#include "base/status.h"
#include "tests/vfio/vfio_user_served_fixture.h"
#include "vfio/mmio.h"

namespace ringside {
namespace {

using testing::FarEnd;
using ::testing::HasSubstr;
using testing::SharedPages;
using testing::SpinUntil;
using testing::VfioUserServedTest;

TEST_F(VfioUserServedTest, ConfigurationSpaceIsReadAndWrittenInItsSizes) {
  Start();
  device_->WriteConfig(4, 2, 0x406);
  EXPECT_EQ(end_.config(4), 0x406);
  EXPECT_EQ(device_->ReadConfig(4, 2), 0x406);
  device_->WriteConfig(0x60, 4, 0x12345678);
  EXPECT_EQ(end_.config(0x60), 0x12345678);
  EXPECT_EQ(device_->ReadConfig(0x60, 4), 0x12345678);
  EXPECT_EQ(device_->ReadConfig(0x60, 1), 0x78);
  device_->WriteConfig(0x63, 1, 0x9a);
  EXPECT_EQ(end_.config(0x63), 0x9a);
}

TEST_F(VfioUserServedTest, RegistersAreReadAndWritten) {
  Start();
  end_.SetRegister(8, 0x10400);
  EXPECT_EQ(device_->ReadBar(0, 8), 0x10400);
  device_->WriteBar(0, 0x14, 0x460001);
  EXPECT_EQ(end_.reg(0x14), 0x460001);
}

TEST_F(VfioUserServedTest, WhatTheServerOffersAsMemoryIsMemory) {
  Start();
  const uint64_t before = server_->received(VfioUserCommand::kRegionWrite);
  const auto mapped = device_->MapBar(0, FarEnd::kMappable + 0x1008, 8);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  StoreRelease(reinterpret_cast<uint32_t*>(*mapped), 77U);
  EXPECT_EQ(LoadAcquire(reinterpret_cast<uint32_t*>(end_.bar().host() + 0x2008)), 77);
  EXPECT_EQ(server_->received(VfioUserCommand::kRegionWrite), before);
}

TEST_F(VfioUserServedTest, WhatItDoesNotOfferIsNone) {
  Start();
  EXPECT_FALSE(device_->MapBar(0, 0, 4096).ok());
  EXPECT_FALSE(device_->MapBar(0, FarEnd::kBarSize - 4096, 8192).ok());
  EXPECT_FALSE(device_->MapBar(1, FarEnd::kMappable, 4096).ok());
}

TEST_F(VfioUserServedTest, AServerMayOfferNoMemory) {
  Start({.mappable = false});
  EXPECT_FALSE(device_->MapBar(0, FarEnd::kMappable, 4096).ok());
  device_->WriteBar(0, FarEnd::kMappable, 5);
  EXPECT_EQ(end_.reg(FarEnd::kMappable), 5);
}

TEST_F(VfioUserServedTest, TheDeviceReachesMemoryWhileItIsMapped) {
  Start();
  const SharedPages memory(kMiB);
  std::memset(memory.host() + 0x4000, 0x5a, 16);
  DmaMapping part = memory.At(uint64_t{1} << 33);
  part.host += 0x4000;
  part.size = 0x8000;
  part.fd_offset = 0x4000;
  ASSERT_TRUE(device_->MapDma(part).ok());
  std::byte* const far = end_.Dma(part.iova);
  ASSERT_NE(far, nullptr);
  EXPECT_EQ(far[0], std::byte{0x5a});
  EXPECT_NE(far, part.host) << "a mapping of its own";
  far[0x7fff] = std::byte{0x33};
  EXPECT_EQ(memory.host()[0xbfff], std::byte{0x33});
  EXPECT_TRUE(device_->UnmapDma(part.iova, part.size).ok());
  EXPECT_EQ(end_.mappings(), 0);
  EXPECT_EQ(server_->mappings(), 0);
}

TEST_F(VfioUserServedTest, MemoryWithoutADescriptorIsRefusedHere) {
  Start();
  const SharedPages memory(kMiB);
  DmaMapping mapping = memory.At(0);
  mapping.fd = -1;
  EXPECT_FALSE(device_->MapDma(mapping).ok());
  EXPECT_EQ(server_->received(VfioUserCommand::kDmaMap), 0);
}

TEST_F(VfioUserServedTest, ARefusedMappingIsAnErrorAndIsForgotten) {
  Start();
  const SharedPages memory(kMiB);
  server_->Refuse(VfioUserCommand::kDmaMap, ENOMEM);
  const absl::Status status = device_->MapDma(memory.At(0));
  EXPECT_THAT(status.ToString(), HasSubstr("Cannot allocate memory"));
  server_->Refuse(VfioUserCommand::kDmaMap, 0);
  EXPECT_TRUE(device_->MapDma(memory.At(0)).ok());
  EXPECT_TRUE(device_->UnmapDma(0, kMiB).ok());
}

TEST_F(VfioUserServedTest, EveryVectorFindsItsEventfdInMessagesOfFewDescriptors) {
  for (const uint32_t max_fds : {1, 3, 16, 200}) {
    SCOPED_TRACE(max_fds);
    Start({.max_fds = max_fds});
    EXPECT_EQ(device_->vectors(), kVectors);
    ASSERT_TRUE(SetVectors(kVectors).ok());
    for (uint32_t i = 0; i < kVectors; ++i) EXPECT_TRUE(Arrives(i)) << i;
    TearDown();
  }
}

TEST_F(VfioUserServedTest, VectorsAreReplacedAsAWhole) {
  Start();
  ASSERT_TRUE(SetVectors(kVectors).ok());
  ASSERT_TRUE(SetVectors(3).ok());
  EXPECT_EQ(server_->assigned(), 3);
  EXPECT_TRUE(Arrives(2));
  EXPECT_FALSE(end_.Raise(3));
  const EventFd last = EventFd::Create().value();
  ASSERT_TRUE(device_->SetVectors(std::vector<int>{-1, -1, last.fd()}).ok());
  EXPECT_EQ(server_->assigned(), 1);
  EXPECT_TRUE(end_.Raise(2));
  EXPECT_EQ(last.Clear(), 1);
  ASSERT_TRUE(device_->SetVectors({}).ok());
  EXPECT_EQ(server_->assigned(), 0);
}

TEST_F(VfioUserServedTest, MoreVectorsThanThereAreAreRefusedHere) {
  Start();
  EXPECT_THAT(SetVectors(kVectors + 1).ToString(), HasSubstr("40 MSI-X vectors"));
}

// Whether one vector of several is masked, or the only one, which a server may be told otherwise.
class VfioUserServedMaskTest : public VfioUserServedTest,
                               public ::testing::WithParamInterface<bool> {
 protected:
  void Start() {
    VfioUserServedTest::Start({.msix_control = GetParam()});
    ASSERT_TRUE(SetVectors(4).ok());
  }
  // In time; a masked vector need not be silent at once.
  bool IsSilent(uint32_t vector) {
    return SpinUntil([&] { return !Arrives(vector); });
  }
  bool Unmask(uint32_t vector) {
    return SpinUntil([&] { return device_->UnmaskVector(vector); });
  }
};

TEST_P(VfioUserServedMaskTest, AVectorIsUnmaskedOnceTheServerSaysSo) {
  Start();
  device_->MaskVector(2);
  EXPECT_TRUE(IsSilent(2));
  EXPECT_TRUE(Arrives(1));
  server_->Pause();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(device_->UnmaskVector(2));
  server_->Resume();
  EXPECT_TRUE(Unmask(2));
  EXPECT_TRUE(Arrives(2));
}

TEST_P(VfioUserServedMaskTest, AllVectorsCanBeMasked) {
  Start();
  for (uint32_t i = 0; i < 4; ++i) device_->MaskVector(i);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(IsSilent(i));
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(Unmask(i));
    EXPECT_TRUE(Arrives(i)) << i;
    EXPECT_TRUE(i == 3 || IsSilent(i + 1));
  }
}

TEST_P(VfioUserServedMaskTest, MasksThatChangeQuicklyEndAsTheLastSays) {
  Start();
  for (uint32_t i = 0; i < 1000; ++i) {
    device_->MaskVector(i % 4);
    if (i % 3 != 0) continue;
    ASSERT_TRUE(Unmask(i % 4));
    ASSERT_TRUE(Arrives(i % 4)) << i;
  }
  for (uint32_t i = 0; i < 4; ++i) device_->MaskVector(i);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(IsSilent(i));
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutMsixControl, VfioUserServedMaskTest, ::testing::Bool());

TEST_F(VfioUserServedTest, AResetKeepsMappingsAndVectors) {
  Start();
  const SharedPages memory(kMiB);
  ASSERT_TRUE(device_->MapDma(memory.At(0)).ok());
  ASSERT_TRUE(SetVectors(2).ok());
  const int before = end_.resets();
  EXPECT_TRUE(device_->Reset().ok());
  EXPECT_EQ(end_.resets(), before + 1);
  EXPECT_NE(end_.Dma(0), nullptr);
  EXPECT_TRUE(Arrives(1));
}

TEST_F(VfioUserServedTest, ADeviceWithoutAResetSaysSo) {
  Start({.resets = false});
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->Reset())) << device_->Reset();
}

TEST_F(VfioUserServedTest, WhatTheServerRefusesIsAnErrorAndTheConnectionGoesOn) {
  Start();
  server_->Refuse(VfioUserCommand::kReset, EBUSY);
  EXPECT_THAT(device_->Reset().ToString(), HasSubstr("Device or resource busy"));
  server_->Refuse(VfioUserCommand::kRegionRead, EIO);
  EXPECT_EQ(device_->ReadBar(0, 0), 0xffffffff);
  server_->Refuse(VfioUserCommand::kSetIrqs, ENOSPC);
  EXPECT_FALSE(SetVectors(1).ok());
  for (const auto command :
       {VfioUserCommand::kReset, VfioUserCommand::kRegionRead, VfioUserCommand::kSetIrqs}) {
    server_->Refuse(command, 0);
  }
  EXPECT_TRUE(device_->Reset().ok());
  EXPECT_EQ(device_->ReadBar(0, 0), 0);
  EXPECT_TRUE(SetVectors(1).ok());
  EXPECT_FALSE(IsGone());
}

TEST_F(VfioUserServedTest, WhatTheServerAsksByItselfIsAnswered) {
  Start();
  server_->SetTalkative(true);
  for (uint32_t i = 0; i < 100; ++i) {
    device_->WriteBar(0, 0x20, i);
    ASSERT_EQ(device_->ReadBar(0, 0x20), i);
  }
}

TEST_F(VfioUserServedTest, ManyThreadsTalkAtOnce) {
  Start();
  ASSERT_TRUE(SetVectors(kVectors).ok());
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      const SharedPages memory(4096);
      for (uint32_t turn = 0; turn < 100; ++turn) {
        device_->WriteBar(0, 0x40 + 4 * i, turn);
        EXPECT_EQ(device_->ReadBar(0, 0x40 + 4 * i), turn);
        EXPECT_TRUE(device_->MapDma(memory.At(i * kMiB)).ok());
        device_->MaskVector(i);
        EXPECT_TRUE(SpinUntil([&] { return device_->UnmaskVector(i); }));
        EXPECT_TRUE(device_->UnmapDma(i * kMiB, 4096).ok());
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

}  // namespace
}  // namespace ringside
