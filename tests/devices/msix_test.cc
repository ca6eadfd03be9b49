#include "devices/msix.h"

#include <gtest/gtest.h>

#include "tests/support/devices/fake_pci_platform.h"
#include "tests/support/registers.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::FakePciPlatform;
using testing::ReadAs;
using testing::WriteAs;

constexpr uint64_t kAddress = 0xfee01000;

class MsixTest : public ::testing::Test {
 protected:
  void SetUp() override { Make(3); }
  void Make(uint16_t vectors) {
    msix_.reset();
    platform_.vectors.clear();
    absl::StatusOr<std::unique_ptr<Msix>> msix = Msix::Create(vectors, platform_);
    ASSERT_TRUE(msix.ok()) << msix.status();
    msix_ = *std::move(msix);
  }
  IoHandler& table() { return msix_->table(); }
  IoHandler& pending() { return msix_->pending_bits(); }
  FakePciPlatform::Vector& vector(size_t index) { return *platform_.vectors[index]; }

  void SetMessage(uint64_t index, uint64_t address, uint32_t data) {
    WriteAs<uint32_t>(table(), index * 16, static_cast<uint32_t>(address));
    WriteAs<uint32_t>(table(), index * 16 + 4, static_cast<uint32_t>(address >> 32));
    WriteAs<uint32_t>(table(), index * 16 + 8, data);
  }
  void SetMasked(uint64_t index, bool masked) {
    WriteAs<uint32_t>(table(), index * 16 + 12, masked ? 1 : 0);
  }

  FakePciPlatform platform_;
  std::unique_ptr<Msix> msix_;
};

TEST_F(MsixTest, EveryVectorStartsMasked) {
  msix_->SetControl(true, false);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadAs<uint64_t>(table(), i * 16), 0u);
    EXPECT_EQ(ReadAs<uint64_t>(table(), i * 16 + 8), uint64_t{1} << 32);
    EXPECT_EQ(vector(i).unmasks, 0);
  }
}

TEST_F(MsixTest, TakesFrom1To256Vectors) {
  EXPECT_THAT(Msix::Create(0, platform_).status(), IsBadInput("MSI-X", "1 to 256"));
  EXPECT_THAT(Msix::Create(257, platform_).status(), IsBadInput("MSI-X", "1 to 256"));
  Make(256);
  EXPECT_EQ(msix_->size(), 256);
  EXPECT_NE(msix_->event(255), nullptr);
  EXPECT_EQ(msix_->event(256), nullptr);
  EXPECT_EQ(msix_->event(0xffff), nullptr);
  msix_.reset();
  platform_.vectors.clear();
  platform_.vectors_there_are = 1;
  EXPECT_TRUE(absl::IsResourceExhausted(Msix::Create(2, platform_).status()));
}

TEST_F(MsixTest, DeliversOnlyWhatNothingMasks) {
  SetMessage(1, kAddress, 0x41);
  for (int state = 0; state < 8; ++state) {
    const bool enabled = (state & 1) != 0;
    const bool function_masked = (state & 2) != 0;
    const bool masked = (state & 4) != 0;
    // From the one state that delivers and from one that does not, in both orders of writing.
    for (const bool from_delivering : {false, true}) {
      for (const bool control_first : {false, true}) {
        msix_->SetControl(true, false);
        SetMasked(1, !from_delivering);
        ASSERT_EQ(vector(1).unmasked, from_delivering);
        if (control_first) msix_->SetControl(enabled, function_masked);
        SetMasked(1, masked);
        msix_->SetControl(enabled, function_masked);
        EXPECT_EQ(vector(1).unmasked, enabled && !function_masked && !masked) << state;
      }
    }
  }
  EXPECT_EQ(vector(0).unmasks + vector(2).unmasks, 0);
  EXPECT_EQ(vector(1).address, kAddress);
  EXPECT_EQ(vector(1).data, 0x41u);
}

