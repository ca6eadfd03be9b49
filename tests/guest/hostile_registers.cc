// Status, features, queue registers, doorbells and resets, out of order and out of range.

#include <array>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "deadline.h"
#include "hostile.h"
#include "random.h"

namespace guest {
namespace {

using namespace virtio_status;

uint64_t Common(HostileTarget& target, uint64_t offset) {
  return target.disk().pci().common().address + offset;
}

// ---- Doorbells ----

// Every doorbell of the notify structure, for queues that are there and that are not.
void KickEverything(HostileTarget& target) {
  const VirtioPci& pci = target.disk().pci();
  const uint64_t start = pci.notify().address;
  const uint64_t step = std::max(pci.notify_multiplier(), 2u);
  for (uint64_t offset = 0; offset + 2 <= pci.notify().length; offset += step) {
    Store<uint16_t>(start + offset, static_cast<uint16_t>(offset / step));
  }
  Store<uint8_t>(start, 0);
  Store<uint32_t>(start, 0xffffffff);
  Store<uint64_t>(start, 0);
  Store<uint16_t>(start, 0xffff);
  Load<uint16_t>(start);
  Load<uint32_t>(start + pci.notify().length - 4);
}

bool KicksBeforeReady(HostileTarget& target) {
  VirtioPci& pci = target.disk().pci();
  if (!pci.Reset()) return false;
  KickEverything(target);
  if (!pci.Negotiate(0)) return false;
  KickEverything(target);
  pci.SetDriverOk();  // with no queue enabled
  KickEverything(target);
  return target.ServeOther();
}

bool KicksForNobody(HostileTarget& target) {
  KickEverything(target);
  return target.ServeDisk() && target.ServeOther();
}

bool KickStorm(HostileTarget& target) {
  for (int i = 0; i < 2000; ++i) target.disk().pci().Kick(0);
  return target.ServeDisk() && target.ServeOther();
}

// ---- Reset ----

constexpr uint16_t kInFlight = 32;

// Reads into distinct parts of one buffer, all in flight.
class Burst {
 public:
  static constexpr uint32_t kBytes = 65536;

  Burst() {
    if (memory_ == 0) memory_ = AllocatePages(uint64_t{kInFlight} * kBytes);
  }
  bool Submit(VirtioBlk& disk) {
    for (uint64_t i = 0; i < kInFlight; ++i) {
      requests_[i].Set(kBlkRead, 0);
      requests_[i].AddData(memory_ + i * kBytes, kBytes);
      if (!Expect("burst: room in the ring", 1, disk.Submit(requests_[i]))) return false;
    }
    disk.Kick();
    return true;
  }
  void Fill(int value) const {
    std::memset(reinterpret_cast<void*>(memory_), value, uint64_t{kInFlight} * kBytes);
  }
  bool IsFilled(uint8_t value) const {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(memory_);
    for (uint64_t i = 0; i < uint64_t{kInFlight} * kBytes; i += 8) {
      if (bytes[i] != value) return false;
    }
    return true;
  }

