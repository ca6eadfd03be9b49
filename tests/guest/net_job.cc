// See net_job.h.

#include "net_job.h"

#include <array>

#include "word_reader.h"

namespace guest {
namespace {

constexpr size_t kMaxJobs = 32;

std::array<NetJob, kMaxJobs> jobs;

NetJob ReadNetJob(WordReader& reader) {
  constexpr uint64_t kMaxNs = 3'600'000 * kNsPerMs;
  constexpr std::array<std::string_view, 3> kKinds = {"echo", "out", "in"};
  constexpr std::array<std::string_view, 2> kWaits = {"poll", "irq"};
  constexpr std::array<std::string_view, 2> kSwitch = {"0", "1"};
  NetJob job;
  const size_t kind = reader.Choice("net", kKinds);
  job.kind = static_cast<NetKind>(kind);
  job.name = kKinds[kind];
  job.runtime_ns = reader.Number("runtime", "1s", kTimeUnits, kNsPerMs, kMaxNs);
  job.warmup_ns = reader.Number("warmup", "50ms", kTimeUnits, 0, kMaxNs);
  job.wait = reader.Choice("wait", kWaits) == 0 ? Wait::kPolled : Wait::kInterrupt;
  job.verify = reader.Choice("verify", kSwitch) == 1;
  job.seed = reader.Number("seed", "1", kNoUnit, 0, uint64_t{1} << 50);
  return job;
}

// The word whose numbers are a job each, beside the frames' lengths.
struct Series {
  std::string_view key;
  std::string_view otherwise;
  uint64_t least;
  uint64_t most;
  uint64_t NetJob::* number;
};

Series SeriesOf(NetKind kind) {
  if (kind == NetKind::kIn) return {"rate", "0", 0, 100'000'000, &NetJob::rate};
  return {"qd", "1", 1, kMaxNetDepth, &NetJob::depth};
}

bool ParseAddress(std::string_view text, uint32_t& address) {
  uint32_t part = 0;
  int digits = 0, dots = 0;
  address = 0;
  for (const char c : text) {
    if (c == '.' && digits > 0 && dots < 3) {
      address = address << 8 | part;
      part = 0;
      digits = 0;
      ++dots;
    } else if (c >= '0' && c <= '9' && digits < 3) {
      part = part * 10 + static_cast<uint32_t>(c - '0');
      ++digits;
    } else {
      return false;
    }
    if (part > 255) return false;
  }
  address = address << 8 | part;
  return dots == 3 && digits > 0;
}

}  // namespace

std::span<const NetJob> ReadNetJobs(const CommandLine& command_line) {
  if (command_line.Get("net").empty()) return {};
  WordReader reader(command_line);
  NetJob job = ReadNetJob(reader);
  const Series series = SeriesOf(job.kind);
  const uint64_t least_frame = job.kind == NetKind::kEcho ? kMinEchoFrame : kMinFrame;
  size_t count = 0;
  for (std::string_view frames = command_line.Get("frame", "64"); !frames.empty();) {
    job.frame_bytes = reader.Parse("frame", PopItem(frames), kNoUnit, least_frame, kMaxNetFrame);
    std::string_view numbers = command_line.Get(series.key, series.otherwise);
    if (job.kind == NetKind::kOut) numbers = series.otherwise;
    while (!numbers.empty()) {
      job.*series.number =
          reader.Parse(series.key, PopItem(numbers), kNoUnit, series.least, series.most);
      if (count == kMaxJobs) reader.Refuse("frame", "more than 32 jobs");
      if (!reader.ok()) return {};
      jobs[count++] = job;
    }
  }
  if (!reader.ok()) return {};
  return {jobs.data(), count};
}

bool ReadNetAddresses(const CommandLine& command_line, NetPeer& peer) {
  struct Address {
    std::string_view key;
    std::string_view otherwise;
    uint32_t* address;
  };
  WordReader reader(command_line);
  for (const auto& [key, otherwise, address] :
       {Address{"net-own", "10.77.0.2", &peer.own_address},
        Address{"net-host", "10.77.0.1", &peer.host_address}}) {
    const std::string_view text = command_line.Get(key, otherwise);
    if (!ParseAddress(text, *address)) reader.Refuse(key, text);
  }
  return reader.ok();
}

}  // namespace guest
