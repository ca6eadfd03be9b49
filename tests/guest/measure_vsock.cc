// See measure_vsock.h.

#include "measure_vsock.h"

#include <algorithm>
#include <new>

#include "allocator.h"
#include "clock.h"
#include "console.h"
#include "vsock_job.h"
#include "vsock_load.h"

namespace guest {

void MeasureVsock(const CommandLine& command_line) {
  const std::span<const VsockJob> jobs = ReadVsockJobs(command_line);
  if (jobs.empty() || !InitClock()) return;
  VirtioVsock* const vsock = FindVsock();
  if (vsock == nullptr) return;
  uint64_t most_sent = VsockPair::kReceiveBytes;  // what came goes back
  for (const VsockJob& job : jobs) most_sent = std::max(most_sent, job.message_bytes);
  // Once for all jobs: not every device can be reset.
  if (!vsock->Start({.most_sent = static_cast<uint32_t>(most_sent)})) return;
  vsock->pair().SetWait(jobs[0].wait);
  auto* const streams = new (AllocateArray<VsockStreams>(1)) VsockStreams(*vsock, kMaxVsockStreams);
  // Who reads this takes the time between lines: what was before is none of the jobs'.
  Say("vsock ready transport=", vsock->transport().name(), " cid=", Decimal{vsock->cid()});
  const uint64_t mark = AllocatorMark();
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto* const load = new (AllocateArray<VsockLoad>(1)) VsockLoad(*vsock, *streams, jobs[i]);
    const char* const error = load->Run();
    PrintVsockJob(i, jobs[i], vsock->transport().name(), error, load->result());
    if (error != nullptr) return;  // what is under way would be the next one's
    ReleaseMemory(mark);
  }
}

}  // namespace guest
