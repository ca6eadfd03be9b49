#include "vfio/dma_limits.h"

#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/status.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = 1 << 20;
constexpr char kDevice[] = "0000:00:04.0";
const DmaMapping kMapping{.host = nullptr, .size = 16 * kMiB, .iova = 0x1000000};

std::string Text(int error, const LockedMemory& memory, std::string_view entries = "65535") {
  return std::string(Message(MapDmaError(error, kDevice, kMapping, memory, entries)));
}

TEST(ParseLockedMemory, ReadsWhatIsLockedAndTheCapability) {
  const LockedMemory memory = ParseLockedMemory(
      "Name:\tringside\nVmLck:\t    1024 kB\nCapEff:\t0000000000004000\n", 8 * kMiB);
  EXPECT_EQ(memory.limit, 8 * kMiB);
  EXPECT_EQ(memory.locked, kMiB);
  EXPECT_TRUE(memory.exempt);
  EXPECT_FALSE(ParseLockedMemory("CapEff:\tffffffffffffbfff\n", 0).exempt);
  EXPECT_EQ(ParseLockedMemory("VmLck:\tmuch\nCapEff", 0).locked, 0);
}

TEST(ReadLockedMemory, IsThatOfThisProcess) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  EXPECT_EQ(ReadLockedMemory().limit, limit.rlim_cur);
}

TEST(MapDmaError, TooLittleLockedMemorySaysHowMuchToRaiseItTo) {
  const std::string text = Text(ENOMEM, {.limit = 8 * kMiB, .locked = kMiB, .exempt = false});
  EXPECT_THAT(text, HasSubstr("cannot let PCI device '0000:00:04.0' reach 16M of memory"));
  EXPECT_THAT(text, HasSubstr("is 8M, of which 1M are in use"));
  EXPECT_THAT(text, HasSubstr("raise it to 17M"));
  EXPECT_THAT(text, HasSubstr("'ulimit -l 17408'"));
  EXPECT_THAT(text, HasSubstr("LimitMEMLOCK=17408K"));
}

TEST(MapDmaError, TheLimitIsNotBlamedWhereItDoesNotBind) {
  const LockedMemory exempt{.limit = 8 * kMiB, .locked = 0, .exempt = true};
  EXPECT_THAT(Text(ENOMEM, exempt), Not(HasSubstr("ulimit")));
  const LockedMemory enough{.limit = RLIM_INFINITY, .locked = kMiB, .exempt = false};
  EXPECT_THAT(Text(ENOMEM, enough), Not(HasSubstr("ulimit")));
  EXPECT_THAT(Text(ENOMEM, enough), HasSubstr("free memory"));
}

TEST(MapDmaError, TooManyMappingsNameTheModulesParameter) {
  EXPECT_THAT(Text(ENOSPC, {}), HasSubstr("(65535)"));
  EXPECT_THAT(Text(ENOSPC, {}, ""), Not(HasSubstr("()")));
  EXPECT_THAT(Text(ENOSPC, {}), HasSubstr("dma_entry_limit of the module vfio_iommu_type1"));
}

TEST(MapDmaError, LimitsAreTheUsersToMendAndTheRestIsNot) {
  const LockedMemory memory;
  for (const int error : {ENOMEM, ENOSPC}) {
    EXPECT_TRUE(absl::IsResourceExhausted(MapDmaError(error, kDevice, kMapping, memory, "")));
  }
  for (const int error : {EEXIST, EINVAL, EFAULT}) {
    const absl::Status status = MapDmaError(error, kDevice, kMapping, memory, "");
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("at I/O address 0x1000000"));
  }
}

}  // namespace
}  // namespace ringside
