#include "net/tap.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "absl/time/clock.h"
#include "base/bad_input_errno.h"
#include "base/clock.h"
#include "base/host_files.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr char kTun[] = "/dev/net/tun";
constexpr int kQueueFlags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
static_assert(kNetChecksum == TUN_F_CSUM && kNetTso4 == TUN_F_TSO4 && kNetTso6 == TUN_F_TSO6 &&
              kNetEcn == TUN_F_TSO_ECN);

absl::Status Precondition(const absl::Status& status) {
  return absl::FailedPreconditionError(status.message());
}

ifreq Request(const std::string& name) {
  ifreq request = {};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

absl::StatusOr<UniqueFd> OpenTun() {
  UniqueFd fd(open(kTun, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (fd.valid()) return fd;
  if (errno == EACCES || errno == EPERM) {
    return ErrnoError(errno, absl::StrFormat("cannot open %s", kTun),
                      "let this user read and write it, or use --net user");
  }
  return Precondition(ErrnoError(errno, absl::StrFormat("cannot open %s", kTun),
                                 "load the kernel's module 'tun', or use --net user"));
}

absl::Status NotOpened(const std::string& name, uint16_t pairs, int error) {
  const bool exists = if_nametoindex(name.c_str()) != 0;
  const std::string what = absl::StrFormat("tap '%s' cannot be opened", name);
  switch (error) {
    case EPERM:
      return ErrnoError(error, what,
                        exists
                            ? "it is another user's: make one with 'ip tuntap add', user and all"
                            : "it is not there, and making one takes CAP_NET_ADMIN: make it with "
                              "'ip tuntap add', or use --net user");
    case EBUSY:
      return Precondition(ErrnoError(error, what,
                                     "another process has it: end that, or give "
                                     "another name"));
    case EINVAL:
      if (exists && pairs > 1) {
        return BadInput("%s with %d queue pairs: it is no tap, or was made without multi_queue",
                        what, pairs);
      }
      return BadInput("%s: %s", what,
                      exists ? "that interface is no tap" : "no interface has such a name");
    default:
      return Precondition(ErrnoError(error, what));
  }
}

// A queue of the interface, which is made by the first where it is not there. The request has the
// name then, which may have been a pattern.
absl::StatusOr<UniqueFd> OpenQueue(ifreq& request, uint16_t pairs) {
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, OpenTun());
  request.ifr_flags = static_cast<short>(kQueueFlags | (pairs > 1 ? IFF_MULTI_QUEUE : 0));
  if (ioctl(fd.get(), TUNSETIFF, &request) == 0) return fd;
  if (errno == EINVAL && pairs == 1) {
    // One that has room for more queues wants each to say so.
    request.ifr_flags = static_cast<short>(kQueueFlags | IFF_MULTI_QUEUE);
    if (ioctl(fd.get(), TUNSETIFF, &request) == 0) return fd;
  }
  return NotOpened(request.ifr_name, pairs, errno);
}

// Of an interface, through any socket.
absl::Status SetUpInterface(ifreq request, uint16_t mtu) {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (ioctl(socket_fd.get(), SIOCGIFFLAGS, &request) != 0) {
    return ErrnoError(errno,
                      absl::StrFormat("the flags of tap '%s' cannot be read", request.ifr_name));
  }
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (ioctl(socket_fd.get(), SIOCSIFFLAGS, &request) != 0) {
    return ErrnoError(errno, absl::StrFormat("tap '%s' cannot be brought up", request.ifr_name));
  }
  if (mtu == 0) return absl::OkStatus();
  request.ifr_mtu = mtu;
  if (ioctl(socket_fd.get(), SIOCSIFMTU, &request) == 0) return absl::OkStatus();
  return ErrnoError(errno,
                    absl::StrFormat("tap '%s' cannot have an MTU of %d", request.ifr_name, mtu));
}

// 0: not known.
uint16_t MtuOf(const std::string& name) {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = Request(name);
  if (ioctl(socket_fd.get(), SIOCGIFMTU, &request) != 0) return 0;
  return static_cast<uint16_t>(std::min(request.ifr_mtu, 65535));
}

// As the host counts them, for which what comes in to the guest goes out. Zeroes where the
// interface is in another name space, or gone.
NetCounts CountsOf(const std::string& name) {
  const std::filesystem::path directory = "/sys/class/net/" + name + "/statistics";
  const auto count = [&](const char* what) {
    return static_cast<uint64_t>(FirstNumber(directory / what).value_or(0));
  };
  return {.frames_in = count("tx_packets"),
          .bytes_in = count("tx_bytes"),
          .frames_out = count("rx_packets"),
          .bytes_out = count("rx_bytes")};
}

// What somebody else has opened has to be a queue of a tap with our kind of header.
absl::StatusOr<std::string> CheckQueue(int number, const UniqueFd& fd) {
  ifreq request = {};
  if (ioctl(fd.get(), TUNGETIFF, &request) != 0) {
    return BadInputErrno(errno, absl::StrFormat("descriptor %d is no queue of a tap", number),
                         "open one with TUNSETIFF");
  }
  if ((request.ifr_flags & kQueueFlags) != kQueueFlags) {
    return BadInput(
        "descriptor %d is a queue of '%s' without IFF_TAP, IFF_NO_PI or IFF_VNET_HDR: "
        "open it with all three",
        number, request.ifr_name);
  }
  return std::string(request.ifr_name);
}

// Of a tap that is claimed: its queues may be somebody else's before.
absl::Status PrepareQueue(int number, int fd) {
  ifreq request = {};
  // A guest before may have left it so.
  if (ioctl(fd, TUNGETIFF, &request) == 0 && (request.ifr_flags & IFF_DETACH_QUEUE) != 0) {
    ifreq attach = {};
    attach.ifr_flags = IFF_ATTACH_QUEUE;
    if (ioctl(fd, TUNSETQUEUE, &attach) != 0) {
      return ErrnoError(errno, absl::StrFormat("descriptor %d is a queue of '%s' that cannot be "
                                               "attached",
                                               number, request.ifr_name));
    }
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoError(errno, absl::StrFormat("descriptor %d stays one that blocks", number));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Tap::CheckHost() {
  return OpenTun().status();
}

absl::StatusOr<std::unique_ptr<Tap>> Tap::ByName(const std::string& name, uint16_t pairs,
                                                 uint16_t mtu) {
  if (name.empty() || name.size() > kMaxName) {
    return BadInput("tap '%s': an interface's name has 1 to %d characters", name, kMaxName);
  }
  const unsigned index = if_nametoindex(name.c_str());
  std::unique_ptr<Tap> tap(new Tap);
  if (index != 0) {
    // Before the first queue, which would have its share of the frames at once.
    RINGSIDE_ASSIGN_OR_RETURN(tap->claim_, TapClaim::OfInterface(index, name));
  }
  ifreq request = Request(name);
  for (uint16_t pair = 0; pair < pairs; ++pair) {
    RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, OpenQueue(request, pairs));
    RINGSIDE_RETURN_IF_ERROR(tap->Add(std::move(fd)));
  }
  tap->info_.name = request.ifr_name;
  if (index == 0) {
    RINGSIDE_ASSIGN_OR_RETURN(
        tap->claim_, TapClaim::OfInterface(if_nametoindex(request.ifr_name), request.ifr_name));
    RINGSIDE_RETURN_IF_ERROR(SetUpInterface(request, mtu));
  }
  RINGSIDE_RETURN_IF_ERROR(tap->SetUp());
  return tap;
}

absl::StatusOr<std::unique_ptr<Tap>> Tap::ByDescriptors(std::span<const int> fds) {
  if (fds.empty() || fds.size() > kMaxPairs) {
    return BadInput("a tap by descriptors has 1 to %d of them, not %d", kMaxPairs, fds.size());
  }
  std::unique_ptr<Tap> tap(new Tap);
  for (const int number : fds) {
    if (std::ranges::count(fds, number) > 1) {
      return BadInput("descriptor %d is given twice: each queue pair has one of its own", number);
    }
    UniqueFd fd(fcntl(number, F_DUPFD_CLOEXEC, 0));
    if (!fd.valid()) return BadInput("descriptor %d is not open: give one of a tap", number);
    RINGSIDE_ASSIGN_OR_RETURN(std::string name, CheckQueue(number, fd));
    if (!tap->info_.name.empty() && tap->info_.name != name) {
      return BadInput(
          "descriptor %d is a queue of '%s' and the one before of '%s': give queues of "
          "one tap",
          number, name, tap->info_.name);
    }
    tap->info_.name = std::move(name);
    RINGSIDE_RETURN_IF_ERROR(tap->Add(std::move(fd)));
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      tap->claim_, TapClaim::OfQueue(tap->channels_.front()->receive_fd(), tap->info_.name));
  for (size_t i = 0; i < fds.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(PrepareQueue(fds[i], tap->channels_[i]->receive_fd()));
  }
  RINGSIDE_RETURN_IF_ERROR(tap->SetUp());
  return tap;
}

absl::Status Tap::Add(UniqueFd fd) {
  UniqueFd sender(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!sender.valid()) {
    return ErrnoError(errno, "cannot duplicate a tap's descriptor", "raise 'ulimit -n'");
  }
  channels_.push_back(std::make_unique<FrameFile>(std::move(fd), std::move(sender)));
  return absl::OkStatus();
}

absl::Status Tap::SetUp() {
  const int header_size = kNetHeaderSize;
  for (const auto& channel : channels_) {
    if (ioctl(channel->receive_fd(), TUNSETVNETHDRSZ, &header_size) != 0) {
      return Precondition(ErrnoError(errno, absl::StrFormat("tap '%s' takes no headers of %d bytes",
                                                            info_.name, header_size)));
    }
  }
  SetCarrier(true);  // a machine before may have left its cable pulled
  info_.pairs = attached_ = static_cast<uint16_t>(channels_.size());
  info_.takes_offloads = true;
  info_.mtu = MtuOf(info_.name);
  // What it can do it says by taking it.
  const int fd = channels_.front()->receive_fd();
  for (const uint32_t offloads : {kNetChecksum | kNetTso4 | kNetTso6 | kNetEcn,
                                  kNetChecksum | kNetTso4 | kNetTso6, uint32_t{kNetChecksum}}) {
    if (ioctl(fd, TUNSETOFFLOAD, uint64_t{offloads}) != 0) continue;
    info_.offloads = offloads_ = offloads;
    break;
  }
  return absl::OkStatus();
}

absl::Status Tap::UseVhost() {
  for (const auto& channel : channels_) {
    RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<VhostNet> vhost,
                              VhostNet::Open(channel->receive_fd()));
    vhosts_.push_back(std::move(vhost));
  }
  const MutexLock lock(counts_mutex_);
  counts_.Begin(CountsOf(info_.name));
  return absl::OkStatus();
}

// A queue of an interface that was removed is none of any.
bool Tap::IsThere() const {
  ifreq request = {};
  return ioctl(channels_.front()->receive_fd(), TUNGETIFF, &request) == 0;
}

// Those of an interface that is gone stay what they were, whoever has its name now.
std::optional<NetCounts> Tap::counts() const {
  if (vhosts_.empty()) return std::nullopt;
  const NetCounts now = CountsOf(info_.name);
  const bool is_ours = IsThere();  // after the look: it was, then, all the time
  const MutexLock lock(counts_mutex_);
  if (is_ours) counts_.See(now);
  return counts_.since();
}

absl::Status Tap::NotChanged(int error, const std::string& what) const {
  if (!IsThere()) return absl::UnavailableError(absl::StrFormat("tap '%s' is gone", info_.name));
  return ErrnoError(error, what);
}

absl::Status Tap::AllowChanges(int changes, TooSoon too_soon) {
  while (const int64_t wait_ns = changes_.Ask(MonotonicNs(), changes)) {
    if (too_soon == TooSoon::kNever) break;
    if (too_soon == TooSoon::kRefuse) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("the guest changes tap '%s' too often", info_.name));
    }
    absl::SleepFor(absl::Nanoseconds(wait_ns));
  }
  return absl::OkStatus();
}

