// MSI-X vectors masked, unmasked, moved and switched off while interrupts come. A message that
// falls into a mask must come when the mask goes (PCI 3.0 section 6.8.3.5); completions never
// depend on any of it.

#include <array>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "deadline.h"
#include "hostile.h"
#include "random.h"

namespace guest {
namespace {

constexpr uint16_t kEntry = VirtioPci::QueueEntry(0);

// A slot that no disk uses.
constexpr int kSpareSlot = kMessageSlots - 1;

// One read, its interrupt asked for beforehand, its completion found by polling.
bool ReadWithInterruptAskedFor(HostileTarget& target) {
  target.disk().queue().RequestInterrupt();
  return target.ServeDisk();
}

bool ExpectMessage(int slot, uint32_t before) {
  if (!SpinUntil([=] { return MessageCount(slot) != before; })) {
    return Expect("message: came", 1, 0);
  }
  return Expect("message: came once", before + 1, MessageCount(slot));
}

// Masks by `mask`, completes a request, unmasks.
template <typename SetMask>
bool MaskHoldsBack(HostileTarget& target, SetMask mask) {
  VirtioBlk& disk = target.disk();
  const Msix& msix = disk.pci().msix();
  for (int i = 0; i < 20; ++i) {
    mask(true);
    const uint32_t before = MessageCount(disk.pci().QueueSlot(0));
    if (!ReadWithInterruptAskedFor(target)) return false;
    if (!SpinUntil([&] { return msix.IsPending(kEntry); })) {
      return Expect("mask: pending bit", 1, 0);
    }
    if (!Expect("mask: messages while masked", before, MessageCount(disk.pci().QueueSlot(0)))) {
      return false;
    }
    mask(false);
    if (!ExpectMessage(disk.pci().QueueSlot(0), before)) return false;
    if (!Expect("mask: pending bit afterwards", 0, msix.IsPending(kEntry))) return false;
  }
  return target.ServeOther();
}

bool VectorMasked(HostileTarget& target) {
  Msix& msix = target.disk().pci().msix();
  return MaskHoldsBack(target, [&](bool masked) { msix.SetMask(kEntry, masked); });
}

bool FunctionMasked(HostileTarget& target) {
  Msix& msix = target.disk().pci().msix();
  return MaskHoldsBack(target, [&](bool masked) { msix.SetFunctionMask(masked); });
}

// The message written while masked is the one that comes.
bool MessageRewritten(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  const Msix& msix = disk.pci().msix();
  for (int i = 0; i < 20; ++i) {
    const int slot = i % 2 == 0 ? kSpareSlot : disk.pci().QueueSlot(0);
    msix.SetMask(kEntry, true);
    msix.WriteMessage(kEntry, slot);
    const uint32_t before = MessageCount(slot);
    if (i % 4 < 2) msix.SetMask(kEntry, false);
    if (!ReadWithInterruptAskedFor(target)) return false;
    msix.SetMask(kEntry, false);
    if (!ExpectMessage(slot, before)) return false;
  }
  return target.ServeOther();
}

// All at once, with requests in flight and nothing expected but their completion.
bool Storm(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  Msix& msix = disk.pci().msix();
  static constinit std::array<BlkRequest, 8> requests;
  static constinit uint64_t memory = 0;
  if (memory == 0) memory = AllocatePages(kPageSize);
  Random random(15);
  for (int round = 0; round < 60; ++round) {
    for (BlkRequest& request : requests) {
      request.Set(kBlkRead, 0);
      request.AddData(memory, kPageSize);
      if (!Expect("storm: room in the ring", 1, disk.Submit(request))) return false;
    }
    disk.queue().RequestInterrupt();
    disk.Kick();
    for (int i = 0; i < 6; ++i) {
      const bool on = random.Below(2) == 0;
      switch (random.Below(4)) {
        case 0:
          msix.SetMask(kEntry, on);
          break;
        case 1:
          msix.SetFunctionMask(on);
          break;
        case 2:
          msix.SetEnabled(on);
          break;
        default:
          msix.WriteMessage(kEntry, on ? kSpareSlot : disk.pci().QueueSlot(0));
          break;
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const BlkRequest* const request = disk.Next();
      if (request == nullptr || !Expect("storm: status", kBlkOk, request->status)) return false;
    }
    if (round % 10 == 0 && !target.ServeOther()) return false;
  }
  msix.SetFunctionMask(false);
  return true;
}

// Messages to where no processor is, vectors that do not exist, and table entries beyond the last.
bool Nonsense(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  Msix& msix = disk.pci().msix();
  const uint64_t entry = msix.table() + uint64_t{16} * kEntry;
  const uint32_t vector = static_cast<uint32_t>(kFirstMessageVector + kSpareSlot);
  // Processor 254, and addresses that are no messages. Delivery modes stay fixed: others would
  // stop or reset this processor, as they should.
  for (const uint64_t address : {uint64_t{0xfeefe000}, kHole, kBeyondMemory, kWrapping}) {
    Store<uint32_t>(entry, static_cast<uint32_t>(address));
    Store<uint32_t>(entry + 4, static_cast<uint32_t>(address >> 32));
    Store<uint32_t>(entry + 8, vector);
    Store<uint32_t>(entry + 12, 0);
    if (!ReadWithInterruptAskedFor(target)) return false;
  }
  for (const uint64_t offset : {uint64_t{1}, uint64_t{2}, uint64_t{6}, uint64_t{13}}) {
    Load<uint8_t>(entry + offset);
    Load<uint16_t>(entry + offset);
    Load<uint64_t>(entry + offset);
    Store<uint8_t>(entry + offset, 0xff);
    Store<uint16_t>(entry + offset, 0xffff);
  }
  const uint64_t behind = msix.table() + uint64_t{16} * msix.size();
  Store<uint64_t>(behind, ~uint64_t{0});
  Store<uint64_t>(behind + 8, ~uint64_t{0});
  const uint64_t common = disk.pci().common().address;
  for (const uint64_t at : {common_config::kConfigVector, common_config::kQueueVector}) {
    Store<uint16_t>(common + at, msix.size());
    if (!Expect("vector that does not exist: reads back", kNoVector, Load<uint16_t>(common + at))) {
      return false;
    }
  }
  return target.ServeDisk() && target.ServeOther();
}

constexpr auto kBehaviours = std::to_array<Behaviour>({
    {"vector-masked", VectorMasked},
    {"function-masked", FunctionMasked},
    {"message-rewritten", MessageRewritten},
    {"interrupt-storm", Storm},
    {"interrupt-nonsense", Nonsense},
});

}  // namespace

std::span<const Behaviour> InterruptBehaviours() {
  return kBehaviours;
}

}  // namespace guest
