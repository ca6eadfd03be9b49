#include "devices/pci_host.h"

#include <gtest/gtest.h>

#include "tests/support/devices/pci_model.h"
#include "tests/support/registers.h"

namespace ringside {
namespace {

using testing::ReadAs;
using testing::WriteAs;

constexpr uint64_t kAddress = 0;  // 0xcf8
constexpr uint64_t kData = 4;     // 0xcfc
constexpr uint32_t kEnable = 0x80000000;
constexpr uint32_t kBridgeId = 0x00081b36;

constexpr uint32_t ConfigAddress(int bus, int device, int function, int reg) {
  return kEnable | static_cast<uint32_t>(bus << 16 | device << 11 | function << 8 | (reg & 0xfc));
}
constexpr uint64_t EcamOffset(int device, int function, int reg) {
  return static_cast<uint64_t>(device << 15 | function << 12 | reg);
}

class PciHostTest : public ::testing::Test {
 protected:
  uint32_t ReadPorts(uint32_t address) {
    WriteAs<uint32_t>(ports_, kAddress, address);
    return ReadAs<uint32_t>(ports_, kData);
  }

  Bus memory_;
  PciHost host_{memory_, testing::kWindow, testing::kWindowSize};
  IoHandler& ports_ = host_.ports();
  IoHandler& ecam_ = host_.ecam();
};

TEST_F(PciHostTest, TheBridgeAnswersThroughBothMechanisms) {
  EXPECT_EQ(ReadPorts(ConfigAddress(0, 0, 0, 0)), kBridgeId);
  EXPECT_EQ(ReadAs<uint32_t>(ecam_, 0), kBridgeId);
}

TEST_F(PciHostTest, BothMechanismsShowTheSameRegisters) {
  for (int reg = 0; reg < 256; reg += 4) {
    EXPECT_EQ(ReadPorts(ConfigAddress(0, 0, 0, reg)),
              ReadAs<uint32_t>(ecam_, EcamOffset(0, 0, reg)))
        << "register " << reg;
  }
}

// Linux's pci_sanity_check accepts configuration space by the class or vendor of what it finds.
TEST_F(PciHostTest, TheBridgeIsAHostBridgeOfOneFunction) {
  EXPECT_EQ(ReadAs<uint16_t>(ecam_, 0x0a), 0x0600);
  EXPECT_EQ(ReadAs<uint8_t>(ecam_, 0x0e), 0x00);
}

TEST_F(PciHostTest, TheRestOfItsConfigurationSpaceReadsZero) {
  for (uint64_t reg = 0x40; reg < 0x1000; reg += 8) {
    ASSERT_EQ(ReadAs<uint64_t>(ecam_, reg), 0u) << "register " << reg;
  }
}

TEST_F(PciHostTest, AbsentFunctionsReadAllOnes) {
  for (int device = 0; device < 32; ++device) {
    for (int function = 0; function < 8; ++function) {
      if (device == 0 && function == 0) continue;
      ASSERT_EQ(ReadPorts(ConfigAddress(0, device, function, 0)), 0xffffffff)
          << device << "." << function;
      ASSERT_EQ(ReadAs<uint32_t>(ecam_, EcamOffset(device, function, 0)), 0xffffffff)
          << device << "." << function;
      ASSERT_EQ(ReadAs<uint8_t>(ecam_, EcamOffset(device, function, 0xfff)), 0xff);
    }
  }
  for (int bus = 1; bus < 256; ++bus) {
    ASSERT_EQ(ReadPorts(ConfigAddress(bus, 0, 0, 0)), 0xffffffff) << "bus " << bus;
  }
}

TEST_F(PciHostTest, NarrowAccessesSelectTheirByteLanes) {
  WriteAs<uint32_t>(ports_, kAddress, ConfigAddress(0, 0, 0, 0));
  const uint8_t bytes[] = {0x36, 0x1b, 0x08, 0x00};
  for (uint64_t lane = 0; lane < 4; ++lane) {
    EXPECT_EQ(ReadAs<uint8_t>(ports_, kData + lane), bytes[lane]) << "lane " << lane;
    EXPECT_EQ(ReadAs<uint8_t>(ecam_, lane), bytes[lane]) << "lane " << lane;
  }
  EXPECT_EQ(ReadAs<uint16_t>(ports_, kData), 0x1b36);
  EXPECT_EQ(ReadAs<uint16_t>(ports_, kData + 2), 0x0008);
  EXPECT_EQ(ReadAs<uint16_t>(ecam_, 2), 0x0008);
  WriteAs<uint32_t>(ports_, kAddress, ConfigAddress(0, 0, 0, 0x08));
  EXPECT_EQ(ReadAs<uint8_t>(ports_, kData + 3), 0x06);
}

TEST_F(PciHostTest, TheAddressLatchReadsBack) {
  WriteAs<uint32_t>(ports_, kAddress, ConfigAddress(1, 2, 3, 0x44));
  EXPECT_EQ(ReadAs<uint32_t>(ports_, kAddress), ConfigAddress(1, 2, 3, 0x44));
  EXPECT_EQ(ReadAs<uint16_t>(ports_, kAddress + 2), 0x8001);
  EXPECT_EQ(ReadAs<uint8_t>(ports_, kAddress), 0x44);
}

// PCI 3.0 section 3.2.2.3.2.
TEST_F(PciHostTest, ReservedBitsOfTheAddressReadZero) {
  WriteAs<uint32_t>(ports_, kAddress, 0xffffffff);
  EXPECT_EQ(ReadAs<uint32_t>(ports_, kAddress), 0x80fffffcu);
  EXPECT_EQ(ReadPorts(ConfigAddress(0, 0, 0, 0) | 0x7f000003), kBridgeId);
}

TEST_F(PciHostTest, OnlyA32BitWriteReachesTheAddressLatch) {
  const uint32_t address = ConfigAddress(0, 0, 0, 0x08);
  WriteAs<uint32_t>(ports_, kAddress, address);
  for (uint64_t offset = 0; offset < 8; ++offset) {
    WriteAs<uint8_t>(ports_, offset, 0x01);
    if (offset < 7) WriteAs<uint16_t>(ports_, offset, 0x0101);
  }
  for (uint64_t offset = 1; offset <= kData; ++offset) {
    WriteAs<uint32_t>(ports_, offset, 0x01010101);
  }
  WriteAs<uint64_t>(ports_, kAddress, 0x0101010101010101);
  EXPECT_EQ(ReadAs<uint32_t>(ports_, kAddress), address);
}

TEST_F(PciHostTest, WithoutTheEnableBitNothingAnswers) {
  EXPECT_EQ(ReadAs<uint32_t>(ports_, kData), 0xffffffff);  // as after reset
  EXPECT_EQ(ReadPorts(ConfigAddress(0, 0, 0, 0) & ~kEnable), 0xffffffff);
}

TEST_F(PciHostTest, WritesChangeNothingOfTheBridge) {
  for (int reg = 0; reg < 64; reg += 4) {
    WriteAs<uint32_t>(ports_, kAddress, ConfigAddress(0, 0, 0, reg));
    const uint32_t before = ReadAs<uint32_t>(ports_, kData);
    for (const uint32_t value : {0xffffffffu, 0u}) {
      WriteAs<uint32_t>(ports_, kData, value);
      WriteAs<uint32_t>(ecam_, EcamOffset(0, 0, reg), value);
      EXPECT_EQ(ReadAs<uint32_t>(ports_, kData), before) << "register " << reg;
    }
  }
}

// The guest chooses size and place; what no register answers is never read beyond the table.
TEST_F(PciHostTest, AccessesAcrossBordersStayWithin) {
  WriteAs<uint32_t>(ports_, kAddress, ConfigAddress(0, 0, 0, 0));
  EXPECT_EQ(ReadAs<uint32_t>(ports_, 2), 0xffff8000u);  // upper half of the latch, then nothing
  WriteAs<uint32_t>(ports_, kAddress, ConfigAddress(0, 0, 0, 0xfc));
  EXPECT_EQ(ReadAs<uint32_t>(ports_, kData), 0u);
  EXPECT_EQ(ReadAs<uint64_t>(ecam_, 0x3c), 0u);
  EXPECT_EQ(ReadAs<uint64_t>(ecam_, PciHost::kEcamSize - 8), UINT64_MAX);
}

// A function to write to: 00:01.0.
class PciHostFunctionTest : public PciHostTest {
 protected:
  static constexpr uint32_t kIds = 0x10421af4;

