// What the command line asks to be measured, in the words of fio where it has them:
//
//   rw=randread   randread, randwrite, randrw, read, write or rw; without this word nothing is
//                 measured
//   rwmix=70      percent of reads of the two mixed ones
//   bs=4k         bytes of a request; k, M and G are powers of 1024
//   qd=1,2,4      requests in flight a queue; each number is a job of its own
//   queues=1      queue i is served by processor i
//   runtime=1s    of each job; s or ms
//   warmup=50ms   before it, not measured
//   size=64M      the part of the disk that is used, from its start (default: all; with verify=1 at
//                 most 64M)
//   wait=poll     for completions; or irq: looks at the ring after interrupts only
//   verify=1      writes all of that part first and checks every byte that is read
//   seed=1
//   rate=20000    open loop: requests arrive at this rate a second whatever the disk does, and
//                 latency counts from the arrival; several numbers are a job each. Without it a
//                 request follows each completion
//   arrival=periodic  or poisson
//
// In a closed loop, with wait=irq as Linux's driver does it: completions are looked at after
// interrupts, which may come at any time, also during work.
//   think=20us    from a completion's being seen to the next request in its place, as of a user who
//                 thinks; the other requests in flight go on meanwhile. 0us: only as Linux's driver
//                 does it
//   think-serial=20us  the guest works for so long on each completion before the next request in
//   its
//                 place, on one after the other, as a program of one thread does
//   depth1=1      one request in flight beside the others, as of a second program that does nothing
//   else
//                 and that is served first, between two steps of the others' work; reported apart

#ifndef RINGSIDE_TESTS_GUEST_JOB_H_
#define RINGSIDE_TESTS_GUEST_JOB_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "arrivals.h"
#include "command_line.h"
#include "virtio_blk.h"

namespace guest {

struct Job {
  std::string_view rw;
  bool random = false;
  uint64_t read_percent = 100;
  uint64_t block_bytes = 4096;
  uint64_t depth = 1;
  uint64_t queues = 1;
  uint64_t runtime_ns = 0;
  uint64_t warmup_ns = 0;
  uint64_t size = 0;  // 0: all
  Wait wait = Wait::kPolled;
  bool verify = false;
  uint64_t seed = 1;
  uint64_t rate = 0;  // a second; 0: closed loop
  ArrivalKind arrival = ArrivalKind::kPeriodic;
  bool thinks = false;  // any of the three words above
  uint64_t think_ns = 0;
  bool serial = false;  // the processor is busy while it thinks
  bool depth1 = false;
};

constexpr uint64_t kMaxJobDepth = 256;

// The jobs asked for, none without rw=. A word that cannot be used gives a FAIL line and no job.
std::span<const Job> ReadJobs(const CommandLine& command_line);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_JOB_H_
