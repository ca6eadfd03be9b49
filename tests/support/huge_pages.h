// Huge pages of the host that a test has for itself.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/host_files.h"

namespace ringside::testing {

// Has the host set so many more pages of 2 MiB aside than it did, for as long as the object lives.
// One at a time: whoever comes next waits, in another process, too, so that nobody takes a test's
// pages, or puts back a number under which another has put his.
class SetAsideHugePages {
 public:
  explicit SetAsideHugePages(int64_t pages) : file_(open(kNumber, O_RDWR | O_CLOEXEC)) {
    if (!file_.valid() || flock(file_.get(), LOCK_EX) != 0) {
      why_not_ = std::string("cannot open ") + kNumber + ": " + std::strerror(errno);
      return;
    }
    const int64_t before = Read("nr_hugepages");
    Write(before + pages);
    pages_ = Read("nr_hugepages") - before;
    if (pages_ < pages) {
      why_not_ = "of " + std::to_string(pages) + " huge pages this host sets aside " +
                 std::to_string(pages_);
    }
  }
  ~SetAsideHugePages() {
    if (pages_ > 0) Write(Read("nr_hugepages") - pages_);
  }
  SetAsideHugePages(const SetAsideHugePages&) = delete;
  SetAsideHugePages& operator=(const SetAsideHugePages&) = delete;

  // Empty: it has.
  const std::string& why_not() const { return why_not_; }
  // Those that nobody has reserved, the host's own among them.
  static uint64_t Free() {
    return static_cast<uint64_t>(Read("free_hugepages") - Read("resv_hugepages"));
  }

 private:
  static constexpr const char* kDirectory = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  static constexpr const char* kNumber = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

  static int64_t Read(const char* name) {
    return FirstNumber(std::string(kDirectory) + name).value_or(0);
  }
  void Write(int64_t pages) const {
    const std::string text = std::to_string(pages);
    // What came of it is read.
    (void)!pwrite(file_.get(), text.data(), text.size(), 0);
  }

  const UniqueFd file_;  // the lock is on it
  int64_t pages_ = 0;
  std::string why_not_;
};

#define SKIP_WITHOUT_HUGE_PAGES(pool) \
  if (!(pool).why_not().empty()) GTEST_SKIP() << (pool).why_not()

}  // namespace ringside::testing
