// Where the PCI host puts BARs as the guest turns them on and moves them.
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>

#include "base/status.h"
#include "tests/support/devices/pci_model.h"

namespace ringside {
namespace {

using testing::kWindow;
using testing::kWindowSize;
using testing::PciModel;
using testing::ReadAs;
using testing::TaggedFunction;
using testing::WriteAs;

constexpr uint32_t kCommand = 0x04;
constexpr uint16_t kMemorySpace = 2;

constexpr uint32_t Bar(int index) {
  return static_cast<uint32_t>(0x10 + 4 * index);
}

class PciBarTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(model_.added); }
  template <typename T>
  T Read(uint32_t device, uint32_t offset) {
    return ReadAs<T>(model_.host.ecam(), device << 15 | offset);
  }
  template <typename T>
  void Write(uint32_t device, uint32_t offset, T value) {
    WriteAs<T>(model_.host.ecam(), device << 15 | offset, value);
    EXPECT_EQ(model_.Broken(), "");
  }
  int ReadMemory(uint64_t address) { return ReadAs<uint8_t>(model_.memory, address); }
  void TurnOn(uint32_t device) { Write<uint16_t>(device, kCommand, kMemorySpace); }

  PciModel model_;
};

TEST_F(PciBarTest, FunctionsAreDevicesInTheOrderTheyCame) {
  EXPECT_EQ(Read<uint32_t>(1, 0), 0x10421af4u);
  EXPECT_EQ(Read<uint32_t>(2, 0), 0x10441af4u);
  EXPECT_EQ(Read<uint32_t>(3, 0), 0x10411af4u);
  EXPECT_EQ(Read<uint32_t>(4, 0), 0xffffffffu);
  for (uint32_t function = 1; function < 8; ++function) {
    EXPECT_EQ(ReadAs<uint32_t>(model_.host.ecam(), 1 << 15 | function << 12), 0xffffffffu);
  }
}

TEST_F(PciBarTest, AddressesAreThereFromTheStartAndDecodingIsOff) {
  uint64_t end = kWindow;
  for (uint32_t device = 1; device <= 3; ++device) {
    EXPECT_EQ(Read<uint16_t>(device, kCommand), 0);
    const TaggedFunction& function = *model_.functions[device - 1];
    for (int i = 0; i < 6; ++i) {
      const uint64_t size = function.bar(i).size;
      const uint64_t address = Read<uint32_t>(device, Bar(i));
      if (size == 0) {
        EXPECT_EQ(address, 0u);
        continue;
      }
      EXPECT_GE(address, end);
      EXPECT_EQ(address % size, 0u);
      EXPECT_EQ(ReadMemory(address), 0xff);
      end = address + size;
    }
  }
  EXPECT_LE(end, kWindow + kWindowSize);
  EXPECT_EQ(model_.Broken(), "");
}

TEST_F(PciBarTest, DecodingFollowsTheCommandRegister) {
  const uint64_t bar0 = Read<uint32_t>(1, Bar(0));
  const uint64_t bar4 = Read<uint32_t>(1, Bar(4));
  TurnOn(1);
  EXPECT_EQ(ReadMemory(bar0), model_.small.tag(0));
  EXPECT_EQ(ReadMemory(bar4 + 8191), model_.small.tag(4));
  EXPECT_EQ(model_.small.mapped.size(), 2u);
  EXPECT_TRUE(model_.large.mapped.empty());
  Write<uint8_t>(1, kCommand, 0);
  EXPECT_EQ(ReadMemory(bar0), 0xff);
  EXPECT_TRUE(model_.small.mapped.empty());
}

TEST_F(PciBarTest, AMovedBarLeavesNothingBehind) {
  TurnOn(1);
  const uint64_t before = Read<uint32_t>(1, Bar(0));
  const uint64_t after = kWindow + 0x1000000;
  Write<uint32_t>(1, Bar(0), static_cast<uint32_t>(after));
  EXPECT_EQ(ReadMemory(before), 0xff);
  EXPECT_EQ(ReadMemory(after), model_.small.tag(0));
  EXPECT_EQ(model_.small.mapped[0], after);
}

