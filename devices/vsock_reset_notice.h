// What a restored driver is to be told: its connections are gone. It closes all that it has when it
// handles that event, also those made since, so a new one had better wait until it has.
//
// That a driver has handled an event shows in its event queue, where it offers the buffer again.
//
// Threads: any; the queues of one device may be on different threads for a moment.
// Spec: VIRTIO 1.2, section 5.10.6.7.
#pragma once

#include <atomic>
#include <cstdint>

#include "devices/virtqueue.h"

namespace ringside {

class VsockResetNotice {
 public:
  // The device was restored.
  void Owe() { stage_ = Stage::kOwed; }
  bool is_owed() const { return stage_ == Stage::kOwed; }
  // The event is in a buffer of this queue, the rings of which stay where they are.
  void Told(const Virtqueue& events) {
    index_ = events.available_index();
    told_at_ = Index();
    stage_ = Stage::kTold;
  }
  // Another driver, which knows of no connections.
  void Begin() {
    if (stage_ == Stage::kTold) stage_ = Stage::kNone;
  }
  // Whether the driver has yet to handle it.
  bool IsPending() {
    if (stage_ == Stage::kTold && Index() != told_at_) stage_ = Stage::kNone;
    return stage_ != Stage::kNone;
  }

 private:
  enum class Stage : uint8_t { kNone, kOwed, kTold };

  uint16_t Index() const {
    return std::atomic_ref<uint16_t>(*index_.load()).load(std::memory_order_relaxed);
  }

  std::atomic<Stage> stage_{Stage::kNone};
  std::atomic<uint16_t*> index_{nullptr};  // in guest memory; there once it was told
  std::atomic<uint16_t> told_at_{0};
};

}  // namespace ringside
