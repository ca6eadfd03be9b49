#include "base/fd.h"

#include <gtest/gtest.h>
#include <optional>
#include <thread>
#include <vector>

#include "base/sync.h"
#include "tests/support/descriptors.h"

namespace ringside {
namespace {

using testing::DevNull;
using testing::IsOpen;
using testing::WaitForFd;

TEST(UniqueFd, ClosesWhatItOwnsAtItsEnd) {
  int number = -1;
  {
    const UniqueFd fd = DevNull();
    number = fd.get();
    ASSERT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(UniqueFd, WithoutADescriptorIsInvalid) {
  EXPECT_FALSE(UniqueFd().valid());
  EXPECT_FALSE(UniqueFd(-1).valid());
  EXPECT_TRUE(UniqueFd(DevNull()).valid());
}

TEST(UniqueFd, ZeroIsADescriptorLikeAnyOther) {
  const UniqueFd saved(fcntl(0, F_DUPFD_CLOEXEC, 3));
  const UniqueFd source = DevNull();
  dup2(source.get(), 0);
  {
    const UniqueFd zero(0);
    EXPECT_TRUE(zero.valid());
  }
  EXPECT_FALSE(IsOpen(0));
  if (saved.valid()) dup2(saved.get(), 0);
}

TEST(UniqueFd, MovedFromOwnsNothingAndClosesNothing) {
  std::optional<UniqueFd> first(DevNull());
  const int number = first->get();
  const UniqueFd second(std::move(*first));
  EXPECT_FALSE(first->valid());
  first.reset();
  EXPECT_TRUE(IsOpen(number));
  EXPECT_EQ(second.get(), number);
}

// A second close would hit whoever has been given the number since.
TEST(UniqueFd, ClosesOnlyOnceHoweverOftenItMoved) {
  std::optional<UniqueFd> first(DevNull());
  const int number = first->get();
  std::optional<UniqueFd> second(std::move(*first));
  std::optional<UniqueFd> third;
  third.emplace();
  *third = std::move(*second);
  third.reset();
  second.reset();
  ASSERT_FALSE(IsOpen(number));
  const UniqueFd source = DevNull();
  ASSERT_EQ(dup2(source.get(), number), number);
  const UniqueFd reused(number);
  first.reset();
  EXPECT_TRUE(IsOpen(number));
}

TEST(UniqueFd, AssignmentClosesThePreviousDescriptor) {
  UniqueFd fd = DevNull();
  const int previous = fd.get();
  {
    UniqueFd next = DevNull();
    const int number = next.get();
    fd = std::move(next);
    EXPECT_EQ(fd.get(), number);
  }
  EXPECT_FALSE(IsOpen(previous));
  EXPECT_TRUE(IsOpen(fd.get()));
}

TEST(UniqueFd, AssigningToItselfKeepsTheDescriptor) {
  UniqueFd fd = DevNull();
  const int number = fd.get();
  UniqueFd& alias = fd;
  fd = std::move(alias);
  EXPECT_EQ(fd.get(), number);
  EXPECT_TRUE(IsOpen(number));
}

class EventFdTest : public ::testing::Test {
 protected:
  EventFd event_ = *EventFd::Create();
};

TEST_F(EventFdTest, IsReadableFromTheFirstSignalUntilCleared) {
  EXPECT_FALSE(WaitForFd(event_.fd(), POLLIN, absl::ZeroDuration()));
  event_.Signal();
  EXPECT_TRUE(WaitForFd(event_.fd(), POLLIN, absl::ZeroDuration()));
  event_.Clear();
  EXPECT_FALSE(WaitForFd(event_.fd(), POLLIN, absl::ZeroDuration()));
}

TEST_F(EventFdTest, CountTakesNothing) {
  EXPECT_EQ(event_.count(), 0u);
  for (int i = 0; i < 20; ++i) event_.Signal();
  EXPECT_EQ(event_.count(), 20u);
  EXPECT_EQ(event_.Clear(), 20u);
  EXPECT_EQ(event_.count(), 0u);
}

TEST_F(EventFdTest, ClearReturnsHowManySignalsThereWere) {
  EXPECT_EQ(event_.Clear(), 0u);  // and does not block
  for (int i = 0; i < 3; ++i) event_.Signal();
  EXPECT_EQ(event_.Clear(), 3u);
  EXPECT_EQ(event_.Clear(), 0u);
}

TEST_F(EventFdTest, CountsSignalsOfAllThreads) {
  constexpr int kThreads = 4;
  constexpr int kSignals = 1000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this] {
      for (int j = 0; j < kSignals; ++j) event_.Signal();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(event_.Clear(), uint64_t{kThreads * kSignals});
}

TEST_F(EventFdTest, AFullCounterNeitherBlocksNorLosesTheEvent) {
  constexpr uint64_t kMost = UINT64_MAX - 1;
  ASSERT_EQ(write(event_.fd(), &kMost, sizeof kMost), ssize_t{sizeof kMost});
  event_.Signal();
  event_.Signal();
  EXPECT_TRUE(WaitForFd(event_.fd(), POLLIN, absl::ZeroDuration()));
  EXPECT_EQ(event_.Clear(), kMost);
  event_.Signal();
  EXPECT_EQ(event_.Clear(), 1u);
}

// O_NONBLOCK belongs to all who have the eventfd, such as a server that was given it.
TEST_F(EventFdTest, ClearWaitsForNobodyWhateverOthersDoToIt) {
  const UniqueFd theirs(fcntl(event_.fd(), F_DUPFD_CLOEXEC, 0));
  ASSERT_EQ(fcntl(theirs.get(), F_SETFL, 0), 0);
  ASSERT_EQ(fcntl(event_.fd(), F_GETFL) & O_NONBLOCK, 0);
  Event cleared;
  std::thread other([&] {
    EXPECT_EQ(event_.Clear(), 0u);
    cleared.Notify();
  });
  EXPECT_TRUE(cleared.WaitFor(absl::Seconds(5)));
  event_.Signal();  // which would end its waiting
  other.join();
}

TEST_F(EventFdTest, IsNotInheritedByPrograms) {
  EXPECT_NE(fcntl(event_.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace ringside
