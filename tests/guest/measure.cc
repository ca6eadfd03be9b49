// See measure.h.

#include "measure.h"

#include <algorithm>
#include <new>

#include "allocator.h"
#include "clock.h"
#include "console.h"
#include "job.h"
#include "machine.h"
#include "measured_queue.h"
#include "virtio_blk.h"

namespace guest {
namespace {

constexpr uint64_t kVerifiedSize = 64 << 20;  // unless the command line says more

// A line of JSON on the console.
class JsonLine {
 public:
  JsonLine() { Print('{'); }
  void End() { Print("}\n"); }

  void Add(std::string_view name, uint64_t value) {
    Name(name);
    Print(Decimal{value});
  }
  void Add(std::string_view name, std::string_view text) {
    Name(name);
    Print('"');
    Print(text);
    Print('"');
  }
  // What is added until Close is within it.
  void Open(std::string_view name, char bracket) {
    Name(name);
    Print(bracket);
    first_ = true;
  }
  void Close(char bracket) {
    Print(bracket);
    first_ = false;
  }
  void AddPair(uint64_t a, uint64_t b) {
    if (!first_) Print(',');
    first_ = false;
    Print('[');
    Print(Decimal{a});
    Print(',');
    Print(Decimal{b});
    Print(']');
  }

 private:
  void Name(std::string_view name) {
    if (!first_) Print(',');
    first_ = false;
    Print('"');
    Print(name);
    Print("\":");
  }

  bool first_ = true;
};

void PrintLatency(JsonLine& line, const Histogram& latency) {
  line.Open("latency_ns", '{');
  line.Add("min", TicksToNs(latency.min()));
  line.Add("mean", TicksToNs(latency.mean()));
  line.Add("p50", TicksToNs(latency.Quantile(50, 100)));
  line.Add("p90", TicksToNs(latency.Quantile(90, 100)));
  line.Add("p99", TicksToNs(latency.Quantile(99, 100)));
  line.Add("p999", TicksToNs(latency.Quantile(999, 1000)));
  line.Add("p9999", TicksToNs(latency.Quantile(9999, 10000)));
  line.Add("max", TicksToNs(latency.max()));
  line.Close('}');
  line.Open("histogram", '[');
  for (size_t i = 0; i < Histogram::kBuckets; ++i) {
    if (latency.count(i) == 0) continue;
    line.AddPair(TicksToNs(Histogram::Lower(i)), latency.count(i));
  }
  line.Close(']');
}

void PrintJob(JsonLine& line, uint64_t number, const Job& job) {
  line.Add("job", number);
  line.Add("rw", job.rw);
  line.Add("bs", job.block_bytes);
  line.Add("qd", job.depth);
  line.Add("queues", job.queues);
  line.Add("wait", job.wait == Wait::kPolled ? "poll" : "irq");
  line.Add("transport", "pci");
  line.Add("loop", job.rate == 0 ? "closed" : "open");
  line.Add("rate", job.rate);
}

void PrintResult(JsonLine& line, const Job& job, const QueueResult& result) {
  const uint64_t ios = result.reads + result.writes;
  line.Add("runtime_ns", TicksToNs(result.ticks));
  line.Add("ios", ios);
  line.Add("reads", result.reads);
  line.Add("writes", result.writes);
  line.Add("bytes", ios * job.block_bytes);
  line.Add("errors", result.errors);
  line.Add("mismatches", result.mismatches);
  line.Add("late", result.late);
  line.Add("kicks", result.kicks);
  line.Add("interrupts", result.interrupts);
  PrintLatency(line, result.latency);
}

// Null if it was done, else why it could not be.
const char* RunJob(VirtioBlk& disk, const Job& job, MeasuredQueue& queue) {
  if (!disk.Start({.wait = job.wait})) return "the disk cannot be started";
  if (job.read_percent < 100 && disk.read_only()) return "the disk is read-only";
  if (job.block_bytes % (disk.block_sectors() * kSectorSize) != 0) return "bs is not whole blocks";
  uint64_t bytes = disk.sectors() * kSectorSize;
  if (job.size != 0 || job.verify) {
    bytes = std::min(bytes, job.size != 0 ? job.size : kVerifiedSize);
  }
  if (job.queues > 1) return "queues";
  if (!queue.Prepare(disk, job, {0, bytes / job.block_bytes}, job.seed)) {
    return "qd is more than the ring or the disk has room for";
  }
  if (job.verify && !queue.WriteAll()) return "the disk cannot be written";
  queue.Run(TimeStamp());
  if (job.verify && !queue.CheckAll()) return "what was written is not there";
  return nullptr;
}

}  // namespace

void Measure(const CommandLine& command_line) {
  const std::span<const Job> jobs = ReadJobs(command_line);
  if (jobs.empty() || !InitClock()) return;
  const std::span<VirtioBlk> disks = Disks();
  if (disks.empty()) return Say("FAIL measure: expected a disk got none");
  if (!disks[0].Start({})) return;  // so that its rings are allocated before the mark
  const uint64_t mark = AllocatorMark();
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto* const queue = new (AllocateArray<MeasuredQueue>(1)) MeasuredQueue;
    const char* const error = RunJob(disks[0], jobs[i], *queue);
    JsonLine line;
    PrintJob(line, i, jobs[i]);
    if (error != nullptr) {
      line.Add("error", error);
    } else {
      PrintResult(line, jobs[i], queue->result());
    }
    line.End();
    disks[0].pci().Reset();
    ReleaseMemory(mark);
  }
}

}  // namespace guest
