#include "agent/guest/guest_system.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/random.h>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace ringside {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr size_t kMostEntropy = 512;  // bytes

// As RNDADDENTROPY wants it: rand_pool_info, whose last member has no length of its own.
struct Pool {
  int bits;
  int bytes;
  std::array<char, kMostEntropy> data;
};

}  // namespace

AgentFault SetClock(int64_t ns) {
  const timespec now = {.tv_sec = ns / kSecond, .tv_nsec = ns % kSecond};
  if (clock_settime(CLOCK_REALTIME, &now) == 0) return {};
  return AgentFault::Of(errno, "cannot set", "CLOCK_REALTIME");
}

AgentFault AddEntropy(std::string_view bytes) {
  const UniqueFd random(open("/dev/urandom", O_RDWR | O_CLOEXEC));
  if (!random.valid()) return AgentFault::Of(errno, "cannot open", "/dev/urandom");
  Pool pool = {};
  bytes = bytes.substr(0, pool.data.size());
  pool.bytes = static_cast<int>(bytes.size());
  pool.bits = 8 * pool.bytes;
  memcpy(pool.data.data(), bytes.data(), bytes.size());
  if (ioctl(random.get(), RNDADDENTROPY, &pool) != 0 ||
      ioctl(random.get(), RNDRESEEDCRNG, nullptr) != 0) {
    return AgentFault::Of(errno, "cannot add to", "/dev/urandom");
  }
  return {};
}

int64_t GuestMonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

void Say(std::string_view what, std::string_view more) {
  std::string line = "ringside-agent: ";
  line.append(what).append(more).append("\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace ringside
