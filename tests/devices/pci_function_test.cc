#include "devices/pci_function.h"

#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "tests/support/devices/pci_model.h"

namespace ringside {
namespace {

using testing::TaggedRegisters;

constexpr uint32_t kCommand = 0x04;
constexpr uint32_t kStatus = 0x06;
constexpr uint32_t kBar0 = 0x10;

// With all that PciFunction offers to derived classes.
class Function final : public PciFunction {
 public:
  Function()
      : PciFunction({.vendor = 0x1af4,
                     .device = 0x1042,
                     .subsystem_vendor = 0x1234,
                     .subsystem = 0x5678,
                     .class_code = 0x018001,
                     .revision = 3}) {}
  using PciFunction::AddBar;
  using PciFunction::AddCapability;
  using PciFunction::Get;
  using PciFunction::Put;

  template <typename T>
  T Read(uint32_t offset) {
    T value;
    ReadConfig(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <typename T>
  void Write(uint32_t offset, T value) {
    WriteConfig(offset, std::as_bytes(std::span(&value, 1)));
  }

  std::vector<std::pair<uint32_t, size_t>> reads, writes;

 private:
  void BeforeConfigRead(uint32_t offset, size_t size) override { reads.push_back({offset, size}); }
  void AfterConfigWrite(uint32_t offset, size_t size) override { writes.push_back({offset, size}); }
};

class PciFunctionTest : public ::testing::Test {
 protected:
  Function function_;
  TaggedRegisters registers_{0x11};
};

TEST_F(PciFunctionTest, ShowsItsIdentity) {
  EXPECT_EQ(function_.Read<uint16_t>(0x00), 0x1af4);
  EXPECT_EQ(function_.Read<uint16_t>(0x02), 0x1042);
  EXPECT_EQ(function_.Read<uint8_t>(0x08), 3);
  EXPECT_EQ(function_.Read<uint8_t>(0x09), 0x01);  // programming interface
  EXPECT_EQ(function_.Read<uint8_t>(0x0a), 0x80);  // subclass
  EXPECT_EQ(function_.Read<uint8_t>(0x0b), 0x01);  // class
  EXPECT_EQ(function_.Read<uint8_t>(0x0e), 0);     // header type 0, one function
  EXPECT_EQ(function_.Read<uint16_t>(0x2c), 0x1234);
  EXPECT_EQ(function_.Read<uint16_t>(0x2e), 0x5678);
  EXPECT_EQ(function_.Read<uint8_t>(0x3d), 0);  // no interrupt pin
}

TEST_F(PciFunctionTest, WithoutBarsItIsReadOnly) {
  for (uint32_t offset = 0; offset < 256; offset += 4) {
    const auto before = function_.Read<uint32_t>(offset);
    function_.Write<uint32_t>(offset, 0xffffffff);
    EXPECT_EQ(function_.Read<uint32_t>(offset), before) << offset;
    function_.Write<uint32_t>(offset, 0);
    EXPECT_EQ(function_.Read<uint32_t>(offset), before) << offset;
  }
}

// PCI 3.0 section 6.2.2: what a device does not have is hardwired to 0.
TEST_F(PciFunctionTest, OnlyBitsWithAMeaningAreWritable) {
  function_.AddBar(0, 4096, registers_);
  function_.Write<uint16_t>(kCommand, 0xffff);
  EXPECT_EQ(function_.Read<uint16_t>(kCommand), 0x0406);
  function_.Write<uint16_t>(kStatus, 0xffff);
  EXPECT_EQ(function_.Read<uint16_t>(kStatus), 0);
  function_.Write<uint16_t>(0x3c, 0xffff);
  EXPECT_EQ(function_.Read<uint16_t>(0x3c), 0x00ff);
  for (const uint32_t offset : {0x00, 0x08, 0x0c, 0x14, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x38, 0x40}) {
    const auto before = function_.Read<uint32_t>(offset);
    function_.Write<uint32_t>(offset, ~before);
    EXPECT_EQ(function_.Read<uint32_t>(offset), before) << offset;
  }
}

// PCI 3.0 section 6.2.5.1.
TEST_F(PciFunctionTest, AllOnesSizeABar) {
  for (uint64_t size = 4096; size <= 1u << 31; size *= 2) {
    Function function;
    function.AddBar(0, size, registers_);
    function.Write<uint32_t>(kBar0, 0xffffffff);
    EXPECT_EQ(~function.Read<uint32_t>(kBar0) + 1, size);
    EXPECT_EQ(function.Read<uint32_t>(kBar0) & 0xf, 0u);  // 32-bit memory, not prefetchable
    EXPECT_EQ(function.Read<uint32_t>(kBar0 + 4), 0u);
  }
}

TEST_F(PciFunctionTest, BarsAreWrittenInAnyPieces) {
  function_.AddBar(1, 4096, registers_);
  const uint32_t bar1 = kBar0 + 4;
  function_.Write<uint16_t>(bar1 + 2, 0xc123);
  function_.Write<uint16_t>(bar1, 0x4fff);
  EXPECT_EQ(function_.Read<uint32_t>(bar1), 0xc1234000u);
  function_.Write<uint8_t>(bar1 + 3, 0xd0);
  function_.Write<uint8_t>(bar1 + 1, 0x5f);
  function_.Write<uint8_t>(bar1, 0xff);
  EXPECT_EQ(function_.Read<uint32_t>(bar1), 0xd0235000u);
  function_.Write<uint32_t>(bar1 + 2, 0xffffc777);  // reaches into the next one, which is none
  EXPECT_EQ(function_.Read<uint64_t>(bar1), 0xc7775000u);
}

TEST_F(PciFunctionTest, ABarHasItsAddressWhileMemoryDecodingIsOn) {
  function_.AddBar(2, 8192, registers_);
  function_.AssignBar(2, 0xc0002000);
  EXPECT_EQ(function_.Read<uint32_t>(kBar0 + 8), 0xc0002000u);
  EXPECT_EQ(function_.BarAddress(2), 0u);
  function_.Write<uint8_t>(kCommand, 2);
  EXPECT_EQ(function_.BarAddress(2), 0xc0002000u);
  EXPECT_EQ(function_.BarAddress(1), 0u);
  function_.Write<uint32_t>(kBar0 + 8, 0xffffffff);
  EXPECT_EQ(function_.BarAddress(2), 0xffffe000u);
  function_.Write<uint32_t>(kBar0 + 8, 0);
  EXPECT_EQ(function_.BarAddress(2), 0u);
  function_.Write<uint32_t>(kBar0 + 8, 0xc0004000);
  function_.Write<uint8_t>(kCommand, 4);
  EXPECT_EQ(function_.BarAddress(2), 0u);
}

TEST_F(PciFunctionTest, CapabilitiesFormAChain) {
  EXPECT_EQ(function_.Read<uint8_t>(0x34), 0);
  EXPECT_EQ(function_.Read<uint16_t>(kStatus) & 0x10, 0);
  const std::byte body[] = {std::byte{0xaa}, std::byte{0xbb}, std::byte{0xcc}};
  const std::byte writable[] = {std::byte{0}, std::byte{0x0f}};
  EXPECT_EQ(function_.AddCapability(0x09, body, writable), 0x40u);
  EXPECT_EQ(function_.AddCapability(0x11, std::span(body, 2)), 0x48u);  // dword aligned
  EXPECT_EQ(function_.AddCapability(0x10, {}), 0x4cu);

  EXPECT_EQ(function_.Read<uint16_t>(kStatus), 0x10);
  EXPECT_EQ(function_.Read<uint8_t>(0x34), 0x40);
  EXPECT_EQ(function_.Read<uint16_t>(0x40), 0x4809);
  EXPECT_EQ(function_.Read<uint16_t>(0x48), 0x4c11);
  EXPECT_EQ(function_.Read<uint16_t>(0x4c), 0x0010);
  EXPECT_EQ(function_.Read<uint32_t>(0x42), 0x00ccbbaau);
  function_.Write<uint64_t>(0x40, UINT64_MAX);
  function_.Write<uint64_t>(0x48, UINT64_MAX);
  EXPECT_EQ(function_.Read<uint64_t>(0x40), 0x000000ccbfaa4809u);
  EXPECT_EQ(function_.Read<uint64_t>(0x48), 0x00000010bbaa4c11u);
}

TEST_F(PciFunctionTest, DerivedClassesAreToldOfAccessesWithinConfigurationSpace) {
  function_.Read<uint32_t>(0x41);
  function_.Write<uint16_t>(0x43, 0);
  EXPECT_EQ(function_.reads, (std::vector<std::pair<uint32_t, size_t>>{{0x41, 4}}));
  EXPECT_EQ(function_.writes, (std::vector<std::pair<uint32_t, size_t>>{{0x43, 2}}));
  function_.Put<uint8_t>(0xff, 0x77);
  EXPECT_EQ(function_.Get<uint8_t>(0xff), 0x77);
  EXPECT_EQ(function_.Read<uint64_t>(0xff), 0x77u);
  EXPECT_EQ(function_.reads.back(), (std::pair<uint32_t, size_t>{0xff, 1}));
  function_.Write<uint64_t>(0xfe, UINT64_MAX);
  EXPECT_EQ(function_.writes.back(), (std::pair<uint32_t, size_t>{0xfe, 2}));

  function_.reads.clear();
  function_.writes.clear();
  for (const uint32_t beyond : {0x100u, 0xffcu, 0xffffffffu}) {
    EXPECT_EQ(function_.Read<uint64_t>(beyond), 0u);
    function_.Write<uint64_t>(beyond, UINT64_MAX);
  }
  EXPECT_TRUE(function_.reads.empty());
  EXPECT_TRUE(function_.writes.empty());
}

}  // namespace
}  // namespace ringside
