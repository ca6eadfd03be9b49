// Hostile drivers: named behaviours that break the rules of virtio or PCI on one disk, or go to the
// edge of them. Each runs against a disk that is up and polled; whatever it does, the disk must
// work again after a reset, and another disk must not notice.
//
//   hostile_checks.cc      what surrounds a behaviour: before, after, and the other disk
//   hostile_chains.cc      one bad (or odd but legal) descriptor chain
//   hostile_rings.cc       rings: indices, heads, memory changed while it is read
//   hostile_registers.cc   status, queues, doorbells, resets
//   hostile_bars.cc        BARs moved
//   hostile_interrupts.cc  MSI-X

#ifndef RINGSIDE_TESTS_GUEST_HOSTILE_H_
#define RINGSIDE_TESTS_GUEST_HOSTILE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "virtio_blk.h"

namespace guest {

// Where no memory is: the hole that no device claims either, beyond all memory, and the end of the
// address space.
constexpr uint64_t kHole = 0xd0000000;
constexpr uint64_t kBeyondMemory = uint64_t{1} << 40;
constexpr uint64_t kWrapping = 0xffffffffffffff00;

class HostileTarget {
 public:
  HostileTarget(VirtioBlk& disk, VirtioBlk* other, std::string_view name)
      : disk_(disk), other_(other), name_(name) {}

  // Of the behaviour, for what it says.
  std::string_view name() const { return name_; }
  VirtioBlk& disk() { return disk_; }
  VirtioBlk* other() { return other_; }

  // What the first page of each disk holds, read before anything hostile.
  bool Learn();
  // Ordinary reads of that page; false after a FAIL line. The other disk's counts as good if there
  // is none.
  bool ServeDisk();
  bool ServeOther();

  // The disk's first page as it was learnt.
  bool IsFirstPage(uint64_t address) const;
  void CopyFirstPage(uint64_t to) const;

 private:
  VirtioBlk& disk_;
  VirtioBlk* const other_;
  const std::string_view name_;
};

struct Behaviour {
  std::string_view name;
  // False after a FAIL line.
  bool (*run)(HostileTarget& target);
};

std::span<const Behaviour> ChainBehaviours();
std::span<const Behaviour> RingBehaviours();
std::span<const Behaviour> RegisterBehaviours();
std::span<const Behaviour> BarBehaviours();
std::span<const Behaviour> InterruptBehaviours();

// Says how a behaviour ended. `ok`: no rule was broken, and all devices still serve; else what was
// wrong has been said. Returns it.
bool SayHarmless(std::string_view behaviour, bool ok);

// ---- What behaviours are made of ----

// Memory for one disk's hostile requests.
struct HostileMemory {
  static constexpr uint64_t kDataSize = 65536;

  BlkRequest::Header* header;  // a page
  volatile uint8_t* status;    // a page
  uint64_t data;               // kDataSize
  Descriptor* table;           // a page
};
const HostileMemory& Memory();

// What became of a request that deserved no answer.
enum class Outcome { kNothing, kNeedsReset, kAnswered };
std::string_view Name(Outcome outcome);
// Waits, with a limit, until the device wants a reset or has used an entry since `used_index`.
Outcome AwaitOutcome(VirtioBlk& disk, uint16_t used_index);

Outcome AwaitOutcome(const VirtioTransport& transport, const Virtqueue& queue, uint16_t used_index);

// Makes the next available entry `head` and kicks, whether or not a kick is wanted.
void Offer(VirtioBlk& disk, uint16_t head);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_HOSTILE_H_
