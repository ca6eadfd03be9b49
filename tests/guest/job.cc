// See job.h.

#include "job.h"

#include <algorithm>
#include <array>

#include "word_reader.h"

namespace guest {
namespace {

constexpr size_t kMaxJobs = 32;

struct Pattern {
  std::string_view name;
  bool random;
  bool mixed;
  uint64_t read_percent;
};
constexpr std::array kPatterns = {
    Pattern{"randread", true, false, 100}, Pattern{"randwrite", true, false, 0},
    Pattern{"randrw", true, true, 0},      Pattern{"read", false, false, 100},
    Pattern{"write", false, false, 0},     Pattern{"rw", false, true, 0},
};

void ReadPattern(WordReader& reader, const CommandLine& words, Job& job) {
  job.rw = words.Get("rw");
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name != job.rw) continue;
    job.random = pattern.random;
    const uint64_t mix = reader.Number("rwmix", "50", kNoUnit, 0, 100);
    job.read_percent = pattern.mixed ? mix : pattern.read_percent;
    return;
  }
  reader.Refuse("rw", job.rw);
}

void ReadThinking(WordReader& reader, const CommandLine& words, Job& job) {
  constexpr uint64_t kMaxThinkNs = 1000 * kNsPerMs;
  constexpr std::array<std::string_view, 2> kSwitch = {"0", "1"};
  job.serial = !words.Get("think-serial").empty();
  if (job.serial && !words.Get("think").empty()) reader.Refuse("think", "it and think-serial");
  job.think_ns =
      reader.Number(job.serial ? "think-serial" : "think", "0us", kTimeUnits, 0, kMaxThinkNs);
  job.depth1 = reader.Choice("depth1", kSwitch) == 1;
  job.thinks = job.serial || job.depth1 || !words.Get("think").empty();
  if (job.thinks && !words.Get("rate").empty()) {
    reader.Refuse("rate", "an open loop of users who think");
  }
}

Job ReadJob(WordReader& reader, const CommandLine& words) {
  constexpr uint64_t kMaxNs = 3'600'000 * kNsPerMs;
  constexpr std::array<std::string_view, 2> kWaits = {"poll", "irq"};
  constexpr std::array<std::string_view, 2> kSwitch = {"0", "1"};
  constexpr std::array<std::string_view, 2> kArrivals = {"periodic", "poisson"};
  Job job;
  ReadPattern(reader, words, job);
  job.block_bytes = reader.Number("bs", "4k", kSizeUnits, kSectorSize, 1 << 20);
  if (job.block_bytes % kSectorSize != 0) reader.Refuse("bs", words.Get("bs"));
  job.queues = reader.Number("queues", "1", kNoUnit, 1, 16);
  job.runtime_ns = reader.Number("runtime", "1s", kTimeUnits, kNsPerMs, kMaxNs);
  job.warmup_ns = reader.Number("warmup", "50ms", kTimeUnits, 0, kMaxNs);
  job.size = reader.Number("size", "0", kSizeUnits, 0, uint64_t{1} << 50);
  job.wait = reader.Choice("wait", kWaits) == 0 ? Wait::kPolled : Wait::kInterrupt;
  job.verify = reader.Choice("verify", kSwitch) == 1;
  job.seed = reader.Number("seed", "1", kNoUnit, 0, uint64_t{1} << 50);
  job.arrival =
      reader.Choice("arrival", kArrivals) == 0 ? ArrivalKind::kPeriodic : ArrivalKind::kPoisson;
  ReadThinking(reader, words, job);
  return job;
}

std::array<Job, kMaxJobs> jobs;

}  // namespace

std::span<const Job> ReadJobs(const CommandLine& command_line) {
  if (command_line.Get("rw").empty()) return {};
  WordReader reader(command_line);
  Job job = ReadJob(reader, command_line);
  size_t count = 0;
  for (std::string_view rates = command_line.Get("rate", "0"); !rates.empty();) {
    job.rate = reader.Parse("rate", PopItem(rates), kNoUnit, 0, 100'000'000);
    for (std::string_view depths = command_line.Get("qd", "1"); !depths.empty();) {
      job.depth = reader.Parse("qd", PopItem(depths), kNoUnit, 1, kMaxJobDepth);
      if (count == kMaxJobs) reader.Refuse("qd and rate", "more than 32 jobs");
      if (!reader.ok()) return {};
      jobs[count++] = job;
    }
  }
  if (!reader.ok()) return {};
  return {jobs.data(), count};
}

}  // namespace guest
