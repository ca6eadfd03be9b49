// See vsock_job.h.

#include "vsock_job.h"

#include <array>

#include "clock.h"
#include "json_line.h"
#include "word_reader.h"

namespace guest {
namespace {

constexpr size_t kMaxJobs = 32;

std::array<VsockJob, kMaxJobs> jobs;

VsockJob ReadVsockJob(WordReader& reader) {
  constexpr uint64_t kMaxNs = 3'600'000 * kNsPerMs;
  constexpr std::array<std::string_view, 4> kKinds = {"echo", "out", "flood", "serve"};
  constexpr std::array<std::string_view, 2> kWaits = {"poll", "irq"};
  constexpr std::array<std::string_view, 2> kSwitch = {"0", "1"};
  VsockJob job;
  const size_t kind = reader.Choice("vsock", kKinds);
  job.kind = static_cast<VsockKind>(kind);
  job.name = kKinds[kind];
  job.runtime_ns = reader.Number("runtime", "1s", kTimeUnits, kNsPerMs, kMaxNs);
  job.warmup_ns = reader.Number("warmup", "50ms", kTimeUnits, 0, kMaxNs);
  job.wait = reader.Choice("wait", kWaits) == 0 ? Wait::kPolled : Wait::kInterrupt;
  job.verify = reader.Choice("verify", kSwitch) == 1;
  job.seed = reader.Number("seed", "1", kNoUnit, 0, uint64_t{1} << 50);
  return job;
}

void PrintResult(JsonLine& line, const VsockJob& job, const VsockResult& result) {
  line.Add("runtime_ns", TicksToNs(result.ticks));
  line.Add("ios", result.ios);
  line.Add("bytes", result.ios * job.message_bytes);
  line.Add("all_ios", result.all_ios);
  line.Add("errors", result.errors);
  line.Add("mismatches", result.client.mismatches);
  line.Add("most_streams", result.most_streams);
  line.Add("sent_bytes", result.sent_bytes);
  line.Add("client_bytes", result.client.bytes);
  line.Add("client_connections", result.client.connections);
  line.Add("client_refused", result.client.refused);
  line.Add("kicks", result.kicks);
  line.Add("interrupts", result.interrupts);
  if (job.kind != VsockKind::kEcho) return;
  PrintLatency(line, result.latency);
  PrintHistogram(line, result.latency);
}

}  // namespace

std::span<const VsockJob> ReadVsockJobs(const CommandLine& command_line) {
  if (command_line.Get("vsock").empty()) return {};
  WordReader reader(command_line);
  VsockJob job = ReadVsockJob(reader);
  size_t count = 0;
  for (std::string_view messages = command_line.Get("message", "64"); !messages.empty();) {
    job.message_bytes =
        reader.Parse("message", PopItem(messages), kSizeUnits, kVsockNumberBytes, kMaxVsockMessage);
    for (std::string_view numbers = command_line.Get("qd", "1"); !numbers.empty();) {
      job.connections = reader.Parse("qd", PopItem(numbers), kNoUnit, 1, kMaxVsockStreams - 1);
      if (count == kMaxJobs) reader.Refuse("message", "more than 32 jobs");
      if (!reader.ok()) return {};
      jobs[count++] = job;
    }
  }
  if (!reader.ok()) return {};
  return {jobs.data(), count};
}

void PrintVsockJob(uint64_t number, const VsockJob& job, std::string_view transport,
                   const char* error, const VsockResult& result) {
  JsonLine line;
  line.Add("job", number);
  line.Add("vsock", job.name);
  line.Add("message", job.message_bytes);
  line.Add("qd", job.connections);
  line.Add("wait", job.wait == Wait::kPolled ? "poll" : "irq");
  line.Add("transport", transport);
  if (error != nullptr) {
    line.Add("error", error);
  } else {
    PrintResult(line, job, result);
  }
  line.End();
}

}  // namespace guest
