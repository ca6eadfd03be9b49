// A virtio-blk device whose queues move between I/O threads, and rest, over a disk that can be
// held.
#pragma once

#include <memory>
#include <thread>

#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/test_source.h"

namespace ringside::testing {

class VirtioBlkMoveFixture : public VirtioBlkFixture {
 protected:
  // Its end, which comes on some thread.
  struct Move {
    BoundedEvent over;
    absl::Status status;
    int times = 0;
  };
  // Two threads, and one queue on the first.
  static Setting TwoThreads() { return {.threads = 2}; }
  static Setting Traced() { return {.threads = 2, .trace_latency = true}; }

  std::unique_ptr<Move> BeginMove(uint16_t queue, size_t thread) {
    auto move = std::make_unique<Move>();
    device_->MoveQueue(queue, *threads_[thread], [move = move.get()](const absl::Status& status) {
      move->status = status;
      ++move->times;
      move->over.Notify();
    });
    return move;
  }
  absl::Status MoveTo(size_t thread, uint16_t queue = 0) {
    const auto move = BeginMove(queue, thread);
    move->over.WaitOrAbort();
    return move->status;
  }
  // A rest of all queues; Resume ends it.
  void BeginPause() {
    rests_ = std::make_unique<BoundedEvent>();
    device_->Pause(rest_);
  }
  void Pause() {
    BeginPause();
    rests_->WaitOrAbort();
  }
  bool rests() const { return rests_->HasBeenNotified(); }
  bool IsOn(size_t thread, uint16_t queue = 0) const {
    return &device_->io_thread(queue) == threads_[thread].get();
  }
  // The thread on which the disk sees the next request.
  std::thread::id ServedBy() {
    std::thread::id served;
    disk_->OnSubmit([&] { served = std::this_thread::get_id(); });
    EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    disk_->OnSubmit(nullptr);
    return served;
  }
  std::thread::id IdOf(size_t thread) {
    std::thread::id id;
    RunOn(*threads_[thread], [&] { id = std::this_thread::get_id(); });
    return id;
  }
  // Holds `count` reads in flight.
  void HoldReads(size_t count) {
    disk_->Hold(true);
    for (size_t i = 0; i < count; ++i) driver().AddRead(8 * i, 512);
    rig().Publish();
    ASSERT_TRUE(disk_->WaitForHeld(count));
  }
  // Holds one read in flight until the thread has stopped looking at the ring.
  void HoldOneUntilParked() {
    const uint64_t parked = threads_[0]->stats().parked.Get();
    HoldReads(1);
    ASSERT_TRUE(SpinUntil([&] {
      LetTurn(*threads_[0]);
      return threads_[0]->stats().parked.Get() > parked;
    }));
  }
  void ReleaseAndWait(size_t count) {
    disk_->Hold(false);
    disk_->ReleaseAll();
    for (size_t i = 0; i < count; ++i) {
      const UsedElement used = rig().Wait();
      EXPECT_EQ(driver().status(used.head), kBlkOk);
    }
  }

 private:
  void Notify() { rests_->Notify(); }

  std::unique_ptr<BoundedEvent> rests_;
  TaskTo<VirtioBlkMoveFixture, &VirtioBlkMoveFixture::Notify> rest_{*this};
};

}  // namespace ringside::testing
