// A disk as seen from inside: a BlockDevice, shared by all its users, and a BlockChannel to it for
// each I/O thread that uses it.
//
// Threads: a BlockDevice may be used from any thread; a channel belongs to the I/O thread it was
// opened on, requests on it too.
// Ownership: who submits a request owns it, its segments and the memory they point to, and keeps
// them until `done`; who opened a channel destroys it, on its thread, when nothing is in flight.
// Units: bytes. Errors of requests are negative errno values.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory_region.h"
#include "base/segment.h"
#include "block/block_counters.h"
#include "block/growing_size.h"
#include "poll/io_thread.h"

namespace ringside {

enum class BlockOp : uint8_t { kRead, kWrite, kFlush, kDiscard, kWriteZeroes };

// Who submits requests.
struct RequestOwner {
  // Wants back what is not done yet: its requests end as soon as may be, those that were not
  // carried out, or in part only, with -ECANCELED. Set and cleared on the channel's thread;
  // relaxed, as no other data hangs on it.
  std::atomic<bool> recalls{false};
  const Source* source = nullptr;  // that its requests come from, if it is one
};

struct BlockRequest {
  BlockOp op;
  bool durable = false;  // a write is to survive a power cut before it is done (write-through)
  bool unmap = false;    // zeroes may be made by giving space back
  // On the device. A read or write transfers the sum of the segments; multiples of 512, within the
  // device: its user has checked.
  uint64_t offset = 0;
  // What a channel has added to the offset before it handed the request on to another. Who submits
  // a request again takes it back: see PutBack.
  uint64_t moved = 0;
  uint64_t length = 0;  // discard and zeroes only
  std::span<const Segment> segments;

  RequestOwner* owner = nullptr;  // null: it is never recalled
  int result = 0;                 // 0 or -errno, when done
  BlockRequest* next;             // the channel's, while it has the request
  // Called on the channel's thread, never from within Submit.
  void (*done)(BlockRequest& request) = nullptr;

  void Move(uint64_t bytes) {
    offset += bytes;
    moved += bytes;
  }
  void PutBack() { offset -= std::exchange(moved, 0); }
  bool recalled() const {
    return owner != nullptr && owner->recalls.load(std::memory_order_relaxed);
  }
};

struct BlockInfo {
  GrowingSize size = 0;          // a multiple of 512; see BlockDevice::Resize
  uint32_t logical_block = 512;  // what the guest is told; a power of two from 512 to 4096
  uint32_t physical_block = 512;
  uint32_t optimal_io = 0;  // 0: unknown
  bool read_only = false;
  bool write_back = true;    // writes are durable after a flush only, unless they ask for more
  bool can_discard = false;  // and write zeroes
  uint32_t discard_alignment = 512;
  uint64_t host_device = 0;  // the number (dev_t) of the host's block device; 0: it is none
};

// By what a disk's content is told from another's: of an overlay, its file, and as which that was
// last written (docs/overlays.md).
struct ContentId {
  std::array<uint8_t, 16> id = {};
  std::array<uint8_t, 16> generation = {};
  bool operator==(const ContentId&) const = default;
};

class BlockChannel {
 public:
  virtual ~BlockChannel() = default;
  // The channel has the request from now on. Any number: what does not fit waits in the channel.
  // Allocates nothing in the steady state. The channel hands the work over, to whoever carries it
  // out, at the end of the thread's turn at the latest; where it does so here, it calls
  // IoThread::HandsOverAtOnce.
  virtual void Submit(BlockRequest& request) = 0;
  // The machine is over: its user submits nothing more and wants no results. Begins nothing new,
  // fails what waits with -ECANCELED, and cancels what is under way where that can be done. `done`
  // is still called once for every request, not from within Cancel; what the kernel has begun and
  // does not give back is waited for as any completion is.
  virtual void Cancel() {}
};

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;
  virtual const BlockInfo& info() const = 0;
  // What it is, and what all its channels have counted so far. Any thread.
  virtual BlockStatistics Statistics() const { return {}; }
  // As which whoever opens it next will find it, written or not; nothing where content cannot be
  // told apart.
  virtual std::optional<ContentId> KeepFound() { return std::nullopt; }
  // As which it was found when it was opened, then what it stands on, from there down.
  virtual std::vector<ContentId> Found() const { return {}; }
  // The error of a flush that failed for good, whose pages the kernel has dropped: all flushes fail
  // with it. Null: there is no such thing, each flush is tried. Others who flush what is below say
  // here what they were told. Any thread.
  virtual std::atomic<int>* flush_error() { return nullptr; }
  // The memory that segments will point to, by their `region`: for devices that reach it by DMA.
  // Once for each memory, before the first request; the memory outlives the device.
  virtual absl::Status MapMemory(std::span<const MemoryRegion> /*regions*/) {
    return absl::OkStatus();
  }
  // Makes it so large, or where no size is given reads again how large others have made it;
  // info().size says it from then on. It never becomes smaller: channels are in use meanwhile. One
  // call at a time, from any thread that may wait for the storage.
  virtual absl::Status Resize(std::optional<uint64_t> /*size*/) {
    return absl::UnimplementedError("its size does not change");
  }
  // The machine is over, and its channels are about to be cancelled: what the device's own threads
  // wait for ends within a second, whether or not it has a channel. Any thread.
  virtual void EndSoon() {}
  // On `io_thread`.
  virtual absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) = 0;
};

}  // namespace ringside
