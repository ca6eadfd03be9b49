// A transport that is saved while its device tells it something.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "base/sync.h"
#include "devices/virtio_transport.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

// With a lock of its own, as any has that tells of changes from a thread of its own.
class LockingDevice final : public VirtioDevice {
 public:
  uint16_t id() const override { return 42; }
  uint64_t features() const override { return 0; }
  uint16_t queue_count() const override { return 1; }
  uint32_t pci_class() const override { return 0x010000; }
  uint16_t max_queue_size(uint16_t) const override { return 64; }
  void ReadConfig(uint64_t, std::span<std::byte>) override { const MutexLock lock(mutex_); }
  void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}
  void Activate(uint64_t, std::span<const QueueSetup>, VirtioEvents&) override {}
  void Reset(Task& done) override { done.Run(); }
  void Pause(Task& done) override { done.Run(); }
  void Resume() override {}
  uint16_t Position(uint16_t) const override { return 0; }
  std::vector<uint8_t> SaveState() const override {
    const MutexLock lock(mutex_);
    return {};
  }
  void Change(VirtioTransport& events) {
    const MutexLock lock(mutex_);
    events.ConfigChanged();
  }

 private:
  mutable Mutex mutex_;
};

// The transport calls its device without its own mutex.
TEST(VirtioTransportSave, ADeviceMayTellOfAChangeMeanwhile) {
  LockingDevice device;
  const auto transport = *VirtioTransport::Create(device, "own", Logger(), {});
  std::atomic<bool> over{false};
  Event done;
  std::thread changes([&] {
    std::array<std::byte, 1> data;
    while (!over) {
      device.Change(*transport);
      transport->ReadConfig(0, data);
    }
  });
  std::atomic<int> saved{0};
  std::thread saves([&] {
    while (saved < 200'000) {
      (void)transport->Save();
      ++saved;
    }
    done.Notify();
  });
  for (int before = -1; !done.WaitFor(absl::Seconds(30));) {
    if (saved == std::exchange(before, saved)) {
      std::fputs("saving and a change wait for each other\n", stderr);
      std::_Exit(1);
    }
  }
  over = true;
  changes.join();
  saves.join();
}

}  // namespace
}  // namespace ringside