// As a guest sizes a BAR that decodes: Linux turns decoding off first, others do not.
TEST_F(PciBarTest, SizingWhileDecodingTakesItAwayAndBack) {
  TurnOn(1);
  const auto before = Read<uint32_t>(1, Bar(0));
  Write<uint32_t>(1, Bar(0), 0xffffffff);
  EXPECT_EQ(Read<uint32_t>(1, Bar(0)), 0xfffff000u);
  EXPECT_FALSE(model_.small.mapped.contains(0));
  EXPECT_EQ(ReadMemory(0xfffff000), 0xff);
  Write<uint32_t>(1, Bar(0), before);
  EXPECT_EQ(ReadMemory(before), model_.small.tag(0));
}

TEST_F(PciBarTest, AByteAtATimeMovesItByteByByte) {
  TurnOn(1);
  Write<uint32_t>(1, Bar(0), static_cast<uint32_t>(kWindow + 0x10000000));
  Write<uint8_t>(1, Bar(0) + 2, 0x12);
  EXPECT_EQ(ReadMemory(kWindow + 0x10120000), model_.small.tag(0));
  Write<uint16_t>(1, Bar(0) + 2, 0xd034);
  EXPECT_EQ(ReadMemory(0xd0340000), model_.small.tag(0));
}

TEST_F(PciBarTest, OutsideTheWindowNothingIsDecoded) {
  TaggedFunction& huge = model_.huge;
  TurnOn(3);
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{0x8000000}, kWindow - 0x8000000, kWindow + kWindowSize,
        uint64_t{0xe8000000}, uint64_t{0xf8000000}}) {
    Write<uint32_t>(3, Bar(2), static_cast<uint32_t>(address));
    EXPECT_FALSE(huge.mapped.contains(2)) << address;
    EXPECT_EQ(ReadMemory(address), 0xff) << address;
  }
  for (const uint64_t address : {kWindow + 0x8000000, kWindow + kWindowSize - 0x8000000}) {
    Write<uint32_t>(3, Bar(2), static_cast<uint32_t>(address));
    EXPECT_EQ(huge.mapped[2], address);
  }
}

TEST_F(PciBarTest, OfTwoThatOverlapTheFirstStaysAndTheOtherWaits) {
  TurnOn(1);
  TurnOn(2);
  const uint64_t place = model_.large.mapped[0];
  Write<uint32_t>(1, Bar(0), static_cast<uint32_t>(place + 0x1000));
  EXPECT_FALSE(model_.small.mapped.contains(0));
  EXPECT_EQ(ReadMemory(place + 0x1000), model_.large.tag(0));
  // Any change of the other frees the place.
  Write<uint32_t>(2, Bar(0), static_cast<uint32_t>(kWindow + 0x18000000));
  EXPECT_EQ(model_.small.mapped[0], place + 0x1000);
  Write<uint32_t>(2, Bar(0), static_cast<uint32_t>(place));
  EXPECT_FALSE(model_.large.mapped.contains(0));
  Write<uint16_t>(1, kCommand, 0);
  EXPECT_EQ(model_.large.mapped[0], place);
}

TEST_F(PciBarTest, ABarTakesThePlaceThatItsSiblingLeavesInTheSameWrite) {
  TurnOn(2);
  const uint64_t first = 0xd0000000, second = 0xd1000000;
  // Eight bytes: both BARs at once.
  Write<uint64_t>(2, Bar(0), second << 32 | first);
  EXPECT_EQ(model_.large.mapped[0], first);
  Write<uint64_t>(2, Bar(0), first << 32 | second);
  EXPECT_EQ(model_.large.mapped[0], second);
  EXPECT_EQ(model_.large.mapped[1], first);
}

// The host puts BARs on a bus that may hold other things.
TEST_F(PciBarTest, WhatIsOnTheBusAlreadyStays) {
  testing::TaggedRegisters fixed(99);
  ASSERT_TRUE(model_.memory.Add(0xd8000000, 0x1000, fixed).ok());
  TurnOn(1);
  WriteAs<uint32_t>(model_.host.ecam(), 1 << 15 | Bar(0), 0xd8000000);
  EXPECT_EQ(ReadMemory(0xd8000000), 99);
  EXPECT_FALSE(model_.small.mapped.contains(0));
}