absl::Status Tap::SetOffloads(uint32_t offloads, TooSoon too_soon) {
  if (offloads == offloads_) return absl::OkStatus();
  RINGSIDE_RETURN_IF_ERROR(AllowChanges(1, too_soon));
  if (ioctl(channels_.front()->receive_fd(), TUNSETOFFLOAD, uint64_t{offloads}) != 0) {
    return NotChanged(errno, absl::StrFormat("tap '%s' does not change its offloads", info_.name));
  }
  offloads_ = offloads;
  return absl::OkStatus();
}

absl::Status Tap::SetPairs(uint16_t pairs, TooSoon too_soon) {
  if (pairs == attached_) return absl::OkStatus();
  RINGSIDE_RETURN_IF_ERROR(AllowChanges(std::abs(pairs - attached_), too_soon));
  while (attached_ != pairs) {
    const bool attaches = attached_ < pairs;
    const uint16_t pair = attaches ? attached_ : static_cast<uint16_t>(attached_ - 1);
    ifreq request = {};
    request.ifr_flags = static_cast<short>(attaches ? IFF_ATTACH_QUEUE : IFF_DETACH_QUEUE);
    if (ioctl(channels_[pair]->receive_fd(), TUNSETQUEUE, &request) != 0) {
      return NotChanged(errno, absl::StrFormat("queue %d of tap '%s' cannot be %s", pair,
                                               info_.name, attaches ? "attached" : "detached"));
    }
    attached_ = attaches ? static_cast<uint16_t>(attached_ + 1) : pair;
  }
  return absl::OkStatus();
}

void Tap::SetCarrier(bool up) {
  for (const auto& vhost : vhosts_) vhost->SetCarrier(up);
  const int carrier = up ? 1 : 0;
  ioctl(channels_.front()->receive_fd(), TUNSETCARRIER, &carrier);  // the host may be too old
}

}  // namespace ringside
