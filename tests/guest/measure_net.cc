// See measure_net.h.

#include "measure_net.h"

#include <new>

#include "allocator.h"
#include "clock.h"
#include "console.h"
#include "net_job.h"
#include "net_load.h"
#include "virtio_net.h"

namespace guest {

void MeasureNet(const CommandLine& command_line) {
  const std::span<const NetJob> jobs = ReadNetJobs(command_line);
  NetPeer peer;
  if (jobs.empty() || !ReadNetAddresses(command_line, peer) || !InitClock()) return;
  const std::span<VirtioNet> networks = Networks();
  if (networks.empty()) return Say("FAIL measure: expected a network got none");
  VirtioNet& net = networks[0];
  // Once for all jobs: not every device can be reset.
  if (!net.Start({})) return;
  peer.own_mac = net.mac();
  if (!Resolve(net.pair(), peer)) {
    return Say("FAIL measure: expected an answer to ARP got none");
  }
  net.pair().SetWait(jobs[0].wait);
  // Who reads this takes the time between lines: what was before is none of the jobs'.
  Say("net ready transport=", net.transport().name());
  const uint64_t mark = AllocatorMark();
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto* const load =
        new (AllocateArray<NetLoad<NetPair>>(1)) NetLoad<NetPair>(net.pair(), jobs[i], peer);
    const char* const error = load->Run(static_cast<uint32_t>(i));
    PrintNetJob(i, jobs[i], net.transport().name(), error, load->result());
    ReleaseMemory(mark);
  }
  Expect("measure: rules of its queues that the network has broken", 0, net.pair().faults());
}

}  // namespace guest
