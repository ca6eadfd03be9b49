#include "net/tap_claim.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "base/fnv.h"
#include "base/status.h"

namespace ringside {
namespace {

// A file that each process has for itself and that other users cannot open for writing. A lock in
// it is shared by all machines of the process, needs no global, and ends with its descriptor. The
// first thread's is there for all of them, also in a process that may not be dumped, whose
// /proc/self/comm is root's (proc(5)).
std::filesystem::path OwnFile() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self", error);
  return "/proc/self/task" / self / "comm";
}

// Of one byte, which stands for an interface.
struct flock Lock(short type, off_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool HaveSameAddress(int queue, const std::string& name) {
  ifreq of_queue = {}, of_name = {};
  name.copy(of_name.ifr_name, IFNAMSIZ - 1);
  const UniqueFd any(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return ioctl(queue, SIOCGIFHWADDR, &of_queue) == 0 &&
         ioctl(any.get(), SIOCGIFHWADDR, &of_name) == 0 &&
         std::ranges::equal(of_queue.ifr_hwaddr.sa_data, of_name.ifr_hwaddr.sa_data);
}

std::string AddressOf(int queue) {
  ifreq request = {};
  ioctl(queue, SIOCGIFHWADDR, &request);  // zeroes where it fails
  return {request.ifr_hwaddr.sa_data, 6};
}

}  // namespace

// Closing alone would leave it with a child that was forked meanwhile.
TapClaim::~TapClaim() {
  struct flock all = Lock(F_UNLCK, 0);
  all.l_len = 0;
  if (fd_.valid()) fcntl(fd_.get(), F_OFD_SETLK, &all);
}

absl::StatusOr<TapClaim> TapClaim::OfInterface(unsigned index, const std::string& name) {
  return Of(absl::StrCat("index ", index), name);
}

// The name is another interface's here if theirs differ in their addresses. Then it has only these
// two, and may be claimed twice once somebody changes its address.
absl::StatusOr<TapClaim> TapClaim::OfQueue(int queue, const std::string& name) {
  if (HaveSameAddress(queue, name)) return OfInterface(if_nametoindex(name.c_str()), name);
  return Of(absl::StrCat("address ", AddressOf(queue), name), name);
}

absl::StatusOr<TapClaim> TapClaim::Of(const std::string& identity, const std::string& name) {
  TapClaim claim;
  UniqueFd fd(open(OwnFile().c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return claim;
  struct flock lock = Lock(F_WRLCK, static_cast<off_t>(Fnv1a(identity) >> 2));
  if (fcntl(fd.get(), F_OFD_SETLK, &lock) == 0) {
    claim.fd_ = std::move(fd);
    return claim;
  }
  if (errno != EAGAIN && errno != EACCES) return claim;
  return absl::FailedPreconditionError(absl::StrFormat(
      "tap '%s' is another network's of this process: give each network a tap of its own", name));
}

}  // namespace ringside
