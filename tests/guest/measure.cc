// See measure.h.

#include "measure.h"

#include <algorithm>
#include <array>
#include <new>

#include "allocator.h"
#include "clock.h"
#include "console.h"
#include "disks.h"
#include "job.h"
#include "json_line.h"
#include "machine.h"
#include "measured_queue.h"
#include "processors.h"
#include "virtio_blk.h"

namespace guest {
namespace {

constexpr uint64_t kVerifiedSize = 64 << 20;  // unless the command line says more

void PrintJob(JsonLine& line, uint64_t number, const Job& job, std::string_view transport) {
  line.Add("job", number);
  line.Add("rw", job.rw);
  line.Add("bs", job.block_bytes);
  line.Add("qd", job.depth);
  line.Add("queues", job.queues);
  line.Add("wait", job.wait == Wait::kPolled ? "poll" : "irq");
  line.Add("transport", transport);
  line.Add("loop", job.rate == 0 ? "closed" : "open");
  line.Add("rate", job.rate);
  line.Add("think_ns", job.think_ns);
  line.Add("serial", job.serial ? 1 : 0);
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
  PrintHistogram(line, result.latency);
  if (!job.depth1) return;
  line.Open("depth1", '{');
  line.Add("ios", result.depth1.total());
  PrintLatency(line, result.depth1);
  line.Close('}');
}

// The queues under load, made anew for each job, and what they did together.
class Measurement {
 public:
  // Null if the job was done, else why it could not be.
  const char* Run(VirtioBlk& disk, const Job& job);
  const QueueResult& result() const { return total_; }

 private:
  bool Prepare(VirtioBlk& disk, const Job& job);
  template <typename Function>
  bool All(Function function) {
    for (uint64_t i = 0; i < count_; ++i) {
      if (!function(queues_[i])) return false;
    }
    return true;
  }
  void RunAll();
  void AddUp();

  MeasuredQueue* queues_ = nullptr;
  uint64_t count_ = 0;
  QueueResult total_;
};

const char* Measurement::Run(VirtioBlk& disk, const Job& job) {
  if (job.read_percent < 100 && disk.read_only()) return "the disk is read-only";
  if (job.block_bytes % (disk.block_sectors() * kSectorSize) != 0) return "bs is not whole blocks";
  if (!Prepare(disk, job)) return "qd is more than the ring or the disk has room for";
  const bool ready = All(
      [&job](MeasuredQueue& queue) { return job.verify ? queue.WriteAll() : queue.Rehearse(); });
  if (!ready) return "the disk answers with errors";
  RunAll();
  if (job.verify && !All([](MeasuredQueue& queue) { return queue.CheckAll(); })) {
    return "what was written is not there";
  }
  AddUp();
  return nullptr;
}

bool Measurement::Prepare(VirtioBlk& disk, const Job& job) {
  count_ = job.queues;
  queues_ = AllocateArray<MeasuredQueue>(count_);
  uint64_t bytes = disk.sectors() * kSectorSize;
  if (job.size != 0 || job.verify) {
    bytes = std::min(bytes, job.size != 0 ? job.size : kVerifiedSize);
  }
  const uint64_t blocks = bytes / job.block_bytes / count_;
  for (uint64_t i = 0; i < count_; ++i) {
    const MeasuredQueue::Range range = {i * blocks * job.block_bytes / kSectorSize, blocks};
    auto* const queue = new (&queues_[i]) MeasuredQueue;
    if (!queue->Prepare(disk.queues()[i], job, range, job.seed + i)) return false;
  }
  return true;
}

// All at once, queue i on processor i.
void Measurement::RunAll() {
  struct Start {
    MeasuredQueue* queue;
    uint64_t tick;
  };
  constexpr uint64_t kHeadStartNs = 2'000'000;  // for the other processors to get going
  const uint64_t tick = TimeStamp() + NsToTicks(kHeadStartNs);
  std::array<Start, VirtioTransport::kMaxQueues> starts;
  const auto run = [](void* argument) {
    const Start& start = *static_cast<Start*>(argument);
    start.queue->Run(start.tick);
  };
  for (uint64_t i = count_; i-- > 0;) {
    starts[i] = {&queues_[i], tick};
    if (i == 0) {
      run(&starts[i]);
    } else {
      RunOnProcessor(static_cast<uint32_t>(i), run, &starts[i]);
    }
  }
  WaitForProcessors();
}

void Measurement::AddUp() {
  for (uint64_t i = 0; i < count_; ++i) {
    const QueueResult& one = queues_[i].result();
    total_.reads += one.reads;
    total_.writes += one.writes;
    total_.errors += one.errors;
    total_.mismatches += one.mismatches;
    total_.late += one.late;
    total_.kicks += one.kicks;
    total_.interrupts += one.interrupts;
    total_.ticks = std::max(total_.ticks, one.ticks);
    total_.latency.Merge(one.latency);
    total_.depth1.Merge(one.depth1);
  }
}

}  // namespace

void Measure(const CommandLine& command_line) {
  const std::span<const Job> jobs = ReadJobs(command_line);
  if (jobs.empty() || !InitClock()) return;
  const std::span<VirtioBlk> disks = Disks();
  if (disks.empty()) return Say("FAIL measure: expected a disk got none");
  VirtioBlk& disk = disks[0];
  const auto queues = static_cast<uint16_t>(jobs[0].queues);
  // Once for all jobs: not every device can be reset.
  if (!StartProcessors(queues) || !disk.Start({.queues = queues})) return;
  const uint64_t mark = AllocatorMark();
  for (size_t i = 0; i < jobs.size(); ++i) {
    auto* const measurement = new (AllocateArray<Measurement>(1)) Measurement;
    const char* const error = measurement->Run(disk, jobs[i]);
    JsonLine line;
    PrintJob(line, i, jobs[i], disk.transport().name());
    if (error != nullptr) {
      line.Add("error", error);
    } else {
      PrintResult(line, jobs[i], measurement->result());
    }
    line.End();
    ReleaseMemory(mark);
  }
}

}  // namespace guest
