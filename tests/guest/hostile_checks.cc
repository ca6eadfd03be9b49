// hostile=NAME. See hostile.h.

#include <array>
#include <cstring>

#include "allocator.h"
#include "checks.h"
#include "console.h"
#include "deadline.h"
#include "disks.h"
#include "hostile.h"

namespace guest {
namespace {

constexpr size_t kMaxSamples = 8;

// The first page of each disk, as Learn found it.
std::array<uint8_t*, kMaxSamples> samples;

bool ReadFirstPage(VirtioBlk& disk, uint8_t* page) {
  static constinit BlkRequest request;
  request.Set(kBlkRead, 0);
  request.AddData(reinterpret_cast<uint64_t>(page), kPageSize);
  return Expect("ordinary read", kBlkOk, disk.Do(request));
}

bool LearnFirstPage(VirtioBlk& disk) {
  uint8_t*& sample = samples[static_cast<size_t>(disk.index())];
  if (sample == nullptr) sample = AllocateArray<uint8_t>(kPageSize);
  return ReadFirstPage(disk, sample);
}

bool Serve(VirtioBlk& disk) {
  static constinit uint8_t* page = nullptr;
  if (page == nullptr) page = AllocateArray<uint8_t>(kPageSize);
  std::memset(page, 0xa5, kPageSize);
  if (!ReadFirstPage(disk, page)) return false;
  const uint8_t* const sample = samples[static_cast<size_t>(disk.index())];
  return Expect("ordinary read gives the same", 0, std::memcmp(page, sample, kPageSize) != 0);
}

// A device that has come back from a reset does all it did before.
bool ServeInEveryWay(HostileTarget& target) {
  for (const Wait wait : {Wait::kPolled, Wait::kInterrupt}) {
    if (!target.disk().Start({.wait = wait})) return false;
    for (int i = 0; i < 3; ++i) {
      if (!target.ServeDisk()) return false;
    }
  }
  return true;
}

bool Run(const Behaviour& behaviour, HostileTarget target) {
  if (!target.disk().Start({})) return false;
  const bool ok = behaviour.run(target) & target.ServeOther();
  return SayHarmless(behaviour.name, ServeInEveryWay(target) && target.ServeOther() && ok);
}

}  // namespace

bool SayHarmless(std::string_view behaviour, bool ok) {
  if (ok) {
    Say("hostile ", behaviour, " ok");
  } else {
    Say("FAIL hostile: expected ", behaviour, " to do no harm got the above");
  }
  return ok;
}

bool HostileTarget::Learn() {
  return LearnFirstPage(disk_) && (other_ == nullptr || LearnFirstPage(*other_));
}

bool HostileTarget::ServeDisk() {
  return Serve(disk_);
}

bool HostileTarget::ServeOther() {
  return other_ == nullptr || Serve(*other_);
}

bool HostileTarget::IsFirstPage(uint64_t address) const {
  const uint8_t* const sample = samples[static_cast<size_t>(disk_.index())];
  return std::memcmp(reinterpret_cast<const void*>(address), sample, kPageSize) == 0;
}

void HostileTarget::CopyFirstPage(uint64_t to) const {
  const uint8_t* const sample = samples[static_cast<size_t>(disk_.index())];
  std::memcpy(reinterpret_cast<void*>(to), sample, kPageSize);
}

const HostileMemory& Memory() {
  static constinit HostileMemory memory = {};
  if (memory.header == nullptr) {
    memory.header = AllocateArray<BlkRequest::Header>(kPageSize / sizeof(BlkRequest::Header));
    memory.status = AllocateArray<uint8_t>(kPageSize);
    memory.data = AllocatePages(HostileMemory::kDataSize);
    memory.table = AllocateArray<Descriptor>(kPageSize / sizeof(Descriptor));
  }
  return memory;
}

Outcome AwaitOutcome(VirtioBlk& disk, uint16_t used_index) {
  return AwaitOutcome(disk.transport(), disk.queue(), used_index);
}

Outcome AwaitOutcome(const VirtioTransport& transport, const Virtqueue& queue,
                     uint16_t used_index) {
  const auto answered = [&] { return queue.used_index() != used_index; };
  SpinUntil([&] { return answered() || transport.NeedsReset(); });
  if (transport.NeedsReset()) return Outcome::kNeedsReset;
  return answered() ? Outcome::kAnswered : Outcome::kNothing;
}

std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNothing:
      return "nothing";
    case Outcome::kNeedsReset:
      return "needs-reset";
    case Outcome::kAnswered:
      return "answered";
  }
  return "";
}

void Offer(VirtioBlk& disk, uint16_t head) {
  disk.queue().AddHead(head);
  disk.queue().Publish();
  disk.pci().Kick(0);
}

void CheckHostile(std::string_view name) {
  const std::span<VirtioBlk> disks = Disks();
  if (disks.empty() || !disks[0].on_pci())
    return Say("FAIL hostile: expected a disk on PCI got none");
  VirtioBlk* const other = disks.size() > 1 ? &disks[1] : nullptr;
  for (VirtioBlk& disk : disks) {
    if (!disk.Start({})) return;
  }
  if (!HostileTarget(disks[0], other, name).Learn()) return;
  bool found = false;
  for (const auto& behaviours : {ChainBehaviours(), RingBehaviours(), RegisterBehaviours(),
                                 BarBehaviours(), InterruptBehaviours()}) {
    for (const Behaviour& behaviour : behaviours) {
      if (name != "all" && name != behaviour.name) continue;
      found = true;
      Run(behaviour, HostileTarget(disks[0], other, behaviour.name));
    }
  }
  if (!found) Say("FAIL hostile: expected a name it knows got ", name);
}

}  // namespace guest
