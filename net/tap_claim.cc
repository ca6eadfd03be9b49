#include "net/tap_claim.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include "base/fnv.h"
#include "base/status.h"

namespace ringside {
namespace {

// A file that each process has for itself and that other users cannot open for writing. A lock in
// it is shared by all machines of the process, needs no global, and ends with its descriptor.
constexpr char kOwnFile[] = "/proc/self/comm";

// The byte that stands for an interface: of its name and its hardware address, which a queue tells
// in any network namespace.
off_t ByteOf(int queue, const std::string& name) {
  ifreq request = {};
  ioctl(queue, SIOCGIFHWADDR, &request);  // zeroes where it fails
  return static_cast<off_t>(Fnv1a(name + std::string(request.ifr_hwaddr.sa_data, 6)) >> 2);
}

}  // namespace

absl::StatusOr<UniqueFd> ClaimTap(int queue, const std::string& name) {
  UniqueFd fd(open(kOwnFile, O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return fd;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = ByteOf(queue, name);
  lock.l_len = 1;
  if (fcntl(fd.get(), F_OFD_SETLK, &lock) == 0) return fd;
  if (errno != EAGAIN && errno != EACCES) return UniqueFd();
  return absl::FailedPreconditionError(absl::StrFormat(
      "tap '%s' is another network's of this process: give each network a tap of its own", name));
}

}  // namespace ringside
