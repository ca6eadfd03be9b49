// A guest that keeps a virtio-blk queue busy: requests of any size at any depth, each checked
// against what was written before. Both sides sleep whenever they may, so a lost kick or interrupt
// hangs.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <random>
#include <vector>

#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/races.h"

namespace ringside::testing {

class BlkWorkload {
 public:
  BlkWorkload(QueueRig& rig, uint64_t first_sector, uint64_t sectors, int seed)
      : rig_(&rig), first_(first_sector), shadow_(sectors * 512), random_(seed) {}

  void Run(int requests) {
    int started = 0;
    while (started < requests || !running_.empty()) {
      WantNoInterrupt();
      Complete();
      // At most 6 descriptors a request.
      for (uint32_t n = random_() % 8; n > 0 && started < requests; --n) {
        if (rig_->queue().free_descriptors() < 8) break;
        AddOne();
        ++started;
      }
      rig_->Publish();
      if (!AskForInterrupt() || running_.empty()) continue;
      if (!WaitForFd(rig_->call.fd(), POLLIN)) {
        ADD_FAILURE() << "an interrupt or a kick was lost";
        return;
      }
      rig_->call.Clear();
    }
  }
  const std::vector<std::byte>& shadow() const { return shadow_; }
  // Asks for interrupts in all ways that EVENT_IDX allows from now on.
  void PlayWithEvents() { plays_ = true; }

  // For a device that is reset in the middle: publishes some and leaves them.
  void Begin(int requests) {
    for (int i = 0; i < requests && rig_->queue().free_descriptors() >= 8; ++i) AddOne();
    rig_->Publish();
  }
  // Goes on with a new driver, once the reset is done. `content` is what is on the disk: what was
  // in flight may be there or not, all else must be.
  void GoOn(QueueRig& rig, const std::vector<std::byte>& content) {
    for (const auto& [head, request] : running_) {
      if (request.read) continue;
      const auto begin = static_cast<ptrdiff_t>(request.sector * 512);
      std::copy_n(content.begin() + begin, request.expected.size(), shadow_.begin() + begin);
    }
    EXPECT_TRUE(content == shadow_);
    running_.clear();
    rig_ = &rig;
  }

 private:
  static constexpr int kLooks = 200;

  struct Running {
    uint64_t sector;
    uint32_t sectors;
    bool read;
    std::vector<std::byte> expected;
  };

  bool Overlaps(uint64_t sector, uint32_t sectors) const {
    return std::ranges::any_of(running_, [&](const auto& other) {
      return sector < other.second.sector + other.second.sectors &&
             other.second.sector < sector + sectors;
    });
  }
  void AddOne() {
    const uint32_t sectors = 1 + random_() % 32;
    const uint64_t sector = random_() % (shadow_.size() / 512 - sectors);
    if (Overlaps(sector, sectors)) return;
    const auto begin = shadow_.begin() + static_cast<ptrdiff_t>(sector * 512);
    const auto end = begin + sectors * 512;
    const bool read = random_() % 2 == 0;
    uint16_t head;
    if (read) {
      head = rig_->driver.AddRead(first_ + sector, sectors * 512);
    } else {
      for (auto at = begin; at != end; at += sizeof(uint32_t)) {
        const auto word = static_cast<uint32_t>(random_());
        std::memcpy(&*at, &word, sizeof word);
      }
      head = rig_->driver.AddWrite(first_ + sector, {begin, end});
    }
    running_[head] = {sector, sectors, read, {begin, end}};
  }
  void WantNoInterrupt() {
    // With EVENT_IDX that is an event behind what was consumed or, as good, far ahead of it.
    if (!plays_ || random_() % 2 == 0) return rig_->queue().DisableInterrupts();
    rig_->queue().ring().SetUsedEvent(static_cast<uint16_t>(rig_->queue().used_index() + 0x4000));
  }
  // Whether one will come, that is, unless what it would tell of is there already.
  bool AskForInterrupt() {
    FakeDriver& queue = rig_->queue();
    uint16_t later = 0;  // used elements that do not matter yet
    switch (plays_ ? random_() % 8 : 0) {
      case 1:  // looks again instead
        return false;
      case 2:  // has changed its mind since
        queue.EnableInterrupts();
        WantNoInterrupt();
        break;
      case 3:
        if (!running_.empty()) later = static_cast<uint16_t>(random_() % running_.size());
        break;
      case 4:
      case 5:  // finds by itself what it has asked to be told of
        queue.EnableInterrupts();
        for (int looks = 0; looks < kLooks && !queue.HasUsed(); ++looks) Delay(100);
        return false;
      default:
        break;
    }
    queue.EnableInterrupts(later);
    return static_cast<uint16_t>(queue.ring().used_index() - queue.used_index()) <= later;
  }
  void Complete() {
    while (const std::optional<UsedElement> used = rig_->queue().TakeUsed()) {
      const auto found = running_.find(used->head);
      ASSERT_NE(found, running_.end());
      const Running& request = found->second;
      EXPECT_EQ(rig_->driver.status(used->head), kBlkOk);
      if (request.read) {
        EXPECT_TRUE(std::ranges::equal(rig_->driver.data(used->head, request.sectors * 512),
                                       request.expected));
      }
      running_.erase(found);
    }
  }

  QueueRig* rig_;
  const uint64_t first_;
  std::vector<std::byte> shadow_;
  std::mt19937 random_;
  bool plays_ = false;
  std::map<uint32_t, Running> running_;  // by head
};

}  // namespace ringside::testing
