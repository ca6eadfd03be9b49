#include "devices/power.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "devices/panic_port.h"
#include "tests/support/registers.h"

namespace ringside {
namespace {

using testing::ReadAs;
using testing::WriteAs;

class PowerOff : public ::testing::Test {
 protected:
  int count_ = 0;
  SleepRegisters registers_{[this] { ++count_; }};
};

// ACPI 6.5 table 4.22: SLP_TYP in bits 4:2, SLP_EN in bit 5.
TEST_F(PowerOff, NeedsSleepTypeS5AndSleepEnable) {
  for (int value = 0; value < 256; ++value) {
    const int before = count_;
    WriteAs<uint8_t>(registers_, 0, static_cast<uint8_t>(value));
    const bool asked = (value & 0x20) != 0 && ((value >> 2) & 7) == SleepRegisters::kSleepTypeS5;
    EXPECT_EQ(count_ - before, asked ? 1 : 0) << "value " << value;
  }
  EXPECT_EQ(count_, 16);
}

TEST_F(PowerOff, HappensOnlyThroughTheControlRegister) {
  WriteAs<uint8_t>(registers_, 1, 0x34);
  WriteAs<uint16_t>(registers_, 0, 0x3400);
  EXPECT_EQ(count_, 0);
  WriteAs<uint16_t>(registers_, 0, 0xff34);
  EXPECT_EQ(count_, 1);
}

TEST_F(PowerOff, NeverClaimsToHaveWoken) {
  WriteAs<uint8_t>(registers_, 0, 0x34);
  EXPECT_EQ(ReadAs<uint16_t>(registers_, 0), 0);
  EXPECT_EQ(ReadAs<uint8_t>(registers_, 1), 0);
}

class Reset : public ::testing::Test {
 protected:
  int count_ = 0;
  ResetPort port_{[this] { ++count_; }};
};

TEST_F(Reset, HappensOnTheResetCommandAlone) {
  for (int value = 0; value < 256; ++value) {
    const int before = count_;
    WriteAs<uint8_t>(port_, 0, static_cast<uint8_t>(value));
    EXPECT_EQ(count_ - before, value == 0xfe ? 1 : 0) << "command " << value;
  }
  EXPECT_EQ(count_, 1);
}

// A driver waits for an empty input buffer before it writes the command.
TEST_F(Reset, TheControllerIsAlwaysReadyForACommand) {
  EXPECT_EQ(ReadAs<uint8_t>(port_, 0), 0);
}

// QEMU, docs/specs/pvpanic.rst: bit 0 is a panic, bit 1 one that a crash kernel takes over.
TEST(Panic, IsToldOfItsTwoBitsAlone) {
  std::vector<bool> told;
  PanicPort port([&](bool crash_loaded) { told.push_back(crash_loaded); });
  EXPECT_EQ(ReadAs<uint8_t>(port, 0), 0x03);
  for (const uint8_t other : {0x00, 0x04, 0xfc}) WriteAs<uint8_t>(port, 0, other);
  EXPECT_TRUE(told.empty());
  for (const uint8_t value : {0x01, 0x02, 0x03}) WriteAs<uint8_t>(port, 0, value);
  EXPECT_THAT(told, ::testing::ElementsAre(false, true, true));
}

}  // namespace
}  // namespace ringside
