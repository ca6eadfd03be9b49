// A network namespace of the test's own, for its thread and for those that it starts: whatever is
// made there ends with it.
#pragma once

#include <cstring>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

namespace ringside::testing {

class OwnNetwork {
 public:
  OwnNetwork() : before_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    allowed_ = before_.valid() && unshare(CLONE_NEWNET) == 0;
    // Nothing but what a test sends.
    const UniqueFd setting(
        open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC));
    if (allowed_ && setting.valid()) (void)!write(setting.get(), "1", 1);
  }
  ~OwnNetwork() {
    if (allowed_) setns(before_.get(), CLONE_NEWNET);
  }

  // Else the test is to be skipped.
  bool allowed() const { return allowed_; }
  static constexpr char kNotAllowed[] = "this process may not make a network namespace";

  // 0 of one that is not there.
  static int Flags(const std::string& name) {
    ifreq request = Request(name);
    return ioctl(Socket().get(), SIOCGIFFLAGS, &request) == 0 ? request.ifr_flags : 0;
  }
  static bool IsUp(const std::string& name) { return (Flags(name) & IFF_UP) != 0; }
  static bool SetUp(const std::string& name, bool up) {
    ifreq request = Request(name);
    const int others = Flags(name) & ~IFF_UP;
    request.ifr_flags = static_cast<short>(up ? others | IFF_UP : others);
    return ioctl(Socket().get(), SIOCSIFFLAGS, &request) == 0;
  }
  // Its hardware address is 02:00:00:00:00:LAST from then on.
  static bool SetAddress(const std::string& name, char last) {
    ifreq request = Request(name);
    request.ifr_hwaddr = {.sa_family = ARPHRD_ETHER, .sa_data = {2, 0, 0, 0, 0, last}};
    return ioctl(Socket().get(), SIOCSIFHWADDR, &request) == 0;
  }
  // Removes an interface, whoever uses it.
  static bool Remove(const std::string& name) {
    struct {
      nlmsghdr header;
      ifinfomsg interface;
    } message = {
        .header = {.nlmsg_len = sizeof message,
                   .nlmsg_type = RTM_DELLINK,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .interface = {.ifi_family = AF_UNSPEC, .ifi_index = static_cast<int>(IndexOf(name))}};
    const UniqueFd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (send(netlink.get(), &message, sizeof message, 0) != sizeof message) return false;
    struct {
      nlmsghdr header;
      nlmsgerr error;
      char rest[256];
    } answer = {};
    return recv(netlink.get(), &answer, sizeof answer, 0) > 0 && answer.error.error == 0;
  }
  static unsigned IndexOf(const std::string& name) {
    ifreq request = Request(name);
    return ioctl(Socket().get(), SIOCGIFINDEX, &request) == 0
               ? static_cast<unsigned>(request.ifr_ifindex)
               : 0;
  }

 private:
  static UniqueFd Socket() { return UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }
  static ifreq Request(const std::string& name) {
    ifreq request = {};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    return request;
  }

  const UniqueFd before_;
  bool allowed_ = false;
};

}  // namespace ringside::testing
