#include "base/mapping_guard.h"

#include <atomic>
#include <csetjmp>
#include <gtest/gtest.h>
#include <optional>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

constexpr size_t kPage = 4096, kSize = 16 * kPage;

// A file of ones and a private mapping of it.
class MappedFile {
 public:
  MappedFile() : fd_(memfd_create("mapped", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_.get(), kSize), 0);
    const std::vector<char> ones(kSize, 1);
    EXPECT_EQ(write(fd_.get(), ones.data(), kSize), static_cast<ssize_t>(kSize));
    bytes_ = static_cast<std::byte*>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_.get(), 0));
    EXPECT_NE(bytes_, MAP_FAILED);
  }
  ~MappedFile() { munmap(bytes_, kSize); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  void Shorten(size_t size) const { EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(size)), 0); }
  std::span<std::byte> bytes() const { return {bytes_, kSize}; }
  int Read(size_t at) const { return *Volatile(at); }
  void Write(size_t at, uint8_t value) const { *Volatile(at) = value; }

 private:
  volatile uint8_t* Volatile(size_t at) const {
    return reinterpret_cast<volatile uint8_t*>(bytes_ + at);
  }

  const UniqueFd fd_;
  std::byte* bytes_;
};

void Count(void* context) {
  ++*static_cast<std::atomic<int>*>(context);
}

TEST(MappingGuardTest, APageThatIsGoneIsOneOfZeroes) {
  const MappedFile file;
  std::atomic<int> told{0};
  const auto guard = MappingGuard::Of(file.bytes(), Count, &told);
  ASSERT_TRUE(guard.ok()) << guard.status();
  file.Write(9 * kPage, 7);  // its own copy goes with the file's page, too
  EXPECT_EQ(file.Read(8 * kPage), 1);
  file.Shorten(4 * kPage);
  EXPECT_EQ(told, 0);
  errno = E2BIG;
  EXPECT_EQ(file.Read(9 * kPage + 5), 0);
  EXPECT_EQ(errno, E2BIG);
  EXPECT_EQ(told, 1);
  file.Write(9 * kPage, 7);
  EXPECT_EQ(file.Read(9 * kPage), 7);
  EXPECT_EQ(told, 1) << "once for each page";
  EXPECT_EQ(file.Read(3 * kPage), 1) << "what is there stays";
  // What the kernel is to read from the others for us it does not get.
  const UniqueFd sink(memfd_create("sink", MFD_CLOEXEC));
  EXPECT_EQ(write(sink.get(), file.bytes().data() + 12 * kPage, kPage), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(told, 1);
}

TEST(MappingGuardTest, EachIsToldOfItsOwn) {
  const MappedFile one, other;
  std::atomic<int> one_told{0}, other_told{0};
  auto one_guard = MappingGuard::Of(one.bytes(), Count, &one_told);
  const auto other_guard = MappingGuard::Of(other.bytes(), Count, &other_told);
  ASSERT_TRUE(one_guard.ok() && other_guard.ok());
  const MappingGuard moved = *std::move(one_guard);
  one.Shorten(0);
  other.Shorten(0);
  std::vector<std::thread> threads;
  for (size_t page = 0; page < 16; ++page) {
    threads.emplace_back([&, page] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      const FaultsAllowed faults;
      EXPECT_EQ(one.Read(page * kPage), 0);
      EXPECT_EQ(other.Read(page * kPage), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(one_told, 16);
  EXPECT_EQ(other_told, 16);
}

TEST(MappingGuardTest, WhatIsNotItsOwnGoesOn) {
  const auto touch = [] {
    const MappedFile guarded, own;
    std::atomic<int> told{0};
    {
      const auto guard = MappingGuard::Of(guarded.bytes(), Count, &told);
      if (!guard.ok()) return;
    }
    guarded.Shorten(0);
    guarded.Write(0, 1);  // whose guard has ended
  };
  EXPECT_DEATH(touch(), "");
}

// As another part of the program would have it.
TEST(MappingGuardDeathTest, TheHandlerThatWasThereBeforeGetsTheRest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the handler is installed once in a process
  const auto touch = [] {
    struct sigaction action = {};
    action.sa_handler = [](int) { _exit(77); };
    sigaction(SIGBUS, &action, nullptr);
    const MappedFile guarded, other;
    std::atomic<int> told{0};
    const auto guard = MappingGuard::Of(guarded.bytes(), Count, &told);
    guarded.Shorten(0);
    guarded.Write(0, 1);
    other.Shorten(0);
    if (told == 1) other.Write(0, 1);
    _exit(1);
  };
  EXPECT_EXIT(touch(), ::testing::ExitedWithCode(77), "");
}

}  // namespace
}  // namespace ringside
