// A guest that keeps a virtio-blk queue busy: requests of any size at any depth, each checked
// against what was written before. Both sides sleep whenever they may, so a lost kick or interrupt
// hangs.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <random>
#include <vector>

#include "tests/support/devices/virtio_blk_fixture.h"

namespace ringside::testing {

class BlkWorkload {
 public:
  BlkWorkload(QueueRig& rig, uint64_t first_sector, uint64_t sectors, int seed)
      : rig_(&rig), first_(first_sector), shadow_(sectors * 512), random_(seed) {}

  void Run(int requests) {
    int started = 0;
    while (started < requests || !running_.empty()) {
      rig_->queue().DisableInterrupts();
      Complete();
      // At most 6 descriptors a request.
      for (uint32_t n = random_() % 8; n > 0 && started < requests; --n) {
        if (rig_->queue().free_descriptors() < 8) break;
        AddOne();
        ++started;
      }
      rig_->Publish();
      rig_->queue().EnableInterrupts();
      if (running_.empty() || rig_->queue().HasUsed()) continue;
      if (!WaitForFd(rig_->call.fd(), POLLIN)) {
        ADD_FAILURE() << "an interrupt or a kick was lost";
        return;
      }
      rig_->call.Clear();
    }
  }
  const std::vector<std::byte>& shadow() const { return shadow_; }

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
      std::generate(begin, end, [&] { return static_cast<std::byte>(random_()); });
      head = rig_->driver.AddWrite(first_ + sector, {begin, end});
    }
    running_[head] = {sector, sectors, read, {begin, end}};
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
  std::map<uint32_t, Running> running_;  // by head
};

}  // namespace ringside::testing
