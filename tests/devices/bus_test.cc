#include "devices/bus.h"

#include <atomic>
#include <gtest/gtest.h>
#include <optional>
#include <thread>

#include "tests/support/registers.h"

namespace ringside {
namespace {

using testing::ReadAs;
using testing::WriteAs;

// Reads as 0x11 in every byte and keeps the last access.
class Recorder final : public IoHandler {
 public:
  struct Access {
    uint64_t offset;
    std::vector<std::byte> data;
  };
  void Read(uint64_t offset, std::span<std::byte> data) override {
    std::ranges::fill(data, std::byte{0x11});
    last = {offset, {data.begin(), data.end()}};
  }
  void Write(uint64_t offset, std::span<const std::byte> data) override {
    last = {offset, {data.begin(), data.end()}};
  }
  std::optional<Access> last;
};

TEST(Bus, PassesAnAccessOnWithItsOffset) {
  Bus bus;
  Recorder first, second;
  ASSERT_TRUE(bus.Add(0x3f8, 8, first).ok());
  ASSERT_TRUE(bus.Add(0x400, 8, second).ok());
  EXPECT_EQ(ReadAs<uint8_t>(bus, 0x3fd), 0x11);
  EXPECT_EQ(first.last->offset, 5u);
  EXPECT_EQ(first.last->data.size(), 1u);
  EXPECT_FALSE(second.last.has_value());

  WriteAs<uint32_t>(bus, 0x404, 0x04030201);
  EXPECT_EQ(second.last->offset, 4u);
  EXPECT_EQ(second.last->data,
            (std::vector{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}));
}

TEST(Bus, NeighboursShareAnEdgeAndNoAddress) {
  Bus bus;
  Recorder low, high;
  ASSERT_TRUE(bus.Add(0x1008, 8, high).ok());
  ASSERT_TRUE(bus.Add(0x1000, 8, low).ok());
  ReadAs<uint8_t>(bus, 0x1007);
  EXPECT_EQ(low.last->offset, 7u);
  EXPECT_FALSE(high.last.has_value());
  ReadAs<uint8_t>(bus, 0x1008);
  EXPECT_EQ(high.last->offset, 0u);
}

TEST(Bus, WhatNobodyClaimsReadsAllOnesAndSwallowsWrites) {
  Bus bus;
  EXPECT_EQ(ReadAs<uint32_t>(bus, 0), 0xffffffff);
  Recorder handler;
  ASSERT_TRUE(bus.Add(0x1000, 0x10, handler).ok());
  for (const uint64_t address : {uint64_t{0}, uint64_t{0xfff}, uint64_t{0x1010}, UINT64_MAX - 7}) {
    EXPECT_EQ(ReadAs<uint8_t>(bus, address), 0xff) << address;
    EXPECT_EQ(ReadAs<uint64_t>(bus, address & ~uint64_t{7}), UINT64_MAX) << address;
    WriteAs<uint8_t>(bus, address, 0);
  }
  EXPECT_FALSE(handler.last.has_value());
}

TEST(Bus, AnAccessThatStraddlesAnEdgeIsNobodys) {
  Bus bus;
  Recorder low, high;
  ASSERT_TRUE(bus.Add(0x1000, 8, low).ok());
  ASSERT_TRUE(bus.Add(0x1008, 8, high).ok());
  for (const uint64_t address : {0xffe, 0xfff, 0x1005, 0x1007, 0x100d, 0x100f}) {
    EXPECT_EQ(ReadAs<uint32_t>(bus, address), 0xffffffff) << address;
    WriteAs<uint32_t>(bus, address, 0);
  }
  EXPECT_FALSE(low.last.has_value());
  EXPECT_FALSE(high.last.has_value());
  EXPECT_EQ(ReadAs<uint32_t>(bus, 0x1004), 0x11111111u);
  EXPECT_EQ(ReadAs<uint64_t>(bus, 0x1008), 0x1111111111111111u);
}

TEST(Bus, RefusesRangesThatOverlapAreEmptyOrWrap) {
  const struct {
    uint64_t base, size;
    bool fits;
  } kTable[] = {
      {0x1000, 0x100, false},                // the same
      {0x1010, 0x10, false},                 // inside
      {0x0f00, 0x1000, false},               // around
      {0x0f00, 0x101, false},                // over its start
      {0x10ff, 1, false},                    // its last byte
      {0x10ff, 0x100, false},                // over its end
      {0x1000, 1, false},                    // its first byte
      {0x0f00, UINT64_MAX, false},           // around, and wraps
      {0x0f00, 0x100, true},                 // just below
      {0x1100, 0x100, true},                 // just above
      {0, 0x1000, true},                     // all below
      {0x1100, UINT64_MAX - 0x10ff, true},   // all above, to the last address
      {0x1100, UINT64_MAX - 0x10fe, false},  // wraps by one
      {0x2000, 0, false},                    // empty
      {0, 0, false},
      {0, UINT64_MAX, false},
      {UINT64_MAX, 1, true},
      {UINT64_MAX, 2, false},
  };
  for (const auto& row : kTable) {
    Bus bus;
    Recorder there, added;
    ASSERT_TRUE(bus.Add(0x1000, 0x100, there).ok());
    const absl::Status status = bus.Add(row.base, row.size, added);
    EXPECT_EQ(status.code(), row.fits ? absl::StatusCode::kOk : absl::StatusCode::kAlreadyExists)
        << std::hex << row.base << " of " << row.size << ": " << status;
    // A refused range leaves no trace.
    ReadAs<uint8_t>(bus, 0x1000);
    EXPECT_TRUE(there.last.has_value());
    ReadAs<uint8_t>(bus, row.base);
    EXPECT_EQ(added.last.has_value(), row.fits) << std::hex << row.base;
  }
}

TEST(Bus, WorksUpToTheTopOfTheAddressSpace) {
  Bus bus;
  Recorder top;
  ASSERT_TRUE(bus.Add(UINT64_MAX - 0xf, 0x10, top).ok());
  EXPECT_EQ(ReadAs<uint8_t>(bus, UINT64_MAX), 0x11);
  EXPECT_EQ(top.last->offset, 0xfu);
  EXPECT_EQ(ReadAs<uint64_t>(bus, UINT64_MAX - 7), 0x1111111111111111u);
  top.last.reset();
  EXPECT_EQ(ReadAs<uint64_t>(bus, UINT64_MAX - 3), UINT64_MAX);  // would wrap to address 3
  EXPECT_EQ(ReadAs<uint8_t>(bus, 0), 0xff);
  EXPECT_FALSE(top.last.has_value());

  Bus all;  // but for address 0
  Recorder everything;
  ASSERT_TRUE(all.Add(1, UINT64_MAX, everything).ok());
  EXPECT_EQ(ReadAs<uint64_t>(all, UINT64_MAX - 3), UINT64_MAX);
  EXPECT_FALSE(everything.last.has_value());
}

TEST(Bus, ARemovedRangeIsFreeAgain) {
  Bus bus;
  Recorder first, second;
  ASSERT_TRUE(bus.Add(0x1000, 0x100, first).ok());
  bus.Remove(0x1010);  // within, not the base
  bus.Remove(0x0fff);
  EXPECT_EQ(ReadAs<uint8_t>(bus, 0x1010), 0x11);
  first.last.reset();

  bus.Remove(0x1000);
  EXPECT_EQ(ReadAs<uint8_t>(bus, 0x1000), 0xff);
  EXPECT_FALSE(first.last.has_value());
  ASSERT_TRUE(bus.Add(0x10f0, 0x100, second).ok());
  EXPECT_EQ(ReadAs<uint8_t>(bus, 0x10f8), 0x11);
  EXPECT_EQ(second.last->offset, 8u);
}

// As the PCI host does when a write to configuration space, itself on the bus, moves a BAR.
TEST(Bus, AHandlerMayMoveRanges) {
  class Mover final : public IoHandler {
   public:
    Mover(Bus& bus, IoHandler& moved) : bus_(bus), moved_(moved) {}
    void Read(uint64_t, std::span<std::byte>) override {}
    void Write(uint64_t, std::span<const std::byte>) override {
      bus_.Remove(0x2000);
      bus_.Remove(0x1000);  // its own
      EXPECT_TRUE(bus_.Add(0x3000, 0x10, moved_).ok());
    }

   private:
    Bus& bus_;
    IoHandler& moved_;
  };
  Bus bus;
  Recorder moved;
  Mover mover(bus, moved);
  ASSERT_TRUE(bus.Add(0x1000, 0x10, mover).ok());
  ASSERT_TRUE(bus.Add(0x2000, 0x10, moved).ok());
  WriteAs<uint8_t>(bus, 0x1000, 0);
  EXPECT_EQ(ReadAs<uint8_t>(bus, 0x2000), 0xff);
  EXPECT_EQ(ReadAs<uint8_t>(bus, 0x3004), 0x11);
  EXPECT_EQ(moved.last->offset, 4u);
}

// For ThreadSanitizer: one range stays while its neighbours come and go.
TEST(Bus, RangesComeAndGoWhileOthersAreUsed) {
  class Constant final : public IoHandler {
   public:
    void Read(uint64_t, std::span<std::byte> data) override {
      std::ranges::fill(data, std::byte{0x22});
    }
    void Write(uint64_t, std::span<const std::byte>) override {}
  };
  Bus bus;
  Constant stays, moves;
  ASSERT_TRUE(bus.Add(0x1000, 0x100, stays).ok());
  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        if (ReadAs<uint32_t>(bus, 0x1080) != 0x22222222) ++wrong;
        const auto moving = ReadAs<uint32_t>(bus, 0x1180);
        if (moving != 0x22222222 && moving != 0xffffffff) ++wrong;
        WriteAs<uint32_t>(bus, 0x0f80, 0);
      }
    });
  }
  for (int i = 0; i < 20000; ++i) {
    EXPECT_TRUE(bus.Add(0x0f00, 0x100, moves).ok());
    EXPECT_TRUE(bus.Add(0x1100, 0x100, moves).ok());
    EXPECT_FALSE(bus.Add(0x10ff, 2, moves).ok());
    bus.Remove(0x0f00);
    bus.Remove(0x1100);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace ringside