// Linux writes messages while MSI-X is off, and restores them with the entries unmasked.
TEST_F(MsixTest, MessagesWrittenBeforeItDeliversCountWhenItDoes) {
  SetMasked(0, false);
  SetMessage(0, 0x1'fee02000, 0x31);
  EXPECT_EQ(vector(0).unmasks, 0);
  msix_->SetControl(true, false);
  EXPECT_EQ(vector(0).unmasks, 1);
  EXPECT_EQ(vector(0).address, 0x1'fee02000u);
  EXPECT_EQ(vector(0).data, 0x31u);

  SetMasked(0, true);
  SetMessage(0, kAddress, 0x32);
  EXPECT_EQ(vector(0).unmasks, 1);
  SetMasked(0, false);
  EXPECT_EQ(vector(0).address, kAddress);
  EXPECT_EQ(vector(0).data, 0x32u);

  msix_->SetControl(true, true);
  SetMessage(0, kAddress, 0x33);
  EXPECT_EQ(vector(0).unmasks, 2);
  msix_->SetControl(true, false);
  EXPECT_EQ(vector(0).data, 0x33u);
}

TEST_F(MsixTest, ANewMessageOfADeliveringVectorIsExchangedAtOnce) {
  msix_->SetControl(true, false);
  SetMessage(2, kAddress, 0x41);
  SetMasked(2, false);
  WriteAs<uint32_t>(table(), 2 * 16 + 8, 0x42);
  EXPECT_EQ(vector(2).data, 0x42u);
  EXPECT_TRUE(vector(2).unmasked);
  EXPECT_EQ(vector(2).masks, 0);
  // Both halves of an address in one go, with nothing to half of it.
  const int before = vector(2).unmasks;
  WriteAs<uint64_t>(table(), 2 * 16, 0x1'fee03000);
  EXPECT_EQ(vector(2).unmasks, before + 1);
  EXPECT_EQ(vector(2).address, 0x1'fee03000u);
}

TEST_F(MsixTest, WritesThatChangeNothingCostNothing) {
  msix_->SetControl(true, false);
  SetMessage(2, kAddress, 0x41);
  SetMasked(2, false);
  SetMessage(2, kAddress, 0x41);
  SetMasked(2, false);
  msix_->SetControl(true, false);
  EXPECT_EQ(vector(2).unmasks, 1);
  SetMasked(2, true);
  SetMasked(2, true);
  msix_->SetControl(false, false);
  EXPECT_EQ(vector(2).masks, 1);
}

TEST_F(MsixTest, DataAndMaskMayComeInOneWrite) {
  msix_->SetControl(true, false);
  WriteAs<uint64_t>(table(), 0, kAddress);
  WriteAs<uint64_t>(table(), 8, 0x51);
  EXPECT_EQ(vector(0).unmasks, 1);
  EXPECT_EQ(vector(0).data, 0x51u);
  WriteAs<uint64_t>(table(), 8, uint64_t{1} << 32 | 0x52);
  EXPECT_EQ(vector(0).unmasks, 1);  // the new data never went out
  EXPECT_FALSE(vector(0).unmasked);
}

TEST_F(MsixTest, ReservedBitsReadZero) {
  WriteAs<uint32_t>(table(), 0, 0xffffffff);
  WriteAs<uint32_t>(table(), 12, 0xfffffffe);
  EXPECT_EQ(ReadAs<uint32_t>(table(), 0), 0xfffffffcu);
  EXPECT_EQ(ReadAs<uint32_t>(table(), 12), 0u);
}

// PCI 3.0 section 6.8.2: whole aligned words; all else is undefined, and here does nothing.
TEST_F(MsixTest, OnlyAlignedWordsAreAnswered) {
  SetMessage(0, 0x2'fee01000, 0x11223344);
  for (uint64_t offset = 0; offset < 16; ++offset) {
    EXPECT_EQ(ReadAs<uint8_t>(table(), offset), 0) << offset;
    EXPECT_EQ(ReadAs<uint16_t>(table(), offset), 0) << offset;
    WriteAs<uint8_t>(table(), offset, 0xff);
    WriteAs<uint16_t>(table(), offset, 0xffff);
    if (offset % 4 != 0) {
      EXPECT_EQ(ReadAs<uint32_t>(table(), offset), 0u) << offset;
      WriteAs<uint32_t>(table(), offset, 0xffffffff);
    }
    if (offset % 8 != 0) {
      EXPECT_EQ(ReadAs<uint64_t>(table(), offset), 0u) << offset;
      WriteAs<uint64_t>(table(), offset, UINT64_MAX);
    }
  }
  EXPECT_EQ(ReadAs<uint64_t>(table(), 0), 0x2'fee01000u);
  EXPECT_EQ(ReadAs<uint64_t>(table(), 8), 0x1'11223344u);
}

TEST_F(MsixTest, BeyondTheLastVectorThereIsNothing) {
  msix_->SetControl(true, false);
  for (uint64_t offset = 3 * 16; offset < Msix::kPageSize; offset += 8) {
    WriteAs<uint64_t>(table(), offset, 0);
    ASSERT_EQ(ReadAs<uint64_t>(table(), offset), 0u) << offset;
  }
  for (uint64_t offset = 0; offset < Msix::kPageSize; offset += 4) {
    for (const FakePciPlatform::Vector* each : platform_.vectors) each->event().Signal();
    WriteAs<uint32_t>(pending(), offset, 0);
    ASSERT_EQ(ReadAs<uint32_t>(pending(), offset), offset == 0 ? 7u : 0u) << offset;
  }
  for (const FakePciPlatform::Vector* each : platform_.vectors) EXPECT_EQ(each->unmasks, 0);
}

TEST_F(MsixTest, WhatIsSignalledWhileMaskedIsPending) {
  msix_->SetControl(true, false);
  SetMasked(1, false);
  msix_->event(0)->Signal();
  msix_->event(1)->Signal();  // on its way: not pending, though nobody has taken it
  EXPECT_EQ(ReadAs<uint64_t>(pending(), 0), 1u);
  msix_->SetControl(true, true);
  EXPECT_EQ(ReadAs<uint64_t>(pending(), 0), 3u);
  EXPECT_EQ(ReadAs<uint64_t>(pending(), 0), 3u);  // looking takes nothing
  EXPECT_EQ(msix_->event(0)->Clear(), 1u);
  EXPECT_EQ(ReadAs<uint32_t>(pending(), 0), 2u);
  EXPECT_EQ(ReadAs<uint8_t>(pending(), 0), 0);
  EXPECT_EQ(ReadAs<uint32_t>(pending(), 2), 0u);
}

TEST_F(MsixTest, PendingBitsGoOnInTheNextWord) {
  Make(100);
  for (const uint16_t i : {31, 32, 63, 64, 99}) msix_->event(i)->Signal();
  EXPECT_EQ(ReadAs<uint64_t>(pending(), 0), uint64_t{1} << 63 | uint64_t{3} << 31);
  EXPECT_EQ(ReadAs<uint64_t>(pending(), 8), uint64_t{1} << 35 | 1);
  EXPECT_EQ(ReadAs<uint32_t>(pending(), 4), 0x80000001u);
  EXPECT_EQ(ReadAs<uint32_t>(pending(), 12), 8u);
  EXPECT_EQ(ReadAs<uint32_t>(pending(), 16), 0u);
}

}  // namespace
}  // namespace ringside
