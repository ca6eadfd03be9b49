// A request queue of virtio-blk without a net, for ceiling_device.h: nothing that the driver wrote
// is checked, and a chain is header, data and status, in that order, in neighbouring descriptors of
// the ring or of an indirect table. That is what the measuring guest builds (tests/guest,
// measured_queue.cc); any other driver could make this process write anywhere.
//
// Threads: one at a time.
// Source: VIRTIO 1.2, sections 2.7 and 5.2.6.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "devices/virtio_device.h"

namespace ringside {

// One read or write of the guest.
struct BareRequest {
  std::byte* data;
  std::byte* status;
  uint64_t offset;  // bytes, on the disk
  uint32_t length;  // bytes
  uint16_t head;
  bool is_write;
};

class BareRing {
 public:
  // `memory` is where guest physical address 0 is mapped. The driver has EVENT_IDX.
  BareRing(std::byte* memory, const QueueSetup& setup)
      : memory_(memory),
        call_(*setup.call),
        mask_(static_cast<uint16_t>(setup.size - 1)),
        descriptors_(At<Descriptor>(setup.descriptor_area)),
        available_(At<uint16_t>(setup.driver_area)),
        used_(At<uint16_t>(setup.device_area)),
        elements_(At<Element>(setup.device_area + 4)) {
    MoveEvent();
  }

  bool Take(BareRequest& request) {
    if (next_ == seen_) {
      // Acquire: pairs with the driver's barrier before its store of the index (section 2.7.13.3).
      seen_ = std::atomic_ref(available_[1]).load(std::memory_order_acquire);
      if (next_ == seen_) return false;
    }
    const uint16_t head = available_[2 + (next_++ & mask_)];
    const Descriptor* chain = &descriptors_[head];
    if ((chain->flags & kIndirect) != 0) chain = At<Descriptor>(chain->address);
    const auto* header = At<Header>(chain[0].address);
    request = {.data = memory_ + chain[1].address,
               .status = memory_ + chain[2].address,
               .offset = header->sector * 512,
               .length = chain[1].length,
               .head = head,
               .is_write = header->type != 0};
    return true;
  }

  // Unseen by the guest until Publish.
  void Return(const BareRequest& request, bool ok) {
    *request.status = std::byte{ok ? uint8_t{0} : uint8_t{1}};
    elements_[used_index_ & mask_] = {.head = request.head,
                                      .written = request.is_write ? 1 : request.length + 1};
    ++used_index_;
  }

  // Returns whether the guest got an interrupt.
  bool Publish() {
    if (published_ == used_index_) return false;
    if (static_cast<uint16_t>(used_index_ - event_moved_at_) >= 0x4000) MoveEvent();
    const uint16_t before = published_;
    published_ = used_index_;
    // One exchange for both barriers: the elements before the index, the index before used_event is
    // read (section 2.7.7.2).
    std::atomic_ref(used_[1]).store(used_index_, std::memory_order_seq_cst);
    const uint16_t event =
        std::atomic_ref(available_[2 + mask_ + 1]).load(std::memory_order_seq_cst);
    if (static_cast<uint16_t>(used_index_ - event - 1) >=
        static_cast<uint16_t>(used_index_ - before)) {
      return false;
    }
    call_.Signal();
    return true;
  }

 private:
  static constexpr uint16_t kIndirect = 4;

  struct Descriptor {
    uint64_t address;
    uint32_t length;
    uint16_t flags;
    uint16_t next;
  };
  struct Header {
    uint32_t type;
    uint32_t reserved;
    uint64_t sector;
  };
  struct Element {
    uint32_t head;
    uint32_t written;
  };

  template <typename T>
  T* At(uint64_t address) const {
    return reinterpret_cast<T*>(memory_ + address);
  }

  // No kick: avail_event stays far from where the driver will be soon.
  void MoveEvent() {
    event_moved_at_ = used_index_;
    auto& event = reinterpret_cast<uint16_t&>(elements_[mask_ + 1]);
    std::atomic_ref(event).store(static_cast<uint16_t>(used_index_ - 0x8000),
                                 std::memory_order_relaxed);
  }

  std::byte* memory_;
  const InterruptLine& call_;
  uint16_t mask_;
  const Descriptor* descriptors_;
  uint16_t* available_;  // flags, index, ring, used_event
  uint16_t* used_;       // flags, index, elements, avail_event
  Element* elements_;
  uint16_t next_ = 0;        // to take
  uint16_t seen_ = 0;        // the driver's index when last looked at
  uint16_t used_index_ = 0;  // of the next element
  uint16_t published_ = 0;   // what the guest sees
  uint16_t event_moved_at_ = 0;
};

}  // namespace ringside
