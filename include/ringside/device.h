// Virtio devices of the embedder's own. A device says what its driver sees, and answers requests;
// on which I/O threads its queues are served, how they start, stop, move and rest, and what is
// counted of them, is Ringside's.
//
//   class Zeroes final : public ringside::Device {
//    public:
//     uint16_t id() const override { return 2; }
//     void Run(ringside::DeviceQueue& queue) override {
//       while (queue.Pop(request_)) queue.Push(request_, Clear(request_.writable()));
//     }
//     ...
//   };
//
// Spec: Virtual I/O Device (VIRTIO) 1.2, chapter 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ringside/export.h"

namespace ringside {

// A descriptor chain that the guest has made available (section 2.7.4.2). One that was popped is
// owed to the queue: it is pushed or put back, whatever happens.
//
// The memory is the guest's, which may change it at any time, also while it is read: copy what is
// checked before it is used.
//
// Threads: one at a time. Ownership: an empty one may be made, kept and used again by anybody; it
// keeps its storage.
class Request {
 public:
  Request() = default;
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept {
    readable_.swap(other.readable_);
    writable_.swap(other.writable_);
    std::swap(head_, other.head_);
    std::swap(position_, other.position_);
    return *this;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Whether it was popped, and neither pushed nor put back. The buffers are there for as long.
  bool popped() const { return head_ != kNone; }
  // The buffers in order: those the device reads, then those it writes. None is empty.
  std::span<const std::span<const std::byte>> readable() const { return readable_; }
  std::span<const std::span<std::byte>> writable() const { return writable_; }

 private:
  friend class RequestAccess;
  static constexpr uint16_t kNone = 0xffff;

  std::vector<std::span<const std::byte>> readable_;
  std::vector<std::span<std::byte>> writable_;
  uint16_t head_ = kNone;
  uint16_t position_ = 0;  // of the ring behind it
};

// A queue of a device. It exists for as long as the device does, on whichever I/O thread it is
// served.
//
// Threads: Post from any; all else on the queue's I/O thread, that is, in Device::Run and Recall,
// and in what was posted.
class RINGSIDE_EXPORT DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual uint16_t index() const = 0;
  // Takes the next request. `request`, which is not popped, gets its buffers; nothing is allocated
  // once it has had as many. False: there is none, or the queue takes none now (its driver has not
  // started it, it is about to move, rest or stop, or it is broken), or what it may take per turn
  // of the thread is used up; in the last case Run is called again in the next turn.
  virtual bool Pop(Request& request) = 0;
  // Answers a request of this queue. `written`: how many bytes of its writable buffers, from their
  // beginning, the device has written. The guest sees it at the end of the turn, with one interrupt
  // at most for all that the turn has answered. Afterwards the request is empty.
  virtual void Push(Request& request, uint32_t written) = 0;
  // Gives a request back unanswered, as if it had not been popped, the newest first. Afterwards the
  // request is empty. False: newer ones were popped and not put back, so that this one has to be
  // pushed.
  virtual bool PutBack(Request& request) = 0;
  // Shows the guest at once what was pushed.
  virtual void Notify() = 0;
  // Runs `function` on the queue's I/O thread, soon. Any thread, also while the queue moves, and
  // when it is not in use. What was posted and has not run when the device goes never runs.
  virtual void Post(std::function<void()> function) = 0;
  // The device cannot go on, or the guest broke its rules: tells the driver to reset it
  // (DEVICE_NEEDS_RESET, section 2.1.1), and logs `why` once. The queue takes nothing more, and
  // what it still has is owed as ever.
  virtual void Fail(std::string_view why) = 0;
};

// What an embedder implements.
//
// Threads: Run, Recall and what was posted are called on the queue's I/O thread, for one queue one
// at a time, for several queues perhaps at once. The calls about configuration and state come from
// vCPU threads or from whoever saves and restores, one at a time, and at the same time as those.
// None may block: the guest, or other devices, would wait.
// Ownership: the machine's, which makes one by DeviceConfig::create and destroys it when no request
// of it is popped. The destructor may wait for threads of the device.
class RINGSIDE_EXPORT Device {
 public:
  virtual ~Device() = default;

  virtual uint16_t id() const = 0;         // section 5, 1 to 63
  virtual uint32_t pci_class() const = 0;  // what guests that look at it expect: 24 bits
  // Features of this kind of device, bits 0 to 23 and 50 to 63; those of the ring are Ringside's.
  virtual uint64_t features() const { return 0; }
  virtual uint16_t queue_count() const { return 1; }  // 1 to 64
  virtual uint16_t queue_size() const {
    return 256;
  }  // of each, at most; a power of two up to 1024

  // Device configuration (section 2.5). An access may lie partly or wholly beyond its end: what is
  // read there is zero, which `data` is from the beginning, and what is written is ignored.
  virtual void ReadConfig(uint64_t /*offset*/, std::span<std::byte> /*data*/) {}
  virtual void WriteConfig(uint64_t /*offset*/, std::span<const std::byte> /*data*/) {}

  // The driver is ready; `features` are the negotiated ones. Run may follow.
  virtual void Activated(uint64_t /*features*/) {}
  // The queue's ring may have entries. Pops them until there are none: as long as one is left, Run
  // is called in each turn of the thread, which then never sleeps. A device that has no use for
  // them yet keeps them popped, and puts them back when they are recalled.
  virtual void Run(DeviceQueue& queue) = 0;
  // The queue is about to move, to rest or to stop, which waits until nothing that was popped is
  // left: push it soon, or put it back. Run comes again if the queue goes on.
  virtual void Recall(DeviceQueue& /*queue*/) {}

  // What the driver has set beside the queues, in a form of the device's own; of most there is
  // nothing. While no request is popped.
  virtual std::vector<uint8_t> SaveState() const { return {}; }
  // InvalidArgument for what no device of this kind could have saved. The state may come from
  // anywhere.
  virtual absl::Status CheckState(std::span<const uint8_t> state) const {
    if (state.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("the saved state has bytes for a device that saves none");
  }
  // Of a device that is new; the state has been checked.
  virtual void RestoreState(std::span<const uint8_t> /*state*/) {}
};

}  // namespace ringside
