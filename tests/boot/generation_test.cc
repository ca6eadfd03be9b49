// What tells a guest that it is a copy, as the two specifications lay it out.
#include "boot/generation.h"

#include <cstring>
#include <gtest/gtest.h>

#include "kvm/memory_layout.h"
#include "tests/support/devices/guest_memory.h"

namespace ringside {
namespace {

class GenerationTest : public ::testing::Test {
 protected:
  template <typename T>
  T Clock(uint64_t offset) const {
    return Peek<T>(*memory_, kVmClock + offset);
  }
  std::vector<uint8_t> Id() const { return PeekBytes(*memory_, kGenerationId, 16); }
  uint64_t Generation() const { return Clock<uint64_t>(104); }

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(kMinMemory);
};

TEST_F(GenerationTest, IsThereFromTheStart) {
  ASSERT_TRUE(WriteGeneration(*memory_).ok());
  EXPECT_EQ(Clock<uint32_t>(0), 0x4b4c4356u) << "magic";
  EXPECT_EQ(Clock<uint32_t>(4), 4096u) << "size";
  EXPECT_EQ(Clock<uint16_t>(8), 1) << "version";
  EXPECT_EQ(Clock<uint8_t>(10), 0xff) << "no counter: it tells no time";
  EXPECT_EQ(Clock<uint32_t>(12), 0u) << "not being changed";
  EXPECT_EQ(Clock<uint64_t>(24), 0x300u) << "has a generation, and notifies";
  EXPECT_NE(Id(), std::vector<uint8_t>(16));
  EXPECT_EQ(kGenerationId % 8, 0u);
}

TEST_F(GenerationTest, IsAnotherInEachCopy) {
  ASSERT_TRUE(WriteGeneration(*memory_).ok());
  const auto id = Id();
  ASSERT_TRUE(RenewGeneration(*memory_).ok());
  const auto copy = Id();
  EXPECT_NE(copy, id);
  EXPECT_EQ(Generation(), 1u);
  EXPECT_EQ(Clock<uint64_t>(16), 1u) << "disruption marker";
  EXPECT_EQ(Clock<uint32_t>(12), 2u) << "sequence";
  ASSERT_TRUE(RenewGeneration(*memory_).ok());
  EXPECT_NE(Id(), copy);
  EXPECT_EQ(Generation(), 2u);
}

// A guest may write to its own memory whatever it likes.
TEST_F(GenerationTest, NobodyWaitsForAnEvenSequenceForEver) {
  std::memset(memory_->At(kVmClock, 4096), 0xff, 4096);
  ASSERT_TRUE(RenewGeneration(*memory_).ok());
  EXPECT_EQ(Clock<uint32_t>(12), 0u);
  EXPECT_EQ(Generation(), 0u);
}

}  // namespace
}  // namespace ringside
