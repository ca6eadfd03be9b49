// See net_result.h.

#include "net_result.h"

#include "clock.h"
#include "json_line.h"

namespace guest {
namespace {

void PrintResult(JsonLine& line, const NetJob& job, const NetResult& result) {
  line.Add("runtime_ns", TicksToNs(result.ticks));
  line.Add("ios", result.ios);
  line.Add("bytes", result.ios * job.frame_bytes);
  line.Add("all_ios", result.all_ios);
  line.Add("errors", result.errors);
  line.Add("mismatches", result.mismatches);
  line.Add("lost", result.lost);
  line.Add("reordered", result.reordered);
  line.Add("duplicates", result.duplicates);
  line.Add("sent", result.sent);
  line.Add("full", result.full);
  line.Add("kicks", result.kicks);
  line.Add("interrupts", result.interrupts);
  if (job.kind != NetKind::kEcho) return;
  PrintLatency(line, result.latency);
  PrintHistogram(line, result.latency);
}

}  // namespace

void PrintNetJob(uint64_t number, const NetJob& job, std::string_view transport, const char* error,
                 const NetResult& result) {
  JsonLine line;
  line.Add("job", number);
  line.Add("net", job.name);
  line.Add("frame", job.frame_bytes);
  line.Add("qd", job.depth);
  line.Add("wait", job.wait == Wait::kPolled ? "poll" : "irq");
  line.Add("transport", transport);
  line.Add("rate", job.rate);
  if (error != nullptr) {
    line.Add("error", error);
  } else {
    PrintResult(line, job, result);
  }
  line.End();
}

}  // namespace guest
