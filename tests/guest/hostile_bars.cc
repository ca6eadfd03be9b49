// BARs moved while requests are in flight: to where they may be, and to where something else is.
// Configuration space must stay reachable, what was there must win or come back unharmed, and the
// device must work again once its BARs are back.

#include <array>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "deadline.h"
#include "hostile.h"

namespace guest {
namespace {

constexpr uint64_t kFreeInWindow = 0xdc000000;
constexpr uint64_t kFreeStep = 0x100000;
constexpr uint64_t kEcam = 0xe0000000;
constexpr uint64_t kIoApic = 0xfec00000;
constexpr uint64_t kLocalApic = 0xfee00000;
constexpr uint64_t kLocalApicVersion = kLocalApic + 0x30;

constexpr uint64_t kReads = 8;

// Reads of the first page, submitted and reaped around a change.
class Reads {
 public:
  Reads() {
    if (memory_ == 0) memory_ = AllocatePages(kReads * kPageSize);
  }
  bool Submit(VirtioBlk& disk) {
    for (uint64_t i = 0; i < kReads; ++i) {
      std::memset(reinterpret_cast<void*>(memory_ + i * kPageSize), 0xa5, kPageSize);
      requests_[i].Set(kBlkRead, 0);
      requests_[i].AddData(memory_ + i * kPageSize, kPageSize);
      if (!Expect("reads: room in the ring", 1, disk.Submit(requests_[i]))) return false;
    }
    return true;
  }
  bool Reap(HostileTarget& target) {
    for (uint64_t i = 0; i < kReads; ++i) {
      const BlkRequest* const request = target.disk().Next();
      if (request == nullptr || !Expect("reads: status", kBlkOk, request->status)) return false;
    }
    for (uint64_t i = 0; i < kReads; ++i) {
      if (!Expect("reads: data", 1, target.IsFirstPage(memory_ + i * kPageSize))) return false;
    }
    return true;
  }

