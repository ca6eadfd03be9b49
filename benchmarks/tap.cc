#include "benchmarks/tap.h"

#include <cerrno>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>

#include "absl/strings/str_format.h"
#include "base/status.h"

extern "C" unsigned if_nametoindex(const char* name);  // <net/if.h> clashes with <linux/if.h>

namespace ringside {

absl::StatusOr<UniqueFd> OpenBareTap(const std::string& name) {
  UniqueFd tap(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tap.valid()) return ErrnoError(errno, "cannot open '/dev/net/tun'", "run this as root");
  ifreq request = {};
  if (name.empty() || name.size() >= sizeof request.ifr_name) {
    return BadInput("--tap '%s' is no name of an interface; give one of 1 to %d characters", name,
                    static_cast<int>(sizeof request.ifr_name) - 1);
  }
  name.copy(request.ifr_name, name.size());
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (ioctl(tap.get(), TUNSETIFF, &request) != 0) {
    return ErrnoError(errno, absl::StrFormat("the tap '%s' cannot be opened", name));
  }
  return tap;
}

absl::StatusOr<int> InterfaceIndex(const std::string& name) {
  const unsigned index = if_nametoindex(name.c_str());
  if (index == 0) return BadInput("there is no interface '%s' here; give --tap another", name);
  return static_cast<int>(index);
}

}  // namespace ringside