TEST_F(PciBarTest, ThereAre31Devices) {
  std::vector<std::unique_ptr<TaggedFunction>> more;
  for (int i = 3; i < 32; ++i) {
    more.push_back(std::make_unique<TaggedFunction>(
        0x1000 + i, std::array<uint64_t, 6>{4096, 0, 0, 0, 0, 0}, 30));
    const absl::Status status = model_.host.Add(*more.back());
    EXPECT_EQ(status.code(), i < 31 ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(Read<uint32_t>(31, 0), 0x101e1af4u);
}

TEST_F(PciBarTest, AFullWindowTakesNoMore) {
  TaggedFunction fits(0x1050, {0x4000000, 0, 0, 0, 0, 0}, 30);
  TaggedFunction too_large(0x1051, {0x8000000, 4096, 0, 0, 0, 0}, 40);
  TaggedFunction last(0x1052, {4096, 0, 0, 0, 0, 0}, 50);
  ASSERT_TRUE(model_.host.Add(fits).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(model_.host.Add(too_large)));
  EXPECT_TRUE(model_.host.Add(last).ok());
  EXPECT_EQ(Read<uint32_t>(5, 0), 0x10521af4u);
  EXPECT_EQ(Read<uint32_t>(6, 0), 0xffffffffu);
}

// Random bytes to all of configuration space, through both mechanisms, in all sizes and alignments;
// every other write goes to a register that matters, or chance would seldom turn anything on.
TEST_F(PciBarTest, WhateverIsWrittenThePromisesHold) {
  std::mt19937_64 random(20240607);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  IoHandler& ecam = model_.host.ecam();
  IoHandler& ports = model_.host.ports();
  size_t most_mapped = 0, waiting = 0;
  for (int i = 0; i < 30000; ++i) {
    const auto device = static_cast<uint32_t>(below(5));
    uint64_t offset = below(256);
    uint64_t value = random();
    switch (below(6)) {
      case 0:
        offset = kCommand;
        value |= below(8) == 0 ? 0 : kMemorySpace;
        break;
      case 1:
      case 2:
        offset = Bar(static_cast<int>(below(6)));
        value = kWindow + below(16) * 0x2000000 + below(4) * 0x1000;
        break;
      default:
        break;
    }
    const uint64_t size = below(4) == 0 ? 1 + below(8) : 4;
    const auto data = std::as_bytes(std::span(&value, 1)).first(size);
    if (below(2) == 0) {
      ecam.Write(std::min<uint64_t>(device << 15 | offset, PciHost::kEcamSize - size), data);
    } else {
      WriteAs<uint32_t>(ports, 0, 0x80000000 | device << 11 | static_cast<uint32_t>(offset & 0xfc));
      ports.Write(4 + offset % 4, data.first(std::min<uint64_t>(size, 4 - offset % 4)));
    }
    ASSERT_EQ(model_.Broken(), "") << "after write " << i << " of " << size << " bytes to device "
                                   << device << " at " << offset;
    size_t mapped = 0;
    for (const TaggedFunction* function : model_.functions) mapped += function->mapped.size();
    most_mapped = std::max(most_mapped, mapped);
    waiting += mapped < 7;
  }
  EXPECT_EQ(most_mapped, 7u);  // the walk has been everywhere
  EXPECT_GT(waiting, 1000u);
}

// For ThreadSanitizer, and against deadlock: configuration, BAR and bus accesses at once.
TEST_F(PciBarTest, VcpusMoveAndUseBarsAtTheSameTime) {
  std::vector<std::thread> vcpus;
  for (uint32_t device = 1; device <= 3; ++device) {
    vcpus.emplace_back([&, device] {
      std::mt19937_64 random(device);
      for (int i = 0; i < 5000; ++i) {
        const auto base = static_cast<uint32_t>(kWindow + random() % 8 * 0x1000000);
        IoHandler& ecam = model_.host.ecam();
        WriteAs<uint32_t>(ecam, device << 15 | Bar(static_cast<int>(random() % 6)), base);
        WriteAs<uint16_t>(ecam, device << 15 | kCommand, i % 4 == 0 ? 0 : kMemorySpace);
        ReadAs<uint32_t>(model_.memory, base);
        WriteAs<uint32_t>(model_.host.ports(), 0, 0x80000000 | device << 11);
        ReadAs<uint32_t>(model_.host.ports(), 4);
      }
    });
  }
  for (std::thread& vcpu : vcpus) vcpu.join();
  EXPECT_EQ(model_.Broken(), "");
}

}  // namespace
}  // namespace ringside
