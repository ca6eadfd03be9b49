// What the command line asks to be measured of the first vsock, beside the words runtime, warmup,
// wait, verify and seed of job.h, which mean the same:
//
//   vsock=HOW     without this word nothing is measured
//     echo        messages of the host's client come and go back: round trips
//     out         messages to the host, as fast as they go, each in a packet of its own
//     flood       connections that the host makes, and closes at once
//     serve       echoes without a client of ours, until somebody connects to kVsockEndPort
//   message=64,65536  bytes; each number is a job of its own
//   qd=1,16       connections at the same time; each number is a job
//
// The client is benchmarks/vsock_client.cc; vsock_order.h has the ports.

#ifndef RINGSIDE_TESTS_GUEST_VSOCK_JOB_H_
#define RINGSIDE_TESTS_GUEST_VSOCK_JOB_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "command_line.h"
#include "histogram.h"
#include "vsock_order.h"
#include "wait.h"

namespace guest {

struct VsockJob {
  VsockKind kind = VsockKind::kEcho;
  std::string_view name;
  uint64_t message_bytes = 64;
  uint64_t connections = 1;
  uint64_t runtime_ns = 0;
  uint64_t warmup_ns = 0;
  Wait wait = Wait::kPolled;
  bool verify = false;
  uint64_t seed = 1;
};

constexpr uint64_t kMaxVsockMessage = 65536;
constexpr uint32_t kMaxVsockStreams = 16384;

// The jobs asked for, none without vsock=. A word that cannot be used gives a FAIL line and no job.
std::span<const VsockJob> ReadVsockJobs(const CommandLine& command_line);

// What a job came to. "ios" are messages, or round trips, or connections; those that were measured,
// and all_ios with the others.
struct VsockResult {
  uint64_t ios = 0;
  uint64_t ticks = 0;  // that were measured
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t all_ios = 0;
  uint64_t errors = 0;        // rules broken by the device, interrupts lost
  uint64_t most_streams = 0;  // at the same time
  uint64_t sent_bytes = 0;    // of kOut
  VsockReport client;
  Histogram latency;  // ticks; of kEcho
};

// Prints its line of JSON: the members are those of disks' jobs (measure.h) where they mean the
// same. `error`: null, or why the job could not be done. `transport`: how packets came and went.
void PrintVsockJob(uint64_t number, const VsockJob& job, std::string_view transport,
                   const char* error, const VsockResult& result);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VSOCK_JOB_H_
