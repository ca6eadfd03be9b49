// From the bytes of a fuzzer to what a virtio-blk driver must not do to its ring.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/fuzz/virtio_blk_model.h"
#include "tests/fuzz/virtio_blk_writer.h"
#include "tests/support/devices/fake_driver.h"

namespace ringside::testing {

class Trouble {
 public:
  Trouble(Input& input, const GuestMemory& memory, FakeDriver& driver)
      : input_(input), memory_(memory), driver_(driver), ring_(driver.ring()) {}

  // Adds a chain that breaks the ring.
  bool Break() {
    if (driver_.free_descriptors() < 2) return false;
    const uint8_t kind = input_.Byte() % 11;
    FakeDriver::Chain chain = driver_.NewChain();
    const uint16_t head = driver_.next_head();
    chain.AppendReadable(kData, 16).AppendWritable(kData + 64, 1);
    chain.Add();
    RawDescriptor first = ring_.descriptor(head);
    RawDescriptor last = ring_.descriptor(first.next);
    switch (kind) {
      case 0:
        last.flags |= kNext;
        last.next = head;
        break;
      case 1:
        first.next = static_cast<uint16_t>(ring_.size() + input_.Byte());
        break;
      case 2:
        last.address = kMemorySize + input_.Value<uint32_t>();
        break;
      case 3:
        last.length = 0;
        break;
      case 4:
        last.flags &= static_cast<uint16_t>(~kWrite);
        break;
      case 5:
        first.length = 1 + input_.Byte() % 15;
        break;
      case 6:
        ring_.SetAvailableEntry(static_cast<uint16_t>(driver_.available_index() - 1),
                                static_cast<uint16_t>(ring_.size() + input_.Byte()));
        break;
      case 7:
        first.flags = kIndirect | kNext;
        break;
      case 8:
        last = {.address = kData, .length = 1 + 16 * uint32_t{input_.Byte()}, .flags = kIndirect};
        break;
      case 9:
        last.address = ~uint64_t{0} - input_.Byte();
        last.length = 0x1000;
        break;
      default:  // an indirect table that begins with what refers to it
        first = {.address = ring_.place().descriptors + uint64_t{16} * head,
                 .length = 16 * (1 + input_.Byte() % 8u),
                 .flags = kIndirect};
        if (first.address + first.length > ring_.place().available) first.length = 16;
        ring_.SetDescriptor(head, first);
        return true;
    }
    ring_.SetDescriptor(ring_.descriptor(head).next, last);
    ring_.SetDescriptor(head, first);
    return true;
  }

  // Anything, anywhere in descriptors, available ring, tables and a little of the buffers.
  void Scribble() {
    for (int n = 1 + input_.Byte() % 32; n > 0; --n) {
      const uint64_t address = ring_.place().descriptors + input_.Value<uint16_t>();
      *memory_.At(address, 1) = static_cast<std::byte>(input_.Byte());
    }
  }

  // Descriptors that point into the rings, as buffers or as tables: the device may find there what
  // it has just read, or what it has written itself.
  void Twist() {
    const RingPlace& place = ring_.place();
    const uint64_t places[] = {place.descriptors, place.available, place.used, place.end};
    for (int n = 1 + input_.Byte() % 4; n > 0; --n) {
      const uint16_t index = input_.Byte() % place.size;
      RawDescriptor twisted;
      twisted.address = places[input_.Byte() % 4] + uint64_t{16} * (input_.Byte() % 32);
      twisted.length = 16 * (1 + input_.Byte() % 64u);
      twisted.flags = input_.Byte() % 8;
      twisted.next = input_.Byte() % place.size;
      ring_.SetDescriptor(index, twisted);
    }
  }

  // Heads made available again, in flight or not, also before the driver was told that it may, and
  // requests that several heads share.
  void Reuse() {
    uint16_t room = ring_.size();
    uint16_t index = driver_.available_index();
    for (int groups = 1 + input_.Byte() % 4; groups > 0; --groups) {
      const uint16_t head = input_.Byte() % ring_.size();
      const uint16_t heads = std::min<uint16_t>(1 + input_.Byte() % 64, ring_.size() - head);
      for (uint16_t i = 1; i < heads; ++i) ring_.SetDescriptor(head + i, ring_.descriptor(head));
      const uint16_t entries = std::min<uint16_t>(1 + input_.Byte(), room);
      for (uint16_t i = 0; i < entries; ++i) {
        ring_.SetAvailableEntry(index++, static_cast<uint16_t>(head + i % heads));
      }
      room -= entries;
    }
    ring_.SetAvailableIndex(index);
  }

 private:
  Input& input_;
  const GuestMemory& memory_;
  FakeDriver& driver_;
  RawRing& ring_;
};

}  // namespace ringside::testing
