// A virtio-blk device over a memory disk, on real I/O threads, with a fake driver for each queue.
#pragma once

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/sync.h"
#include "devices/virtio_blk.h"
#include "tests/support/block/memory_disk.h"
#include "tests/support/devices/blk_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/recording_reports.h"
#include "tests/support/devices/recording_virtio_events.h"
#include "tests/support/devices/virtio_blk_rig.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/wait.h"

namespace ringside::testing {

inline constexpr uint64_t kBlkFlushFeature = uint64_t{1} << 9;
inline constexpr uint64_t kBlkConfigWceFeature = uint64_t{1} << 11;
inline constexpr uint64_t kBlkDiscardFeature = uint64_t{1} << 13;
inline constexpr uint64_t kBlkWriteZeroesFeature = uint64_t{1} << 14;

class VirtioBlkFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kDiskSize = 4 * kMiB;

  struct Setting {
    uint16_t queues = 1;
    size_t threads = 1;
    IoThread::Waiter waiter = IoThread::Waiter::kEpoll;
    BlkDriver::Options driver = {.queue = {.size = 64}};
    BlockInfo info = {.size = kDiskSize, .can_discard = true};
    std::string serial = "disk-0";
    bool trace_latency = false;
    DiskThrottle* throttle = nullptr;
    ErrorAction rerror = ErrorAction::kReport;
    ErrorAction werror = ErrorAction::kReport;
  };

  ~VirtioBlkFixture() override {
    if (active_) Reset();
  }

  // Threads may be there already.
  void Make(const Setting& setting) {
    setting_ = setting;
    device_.reset();  // before the disk it has a channel to
    disk_ = std::make_unique<MemoryDisk>(setting.info);
    while (threads_.size() < setting.threads) {
      threads_.push_back(*IoThread::Start("test", setting.waiter));
    }
    std::vector<IoThread*> threads;
    for (const auto& thread : threads_) threads.push_back(thread.get());
    device_ = std::make_unique<VirtioBlk>(*disk_, *memory_, threads,
                                          VirtioBlkConfig{.serial = setting.serial,
                                                          .queues = setting.queues,
                                                          .trace_latency = setting.trace_latency,
                                                          .reports = &reports_,
                                                          .throttle = setting.throttle,
                                                          .rerror = setting.rerror,
                                                          .werror = setting.werror});
    MakeRigs();
  }
  // With rings of zeroes, as after any reset.
  void MakeRigs() {
    rigs_.clear();
    BlkDriver::Options options = setting_.driver;
    for (uint16_t i = 0; i < setting_.queues; ++i) {
      rigs_.push_back(std::make_unique<QueueRig>(*memory_, options));
      options.queue.address = (rigs_.back()->driver.end() + 4095) / 4096 * 4096;
    }
  }
  uint64_t features() {
    return rigs_[0]->queue().features() | kBlkFlushFeature | kBlkConfigWceFeature |
           kBlkDiscardFeature | kBlkWriteZeroesFeature;
  }
  void Activate() { Activate(features()); }
  void Activate(uint64_t features) {
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < rigs_.size(); ++i) setups.push_back(rigs_[i]->Setup(i));
    device_->Activate(features, setups, events_);
    active_ = true;
  }
  void BeginReset() {
    active_ = false;
    reset_ = std::make_unique<ResetDone>();
    device_->Reset(reset_->task);
  }
  bool reset_done() const { return reset_->event.HasBeenNotified(); }
  void WaitForReset() { reset_->event.WaitOrAbort(); }
  void Reset() {
    disk_->ReleaseAll();
    BeginReset();
    WaitForReset();
  }
  void Start(const Setting& setting) {
    Make(setting);
    Activate();
  }

  QueueRig& rig(size_t i = 0) { return *rigs_[i]; }
  BlkDriver& driver(size_t i = 0) { return rigs_[i]->driver; }
  // Lets what was published be taken.
  void Settle() {
    for (const auto& thread : threads_) LetTurn(*thread, 5);
  }
  static std::vector<std::byte> Pattern(size_t size, int seed) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 512 + seed);
    return bytes;
  }
  std::vector<std::byte> Data(size_t queue, uint32_t head, size_t size) {
    const auto data = driver(queue).data(head, size);
    return {data.begin(), data.end()};
  }

  struct ResetDone {
    BoundedEvent event;
    TaskOf<std::function<void()>> task{[this] { event.Notify(); }};
  };

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(64 * kMiB);
  Setting setting_;
  RecordingVirtioEvents events_;
  RecordingReports reports_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::unique_ptr<MemoryDisk> disk_;
  std::vector<std::unique_ptr<QueueRig>> rigs_;
  std::unique_ptr<VirtioBlk> device_;
  std::unique_ptr<ResetDone> reset_;
  bool active_ = false;
};

}  // namespace ringside::testing
