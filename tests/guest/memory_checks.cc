// What the VMM says about memory, and what is there: the map, the initrd, the ACPI root pointer,
// RAM on both sides of the hole below 4 GiB, and addresses that nobody answers.

#include <algorithm>

#include "checks.h"
#include "console.h"
#include "machine.h"

namespace guest {

extern "C" const char guest_image_end[];  // guest.ld

namespace {

// Addresses no device of the machine claims.
constexpr uint16_t kUnmappedPort = 0x700;
constexpr uint64_t kUnmappedAddress = 0xd0000000;

uint32_t Sum(uint64_t start, uint64_t size) {
  uint32_t sum = 0;
  for (uint64_t i = 0; i < size; ++i) sum += Load<uint8_t>(start + i);
  return sum;
}

// The address of the last whole RAM page in [low, high), 0 if there is none.
uint64_t LastRamPage(const BootInfo& info, uint64_t low, uint64_t high) {
  uint64_t last_end = 0;
  for (const MemoryRange& range : info.memory_map()) {
    const uint64_t end = std::min(range.start + range.size, high) & ~(kPageSize - 1);
    if (range.type == kMemoryTypeRam && end >= std::max(range.start, low) + kPageSize) {
      last_end = std::max(last_end, end);
    }
  }
  return last_end == 0 ? 0 : last_end - kPageSize;
}

// The address of the first whole RAM page in [low, high), 0 if there is none.
uint64_t FirstRamPage(const BootInfo& info, uint64_t low, uint64_t high) {
  uint64_t first = high;
  for (const MemoryRange& range : info.memory_map()) {
    const uint64_t start = (std::max(range.start, low) + kPageSize - 1) & ~(kPageSize - 1);
    const uint64_t end = std::min(range.start + range.size, high);
    if (range.type == kMemoryTypeRam && end >= start + kPageSize) first = std::min(first, start);
  }
  return first == high ? 0 : first;
}

// A pattern that differs from word to word and, through `seed`, from page to page.
uint64_t Pattern(uint64_t seed, uint64_t offset) {
  return (seed + offset) * 0x9e3779b97f4a7c15;
}

void FillPage(uint64_t page, uint64_t seed) {
  for (uint64_t i = 0; i < kPageSize; i += 8) Store<uint64_t>(page + i, Pattern(seed, i));
}

bool ExpectPage(uint64_t page, uint64_t seed) {
  for (uint64_t i = 0; i < kPageSize; i += 8) {
    if (!Expect("high: word read back", Pattern(seed, i), Load<uint64_t>(page + i))) {
      Say("high: at ", Hex{page + i});
      return false;
    }
  }
  return true;
}

bool RsdpIsValid(uint64_t rsdp) {
  constexpr uint64_t kSignature = 0x2052545020445352;  // "RSD PTR "
  if (!IsMapped(rsdp, 36)) return Expect("rsdp is below 8 GiB", 1, 0);
  if (!Expect("rsdp signature", kSignature, Load<uint64_t>(rsdp))) return false;
  if (!Expect("rsdp checksum", 0, Sum(rsdp, 20) & 0xff)) return false;
  if (Load<uint8_t>(rsdp + 15) < 2) return true;
  const uint32_t length = Load<uint32_t>(rsdp + 20);
  return Expect("rsdp length", 36, length) &&
         Expect("rsdp extended checksum", 0, Sum(rsdp, length) & 0xff);
}

}  // namespace

void SayMemoryMap(const BootInfo& info) {
  for (const MemoryRange& range : info.memory_map()) {
    Say("memory start=", Hex{range.start}, " size=", Hex{range.size},
        " type=", Decimal{range.type});
  }
}

void SayInitrd(const BootInfo& info) {
  const MemoryRange& initrd = info.initrd();
  if (initrd.size == 0) return Say("initrd=none");
  if (!IsMapped(initrd.start, initrd.size)) {
    Expect("initrd is below 8 GiB", 1, 0);
    return;
  }
  Say("initrd start=", Hex{initrd.start}, " size=", Hex{initrd.size},
      " sum=", Hex{Sum(initrd.start, initrd.size), 8});
}

// ACPI 6.4 section 5.2.5.3.
void SayRsdp(const BootInfo& info) {
  if (info.rsdp() == 0) return Say("rsdp=none");
  if (RsdpIsValid(info.rsdp())) Say("rsdp=", Hex{info.rsdp()}, " ok");
}

// Fills all three pages before reading any back, so that two of them being the same page shows. The
// low one is the last below the hole: off by one there is the mistake to expect of a VMM.
void CheckHighMemory(const BootInfo& info) {
  const uint64_t low = LastRamPage(info, reinterpret_cast<uint64_t>(guest_image_end), 3 * kGiB);
  const uint64_t first = FirstRamPage(info, 4 * kGiB, kMappedEnd);
  const uint64_t last = LastRamPage(info, 4 * kGiB, kMappedEnd);
  if (low == 0) return Say("FAIL high: expected RAM below 3 GiB got none");
  if (first == 0) return Say("FAIL high: expected RAM from 4 to 8 GiB got none");
  FillPage(low, 1);
  FillPage(first, 2);
  FillPage(last, 3);
  if (ExpectPage(low, 1) && ExpectPage(first, 2) && ExpectPage(last, 3)) Say("high ok");
}

// Reads of what nobody claims give all ones, as on a PC bus; writes go nowhere.
void CheckUnmapped() {
  constexpr uint64_t kA = kUnmappedAddress;
  Out8(kUnmappedPort, 0);
  Out16(kUnmappedPort, 0);
  Out32(kUnmappedPort, 0);
  Store<uint8_t>(kA, 0);
  Store<uint16_t>(kA, 0);
  Store<uint32_t>(kA, 0);
  Store<uint64_t>(kA, 0);
  bool ok = Expect("unmapped port, 1 byte", 0xff, In8(kUnmappedPort));
  ok &= Expect("unmapped port, 2 bytes", 0xffff, In16(kUnmappedPort));
  ok &= Expect("unmapped port, 4 bytes", 0xffffffff, In32(kUnmappedPort));
  ok &= Expect("unmapped address, 1 byte", 0xff, Load<uint8_t>(kA));
  ok &= Expect("unmapped address, 2 bytes", 0xffff, Load<uint16_t>(kA));
  ok &= Expect("unmapped address, 4 bytes", 0xffffffff, Load<uint32_t>(kA));
  ok &= Expect("unmapped address, 8 bytes", ~uint64_t{0}, Load<uint64_t>(kA));
  if (ok) Say("unmapped ok");
}

}  // namespace guest