 private:
  static inline uint64_t memory_ = 0;
  static inline std::array<BlkRequest, kInFlight> requests_;
};

void SpinFor(uint64_t ticks) {
  const Deadline deadline(ticks);
  while (!deadline.Passed()) Pause();
}

// After the reset is done (status reads 0) the memory is the driver's: nothing may be written to
// it.
bool ResetInFlight(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  Burst burst;
  Random random(13);
  bool ok = true;
  for (int round = 0; ok && round < 20; ++round) {
    if (!disk.Start({.indirect = round % 2 == 0})) return false;
    if (!burst.Submit(disk)) return false;
    SpinFor(random.Below(300'000));
    if (!disk.pci().Reset()) return false;
    const uint16_t used = disk.queue().used_index();
    burst.Fill(0x77);
    SpinFor(1'000'000);
    ok = Expect("reset: data written afterwards", 1, burst.IsFilled(0x77)) &
         Expect("reset: used index afterwards", used, disk.queue().used_index());
    if (round % 4 == 0) ok &= target.ServeOther();
  }
  return ok;
}

// A driver that does not wait for the reset it asked for.
bool ResetWithoutWaiting(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  Burst burst;
  for (int round = 0; round < 20; ++round) {
    if (!disk.Start({}) || !burst.Submit(disk)) return false;
    disk.pci().SetStatus(0);
    disk.pci().SetStatus(kAcknowledge | kDriver);
    Store<uint16_t>(Common(target, common_config::kQueueSelect), 0);
    Store<uint16_t>(Common(target, common_config::kQueueEnable), 1);
    disk.pci().SetStatus(kAcknowledge | kDriver | kFeaturesOk | kDriverOk);
    disk.pci().Kick(0);
    disk.pci().SetStatus(0);
    disk.pci().SetStatus(0);
  }
  return target.ServeOther();
}

// ---- Status and features ----

bool EveryStatus(HostileTarget& target) {
  VirtioPci& pci = target.disk().pci();
  for (int status = 1; status < 256; ++status) {
    pci.SetStatus(static_cast<uint8_t>(status));
    pci.status();
    if (status % 16 == 0) pci.SetStatus(0);
  }
  return target.ServeOther();
}

// FEATURES_OK with these features on the driver's side.
bool FeaturesTaken(HostileTarget& target, uint64_t features) {
  VirtioPci& pci = target.disk().pci();
  if (!pci.Reset()) return false;
  pci.SetStatus(kAcknowledge | kDriver);
  for (const uint32_t half : {0u, 1u, 2u, 0xffffffffu}) {
    Store<uint32_t>(Common(target, common_config::kDriverFeatureSelect), half);
    Store<uint32_t>(Common(target, common_config::kDriverFeature),
                    half < 2 ? static_cast<uint32_t>(features >> (32 * half)) : 0xffffffff);
  }
  pci.SetStatus(kAcknowledge | kDriver | kFeaturesOk);
  return (pci.status() & kFeaturesOk) != 0;
}

bool BadFeatures(HostileTarget& target) {
  const uint64_t offered = target.disk().pci().OfferedFeatures();
  const bool old = FeaturesTaken(target, offered & ~kFeatureVersion1);
  const bool unknown = FeaturesTaken(target, offered | uint64_t{1} << 60 | uint64_t{1} << 25);
  Say("hostile ", target.name(), " without-version-1=", old ? "taken" : "refused",
      " not-offered=", unknown ? "taken" : "refused");
  return target.ServeOther();
}

// ---- Queues ----

struct Areas {
  uint64_t descriptors;
  uint64_t driver;
  uint64_t device;
};

// Enables queue 0 as told, goes on to DRIVER_OK all the same, and kicks.
void UseQueue(HostileTarget& target, uint16_t size, const Areas& areas) {
  VirtioPci& pci = target.disk().pci();
  if (!pci.Reset() || !pci.Negotiate(kFeatureEventIdx)) return;
  const auto write = [&](uint64_t offset, uint64_t address) {
    Store<uint32_t>(Common(target, offset), static_cast<uint32_t>(address));
    Store<uint32_t>(Common(target, offset + 4), static_cast<uint32_t>(address >> 32));
  };
  Store<uint16_t>(Common(target, common_config::kQueueSelect), 0);
  Store<uint16_t>(Common(target, common_config::kQueueSize), size);
  write(common_config::kQueueDescriptors, areas.descriptors);
  write(common_config::kQueueDriver, areas.driver);
  write(common_config::kQueueDevice, areas.device);
  Store<uint16_t>(Common(target, common_config::kQueueEnable), 1);
  pci.SetDriverOk();
  pci.Kick(0);
  SpinFor(kAMoment / 8);
}

bool QueueOfAnySize(HostileTarget& target) {
  const Virtqueue& queue = target.disk().queue();
  for (const uint16_t size : {0, 1, 2, 3, 100, 257, 1024, 1025, 0x8000, 0xffff}) {
    UseQueue(target, size, {queue.descriptor_area(), queue.driver_area(), queue.device_area()});
  }
  return target.ServeOther();
}

bool QueueAnywhere(HostileTarget& target) {
  const Virtqueue& queue = target.disk().queue();
  const Areas good = {queue.descriptor_area(), queue.driver_area(), queue.device_area()};
  for (const uint64_t bad :
       {kHole, kBeyondMemory, kWrapping, AllocatorEnd() - 16, uint64_t{0x81}}) {
    UseQueue(target, 256, {bad, good.driver, good.device});
    UseQueue(target, 256, {good.descriptors, bad, good.device});
    UseQueue(target, 256, {good.descriptors, good.driver, bad});
  }
  UseQueue(target, 256, {good.descriptors + 1, good.driver + 1, good.device + 1});
  return target.ServeOther();
}

// The registers of queues that do not exist, and of queue 0 while it runs.
bool QueueRegisters(HostileTarget& target) {
  for (const uint16_t select : {uint16_t{0}, target.disk().pci().queue_count(), uint16_t{0xffff}}) {
    Store<uint16_t>(Common(target, common_config::kQueueSelect), select);
    for (uint64_t at = common_config::kQueueSize; at < common_config::kSize; at += 4) {
      Load<uint32_t>(Common(target, at));
      Store<uint32_t>(Common(target, at), static_cast<uint32_t>(kHole));
      Store<uint16_t>(Common(target, at), 1);
      Store<uint64_t>(Common(target, at), kHole);
    }
  }
  return target.ServeOther();
}

// Accesses of all widths at any offset of all structures. Whatever the device takes for a ring or a
// message address leads into the hole.
bool RegisterStorm(HostileTarget& target) {
  const VirtioPci& pci = target.disk().pci();
  Random random(14);
  for (int i = 0; i < 2000; ++i) {
    const std::array<const VirtioPci::Structure*, 4> structures = {&pci.common(), &pci.notify(),
                                                                   &pci.isr(), &pci.device()};
    const VirtioPci::Structure& structure = *structures[random.Below(structures.size())];
    const uint64_t address = structure.address + random.Below(structure.length);
    const bool store = random.Below(2) == 0;
    switch (random.Below(4)) {
      case 0:
        store ? Store<uint8_t>(address, static_cast<uint8_t>(random.Next()))
              : void(Load<uint8_t>(address));
        break;
      case 1:
        store ? Store<uint16_t>(address, static_cast<uint16_t>(random.Below(3)))
              : void(Load<uint16_t>(address));
        break;
      case 2:
        store ? Store<uint32_t>(address, static_cast<uint32_t>(kHole))
              : void(Load<uint32_t>(address));
        break;
      default:
        store ? Store<uint64_t>(address, kHole << 32 | kHole) : void(Load<uint64_t>(address));
        break;
    }
  }
  return target.ServeOther();
}

// VIRTIO_PCI_CAP_PCI_CFG (section 4.1.4.9): a window into the BARs through configuration space.
bool ConfigWindow(HostileTarget& target) {
  const VirtioPci& pci = target.disk().pci();
  const PciFunction& function = pci.function();
  uint8_t at = 0;
  do {
    at = function.FindCapability(pci_capability::kVendorSpecific, at);
  } while (at != 0 && function.Read<uint8_t>(at + 3) != 5);
  if (at == 0) return Expect("window: its capability", 1, 0);
  const auto aim = [&](int bar, uint32_t offset, uint32_t length) {
    function.Write<uint8_t>(at + 4, static_cast<uint8_t>(bar));
    function.Write<uint32_t>(at + 8, offset);
    function.Write<uint32_t>(at + 12, length);
  };
  for (const int bar : {0, 1, 4, 5, 6, 255}) {
    for (const uint32_t length : {0u, 1u, 2u, 3u, 4u, 5u, 8u, 0xffffffffu}) {
      for (const uint32_t offset : {0xffffffffu, 0xfffffffcu, 0x80000001u}) {
        aim(bar, offset, length);
        function.Read<uint32_t>(at + 16);
        function.Write<uint32_t>(at + 16, 0xffffffff);
      }
    }
  }
  const VirtioPci::Structure& common = pci.common();
  aim(common.bar, common.offset + common_config::kStatus, 1);
  return Expect("window: status", pci.status(), function.Read<uint8_t>(at + 16)) &
         target.ServeDisk() & target.ServeOther();
}

constexpr auto kBehaviours = std::to_array<Behaviour>({
    {"kicks-before-ready", KicksBeforeReady},
    {"kicks-for-nobody", KicksForNobody},
    {"kick-storm", KickStorm},
    {"reset-in-flight", ResetInFlight},
    {"reset-without-waiting", ResetWithoutWaiting},
    {"every-status", EveryStatus},
    {"bad-features", BadFeatures},
    {"queue-of-any-size", QueueOfAnySize},
    {"queue-anywhere", QueueAnywhere},
    {"queue-registers", QueueRegisters},
    {"register-storm", RegisterStorm},
    {"config-window", ConfigWindow},
});

}  // namespace

std::span<const Behaviour> RegisterBehaviours() {
  return kBehaviours;
}

}  // namespace guest