 private:
  static inline uint64_t memory_ = 0;
  static inline std::array<BlkRequest, kReads> requests_;
};

struct Bars {
  std::array<uint64_t, kBars> address;
  std::array<uint64_t, kBars> size;  // 0: none
};

Bars FindBars(const PciFunction& function) {
  Bars bars = {};
  for (int i = 0; i < kBars; ++i) {
    const auto at = static_cast<size_t>(i);
    bars.size[at] = function.BarSize(i);
    if (bars.size[at] != 0) bars.address[at] = function.BarAddress(i);
  }
  return bars;
}

template <typename Visit>
bool ForEachBar(const Bars& bars, Visit visit) {
  for (int i = 0; i < kBars; ++i) {
    if (bars.size[static_cast<size_t>(i)] != 0 && !visit(i)) return false;
  }
  return true;
}

// Requests in flight, the BAR to `to`, `while_there`, the BAR back, requests complete.
template <typename Check>
bool WithBarAt(HostileTarget& target, int bar, uint64_t to, Check while_there) {
  VirtioBlk& disk = target.disk();
  const PciFunction& function = disk.pci().function();
  const uint64_t home = function.BarAddress(bar);
  Reads reads;
  if (!reads.Submit(disk)) return false;
  disk.Kick();
  function.SetBarAddress(bar, to);
  bool ok = while_there();
  function.SetBarAddress(bar, home);
  ok &= Expect("bar: is back", home, function.BarAddress(bar));
  return reads.Reap(target) && ok && target.ServeDisk();
}

bool Moved(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  const PciFunction& function = disk.pci().function();
  const Bars bars = FindBars(function);
  return ForEachBar(bars, [&](int i) {
    const uint64_t to = kFreeInWindow + static_cast<uint64_t>(i) * kFreeStep;
    return WithBarAt(target, i, to, [&] {
      disk.FindAddresses();
      bool ok = Expect("bar: moved", to, function.BarAddress(i));
      Reads reads;
      // The requests of WithBarAt first: they were kicked at the old place.
      ok &= reads.Reap(target) && target.ServeDisk() && target.ServeOther();
      function.SetBarAddress(i, bars.address[static_cast<size_t>(i)]);
      disk.FindAddresses();
      ok &= target.ServeDisk() && reads.Submit(disk);
      disk.Kick();
      return ok;
    });
  });
}

bool MovedOften(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  const PciFunction& function = disk.pci().function();
  const Bars bars = FindBars(function);
  for (int round = 0; round < 6; ++round) {
    Reads reads;
    if (!reads.Submit(disk)) return false;
    disk.Kick();
    ForEachBar(bars, [&](int i) {
      for (const uint64_t to : {kFreeInWindow + 0x40000, bars.address[static_cast<size_t>(i)]}) {
        function.SetBarAddress(i, to);
      }
      return true;
    });
    if (!reads.Reap(target) || !target.ServeOther()) return false;
  }
  return true;
}

// RAM must be what is seen there.
bool OntoRam(HostileTarget& target) {
  const Bars bars = FindBars(target.disk().pci().function());
  return ForEachBar(bars, [&](int i) {
    const uint64_t size = bars.size[static_cast<size_t>(i)];
    const uint64_t ram = (AllocatePages(2 * size) + size - 1) & ~(size - 1);
    const auto fill = [&](uint64_t seed) {
      for (uint64_t at = 0; at < size; at += 8) Store<uint64_t>(ram + at, seed + at);
    };
    const auto expect = [&](uint64_t seed) {
      for (uint64_t at = 0; at < size; at += 8) {
        if (!Expect("bar on RAM: RAM", seed + at, Load<uint64_t>(ram + at))) return false;
      }
      return true;
    };
    fill(1);
    const bool ok = WithBarAt(target, i, ram, [&] {
      const bool kept = expect(1);
      fill(2);
      return kept && expect(2) && target.ServeOther();
    });
    return ok && expect(2);
  });
}

bool OntoLocalApic(HostileTarget& target) {
  const auto version = Load<uint32_t>(kLocalApicVersion);
  return ForEachBar(FindBars(target.disk().pci().function()), [&](int i) {
    return WithBarAt(target, i, kLocalApic, [&] {
      return Expect("local APIC's version", version, Load<uint32_t>(kLocalApicVersion)) &&
             target.ServeOther();
    });
  });
}

// Everything else that has an address, and none at all.
bool OntoTheRest(HostileTarget& target) {
  return ForEachBar(FindBars(target.disk().pci().function()), [&](int i) {
    for (const uint64_t to : {kEcam, kIoApic, uint64_t{0}, uint64_t{0xfffc0000},
                              uint64_t{0xfffffffffffc0000}, uint64_t{1} << 62}) {
      if (!WithBarAt(target, i, to, [&] { return target.ServeOther(); })) return false;
    }
    return true;
  });
}

// Who answers while both are at one place is open: the other disk is used only through its ring's
// memory then, and asked again afterwards.
bool OntoOtherDisk(HostileTarget& target) {
  if (target.other() == nullptr) return Expect("bar on bar: a second disk", 1, 0);
  const Bars there = FindBars(target.other()->pci().function());
  return ForEachBar(FindBars(target.disk().pci().function()), [&](int i) {
    return ForEachBar(there, [&](int j) {
      const uint64_t to = there.address[static_cast<size_t>(j)];
      return WithBarAt(target, i, to,
                       [&] {
                         Load<uint32_t>(to);
                         return true;
                       }) &&
             target.ServeOther();
    });
  });
}

// The disk's own BARs onto each other.
bool OntoItself(HostileTarget& target) {
  const Bars bars = FindBars(target.disk().pci().function());
  return ForEachBar(bars, [&](int i) {
    return ForEachBar(bars, [&](int j) {
      return i == j || WithBarAt(target, i, bars.address[static_cast<size_t>(j)],
                                 [&] { return target.ServeOther(); });
    });
  });
}

// What is in flight survives decode going off; a device may stop when bus mastering does (QEMU
// leaves DRIVER_OK then), so that only has to do no harm.
bool DecodeOff(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  const PciFunction& function = disk.pci().function();
  const uint16_t command = function.command();
  Reads reads;
  for (const int bits : {int{pci_command::kBusMaster}, int{pci_command::kMemory}, 0}) {
    if (!disk.Start({}) || !reads.Submit(disk)) return false;
    disk.Kick();
    function.SetCommand(static_cast<uint16_t>(bits));
    Load<uint32_t>(disk.pci().common().address);
    Store<uint16_t>(disk.pci().notify().address, 0);
    const bool ok = target.ServeOther();
    function.SetCommand(command);
    if (!ok) return false;
    if (bits == pci_command::kBusMaster && !reads.Reap(target)) return false;
  }
  return true;
}

// As firmware sizes them, but with decode on.
bool SizedInUse(HostileTarget& target) {
  return ForEachBar(FindBars(target.disk().pci().function()), [&](int i) {
    return WithBarAt(target, i, ~uint64_t{0}, [&] { return target.ServeOther(); });
  });
}

constexpr auto kBehaviours = std::to_array<Behaviour>({
    {"bar-moved", Moved},
    {"bar-moved-often", MovedOften},
    {"bar-on-ram", OntoRam},
    {"bar-on-local-apic", OntoLocalApic},
    {"bar-on-the-rest", OntoTheRest},
    {"bar-on-other-disk", OntoOtherDisk},
    {"bar-on-itself", OntoItself},
    {"bar-sized-in-use", SizedInUse},
    {"bar-decode-off", DecodeOff},
});

}  // namespace

std::span<const Behaviour> BarBehaviours() {
  return kBehaviours;
}

}  // namespace guest