  void SetUp() override {
    ASSERT_TRUE(host_.Add(function_).ok());
    WriteAs<uint32_t>(ports_, kAddress, ConfigAddress(0, 1, 0, function_.capability + 4));
  }
  uint32_t Writable() {
    return ReadAs<uint32_t>(ecam_, EcamOffset(1, 0, static_cast<int>(function_.capability + 4)));
  }

  testing::TaggedFunction function_{0x1042, {4096, 0, 0, 0, 0, 0}, 1};
};

TEST_F(PciHostFunctionTest, AnswersThroughBothMechanisms) {
  EXPECT_EQ(ReadPorts(ConfigAddress(0, 1, 0, 0)), kIds);
  EXPECT_EQ(ReadAs<uint32_t>(ecam_, EcamOffset(1, 0, 0)), kIds);
  EXPECT_EQ(ReadPorts(ConfigAddress(1, 1, 0, 0)), 0xffffffff);
  for (int other = 1; other < 8; ++other) {
    EXPECT_EQ(ReadPorts(ConfigAddress(0, 1, other, 0)), 0xffffffff);
    EXPECT_EQ(ReadAs<uint32_t>(ecam_, EcamOffset(1, other, 0)), 0xffffffff);
  }
  EXPECT_EQ(ReadAs<uint32_t>(ecam_, EcamOffset(1, 0, 0x100)), 0u);  // no extended capabilities
}

TEST_F(PciHostTest, AFunctionHasItsHomeOrTheNextThatIsFree) {
  std::vector<std::unique_ptr<testing::TaggedFunction>> functions;
  const auto add = [&](uint32_t home) {
    functions.push_back(
        std::make_unique<testing::TaggedFunction>(static_cast<uint16_t>(0x1040 + functions.size()),
                                                  std::array<uint64_t, 6>{4096, 0, 0, 0, 0, 0}, 1));
    return host_.Add(*functions.back(), home);
  };
  const auto at = [&](int device) {
    return ReadAs<uint32_t>(ecam_, EcamOffset(device, 0, 0)) >> 16;
  };
  for (const uint32_t home : {31, 5, 5, 31}) ASSERT_TRUE(add(home).ok());
  EXPECT_EQ(at(31), 0x1040u);
  EXPECT_EQ(at(5), 0x1041u);
  EXPECT_EQ(at(6), 0x1042u);
  EXPECT_EQ(at(1), 0x1043u) << "around the end, behind the bridge";
  EXPECT_EQ(at(2), 0xffffu);
  for (int i = 4; i < 31; ++i) ASSERT_TRUE(add(20).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(add(20)));
}

TEST_F(PciHostFunctionTest, PortWritesSelectTheirByteLanes) {
  WriteAs<uint32_t>(ports_, kData, 0x44332211);
  EXPECT_EQ(Writable(), 0x44332211u);
  WriteAs<uint8_t>(ports_, kData + 1, 0xaa);
  EXPECT_EQ(Writable(), 0x4433aa11u);
  WriteAs<uint16_t>(ports_, kData + 2, 0xbbcc);
  EXPECT_EQ(Writable(), 0xbbccaa11u);
  EXPECT_EQ(ReadAs<uint16_t>(ports_, kData + 1), 0xccaa);
}

TEST_F(PciHostFunctionTest, EcamWritesTakeAnySizeAndAlignment) {
  const uint64_t at = EcamOffset(1, 0, static_cast<int>(function_.capability + 4));
  WriteAs<uint32_t>(ecam_, at, 0x44332211);
  WriteAs<uint8_t>(ecam_, at + 3, 0xaa);
  WriteAs<uint16_t>(ecam_, at + 1, 0xbbcc);
  EXPECT_EQ(Writable(), 0xaabbcc11u);
}

TEST_F(PciHostFunctionTest, WritesToTheAddressPortOrWithoutTheEnableBitReachNobody) {
  WriteAs<uint32_t>(ports_, kData, 0x44332211);
  WriteAs<uint16_t>(ports_, 2, 0xffff);
  WriteAs<uint32_t>(ports_, 2, 0xffffffff);
  WriteAs<uint64_t>(ports_, kAddress, UINT64_MAX);
  EXPECT_EQ(Writable(), 0x44332211u);
  const auto address = ConfigAddress(0, 1, 0, static_cast<int>(function_.capability + 4));
  for (const uint32_t nobody : {address & ~kEnable, address | 1 << 16, address | 1 << 8}) {
    WriteAs<uint32_t>(ports_, kAddress, nobody);
    WriteAs<uint32_t>(ports_, kData, 0xffffffff);
    EXPECT_EQ(Writable(), 0x44332211u) << nobody;
  }
  WriteAs<uint32_t>(ecam_, EcamOffset(1, 1, static_cast<int>(function_.capability + 4)), 0);
  WriteAs<uint32_t>(ecam_, EcamOffset(2, 0, static_cast<int>(function_.capability + 4)), 0);
  EXPECT_EQ(Writable(), 0x44332211u);
}

}  // namespace
}  // namespace ringside
