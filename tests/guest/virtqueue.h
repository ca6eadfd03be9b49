// The driver's side of a split virtqueue: descriptors, rings, and when to kick and to be
// interrupted. Knows no transport.
//
// The raw rings are public to the hostile checks, which write what no driver should.
//
// Source: VIRTIO 1.2, section 2.7.

#ifndef RINGSIDE_TESTS_GUEST_VIRTQUEUE_H_
#define RINGSIDE_TESTS_GUEST_VIRTQUEUE_H_

#include <cstdint>
#include <span>

namespace guest {

constexpr uint16_t kDescriptorNext = 1;
constexpr uint16_t kDescriptorWrite = 2;
constexpr uint16_t kDescriptorIndirect = 4;

struct Descriptor {
  uint64_t address;
  uint32_t length;
  uint16_t flags;
  uint16_t next;
};
static_assert(sizeof(Descriptor) == 16);

enum class Access : uint8_t { kDeviceReads, kDeviceWrites };

struct Buffer {
  uint64_t address;
  uint32_t length;
  Access access;
};

class Virtqueue {
 public:
  static constexpr uint16_t kMaxSize = 1024;
  static constexpr size_t kMaxBuffers = 32;  // of a chain

  struct Used {
    uint32_t head;
    uint32_t length;
  };

  // Allocates memory the first time. The queue is empty afterwards.
  void Init(uint16_t size, bool event_idx, bool indirect);

  // Puts a chain into the descriptor table and its head into the next entry of the available ring,
  // which the device does not see before Publish. Returns the head, or -1 if there is no room.
  int Add(std::span<const Buffer> buffers);
  // Puts any head into the next entry of the available ring.
  void AddHead(uint16_t head);
  void Publish();
  // Whether the device wants a kick for what Publish has published since the last call.
  bool KickWanted();

  bool HasUsed() const;
  // Takes the next entry of the used ring, if any, and frees its chain. A head that is not in
  // flight prints a FAIL line.
  bool TakeUsed(Used& used);
  // The same for who keeps chains of their own in the table: looks at nothing but the ring.
  bool ReadUsed(Used& used);

  // Interrupt me for the next used entry, or not at all. A device may ignore NO_INTERRUPT, so with
  // EVENT_IDX used_event is kept half the index space ahead instead.
  void RequestInterrupt();
  void SuppressInterrupts();

  uint16_t size() const { return size_; }
  bool indirect() const { return indirect_; }
  uint16_t free_count() const { return free_count_; }
  uint64_t descriptor_area() const { return descriptor_area_; }
  uint64_t driver_area() const { return driver_area_; }
  uint64_t device_area() const { return device_area_; }

  // ---- Raw ----
  volatile Descriptor& descriptor(uint16_t i) const {
    return reinterpret_cast<volatile Descriptor*>(descriptor_area_)[i];
  }
  void WriteDescriptor(uint16_t i, const Descriptor& descriptor) const;
  // What the next Publish publishes.
  uint16_t& next_available() { return next_available_; }
  uint16_t used_index() const;

 private:
  volatile uint16_t& AvailableEntry(uint16_t index) const;
  volatile uint16_t& UsedEvent() const;
  uint16_t AvailableEvent() const;
  int AddDirect(std::span<const Buffer> buffers);
  int AddIndirect(std::span<const Buffer> buffers);
  uint16_t TakeFree();
  void FreeChain(uint16_t head);

  uint16_t size_ = 0;
  bool event_idx_ = false;
  bool indirect_ = false;
  uint64_t descriptor_area_ = 0;
  uint64_t driver_area_ = 0;
  uint64_t device_area_ = 0;
  Descriptor* indirect_tables_ = nullptr;  // kMaxBuffers a head
  uint16_t* free_next_ = nullptr;          // list of free descriptors
  uint16_t* chain_length_ = nullptr;       // by head; 0: not in flight
  uint16_t free_head_ = 0;
  uint16_t free_count_ = 0;
  uint16_t next_available_ = 0;
  uint16_t kicked_ = 0;  // next_available_ when KickWanted was last called
  uint16_t next_used_ = 0;
  uint16_t suppressed_at_ = 0;
  bool suppressed_ = false;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTQUEUE_H_
