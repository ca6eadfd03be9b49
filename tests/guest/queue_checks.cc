// queue-check=N: the pattern through each of N queues of every disk, polled and by interrupt, from
// the processor that the queue belongs to.

#include "apic.h"
#include "checks.h"
#include "console.h"
#include "disk_transfer.h"
#include "disks.h"
#include "processors.h"

namespace guest {
namespace {

// What one queue has to do on its processor.
struct QueueTask {
  VirtioBlk& disk;
  Transfer transfer;
  bool ok = false;
};

void RunQueueTask(void* argument) {
  QueueTask& task = *static_cast<QueueTask*>(argument);
  task.transfer.type = kBlkWrite;
  task.ok = RunTransfer(task.disk, task.transfer);
  task.transfer.type = kBlkRead;
  task.ok = task.ok && RunTransfer(task.disk, task.transfer);
}

// The pattern of `seed` through one queue, from the processor that it interrupts.
bool RunQueue(VirtioBlk& disk, uint16_t number, Wait wait, uint64_t seed) {
  BlkQueue& queue = disk.queues()[number];
  queue.SetWait(wait);
  QueueTask task = {.disk = disk,
                    .transfer = {.seed = seed,
                                 .sectors = PatternRange(disk),
                                 .depth = wait == Wait::kPolled ? kMaxDepth : 1,
                                 .queue = number,
                                 .shapes = Shapes::kOnePiece}};
  const uint32_t interrupts = queue.interrupts();
  const uint32_t processor = ProcessorOf(number);
  if (processor == 0) {
    RunQueueTask(&task);
  } else {
    // A message to the wrong processor does not get through. The line of a disk on MMIO goes here.
    if (disk.on_pci()) SetInterrupts(Interrupts::kHeldBack);
    RunOnProcessor(processor, RunQueueTask, &task);
    const bool done = WaitForProcessors();
    SetInterrupts(Interrupts::kTaken);
    if (!done) return false;
  }
  if (!task.ok) return false;
  Say("disk ", Decimal{uint64_t(disk.index())}, " queue ", Decimal{number},
      " processor=", Decimal{processor}, " wait=", wait == Wait::kPolled ? "poll" : "irq",
      " interrupts=", Decimal{queue.interrupts() - interrupts});
  return true;
}

// Each time with data of its own, the last time with that of `seed` itself.
bool RunQueues(VirtioBlk& disk, uint16_t count, uint64_t seed) {
  uint64_t generation = uint64_t{2} * count;
  for (const Wait wait : {Wait::kPolled, Wait::kInterrupt}) {
    for (uint16_t i = 0; i < count; ++i) {
      --generation;
      if (!RunQueue(disk, i, wait, seed + (generation << 32))) return false;
    }
  }
  return true;
}

}  // namespace

void CheckQueues(uint64_t seed, uint64_t queues) {
  const auto count = static_cast<uint16_t>(queues);
  for (VirtioBlk& disk : Disks()) {
    if (disk.Start({.queues = count}) && RunQueues(disk, count, seed)) {
      Say("disk ", Decimal{uint64_t(disk.index())}, " transport=", disk.transport().name(),
          " queues=", Decimal{count}, " ok");
    }
  }
}

}  // namespace guest
