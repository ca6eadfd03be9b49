// What the command line asks to be measured of the first network, beside the words runtime, warmup,
// wait, verify and seed of job.h, which mean the same:
//
//   net=HOW       without this word nothing is measured
//     echo        ICMP echo requests to the host's address: round trips
//     out         frames that nobody takes, as fast as they go
//     in          frames that the host is asked for (net_stream.h), numbered
//   frame=64,1500  bytes of a frame, Ethernet's header included; each number is a job of its own
//   qd=1,2,4      echo: requests under way; each number is a job
//   rate=0        in: frames a second, 0 for as many as are taken; each number is a job
//   net-own=10.77.0.2   the guest's IPv4 address
//   net-host=10.77.0.1  the host's
//
// Programs of the host that measure without a guest take the same words.

#ifndef RINGSIDE_TESTS_GUEST_NET_JOB_H_
#define RINGSIDE_TESTS_GUEST_NET_JOB_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "command_line.h"
#include "net_frame.h"
#include "wait.h"

namespace guest {

enum class NetKind : uint8_t { kEcho, kOut, kIn };

struct NetJob {
  NetKind kind = NetKind::kEcho;
  std::string_view name;
  uint64_t frame_bytes = 64;
  uint64_t depth = 1;
  uint64_t rate = 0;  // a second; 0: as many as are taken
  uint64_t runtime_ns = 0;
  uint64_t warmup_ns = 0;
  Wait wait = Wait::kPolled;
  bool verify = false;
  uint64_t seed = 1;
};

constexpr uint64_t kMaxNetDepth = 256;
constexpr uint64_t kMaxNetFrame = 1514;  // what any network carries

// The jobs asked for, none without net=. A word that cannot be used gives a FAIL line and no job.
std::span<const NetJob> ReadNetJobs(const CommandLine& command_line);

// The addresses of the words; false after a FAIL line.
bool ReadNetAddresses(const CommandLine& command_line, NetPeer& peer);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_NET_JOB_H_
