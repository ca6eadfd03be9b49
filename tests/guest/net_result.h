// What a job of net_job.h came to, and its line of JSON: the members are those of disks' jobs
// (measure.h) where they mean the same. "ios" are frames, or round trips of net=echo; "lost" and
// "reordered" are of all frames of the job, the warm-up's included. Of net=in, "sent" is what the
// host has numbered and "full" how often the network had no room for one.

#ifndef RINGSIDE_TESTS_GUEST_NET_RESULT_H_
#define RINGSIDE_TESTS_GUEST_NET_RESULT_H_

#include <cstdint>
#include <string_view>

#include "histogram.h"
#include "net_job.h"

namespace guest {

// Frames and what they cost are of the measured time, the rest of everything.
struct NetResult {
  uint64_t ios = 0;
  uint64_t ticks = 0;  // that were measured
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t all_ios = 0;  // with those of the warm-up and after the end
  uint64_t errors = 0;
  uint64_t mismatches = 0;
  uint64_t lost = 0;
  uint64_t reordered = 0;
  uint64_t duplicates = 0;
  uint64_t sent = 0;
  uint64_t full = 0;
  Histogram latency;  // ticks; of net=echo
};

// `error`: null, or why the job could not be done. `transport`: how frames came and went.
void PrintNetJob(uint64_t number, const NetJob& job, std::string_view transport, const char* error,
                 const NetResult& result);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_NET_RESULT_H_
