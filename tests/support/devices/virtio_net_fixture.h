// A virtio-net device on I/O threads, with the guest's side of its queues and the host's side of
// its network (tests/support/devices/socket_network.h).
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "devices/virtio_net.h"
#include "tests/support/devices/queued_device_fixture.h"
#include "tests/support/devices/socket_network.h"

namespace ringside::testing {

class VirtioNetTest : public QueuedDeviceTest<VirtioNet> {
 protected:
  static constexpr uint64_t kMerge = uint64_t{1} << 15;
  static constexpr uint64_t kControl = uint64_t{1} << 17;
  static constexpr uint64_t kMultiQueue = uint64_t{1} << 22;
  static constexpr uint64_t kGuestCsum = uint64_t{1} << 1;
  static constexpr MacAddress kMac = {2, 1, 2, 3, 4, 5};

  void Make(uint16_t pairs = 1, const PollConfig& poll = {}) {
    network_ = std::make_unique<SocketNetwork>(pairs);
    StartThreads("net", poll);
    MakeDevice();
  }
  void MakeDevice() {
    device_ = std::make_unique<VirtioNet>(
        *network_, link_, *memory_, std::vector<IoThread*>{threads_[0].get()},
        VirtioNetConfig{.name = "net0", .mac = kMac, .throttle = &throttle_, .log = Logger(&log_)});
  }
  void Start(uint64_t features = kMerge | kControl) {
    if (network_ == nullptr) Make();
    Activate(features);
  }

  Queue& rx(uint16_t pair = 0) { return *queues_[2 * pair]; }
  Queue& tx(uint16_t pair = 0) { return *queues_[2 * pair + 1]; }
  using QueuedDeviceTest::GiveBuffers;
  void GiveBuffers(Queue& queue, size_t count, uint32_t size = 2048) {
    GiveBuffers(queue, count, size, 32768);
  }
  // A frame that has come in, header first, from as many buffers as it says to take.
  std::optional<std::vector<uint8_t>> NextReceived(Queue& queue, uint32_t* buffers = nullptr) {
    if (!SpinUntil([&] { return queue.driver.HasUsed(); })) return std::nullopt;
    std::vector<uint8_t> frame;
    uint32_t count = 1;
    for (uint32_t i = 0; i < count; ++i) {
      const std::optional<UsedElement> used = queue.driver.TakeUsed();
      if (!used.has_value()) return std::nullopt;
      const auto* bytes =
          reinterpret_cast<const uint8_t*>(At(queue.address_of[used->head], used->written));
      frame.insert(frame.end(), bytes, bytes + used->written);
      if (i == 0) count = frame[10] | frame[11] << 8;
    }
    if (buffers != nullptr) *buffers = count;
    return frame;
  }
  bool HasRoom(const Queue& queue) const { return queue.driver.free_descriptors() > 0; }
  void Add(Queue& queue, const std::vector<uint8_t>& frame, size_t pieces = 1) {
    const uint64_t address = queue.buffers + (queue.next++ % (2 * kRingSize)) * 131072;
    std::memcpy(At(address, frame.size()), frame.data(), frame.size());
    AddReadable(queue, address, frame.size(), pieces);
  }
  bool WaitForUsed(Queue& queue, size_t count = 1) {
    for (size_t i = 0; i < count; ++i) {
      if (!SpinUntil([&] { return queue.driver.HasUsed(); })) return false;
      queue.driver.TakeUsed();
    }
    return true;
  }
  // The answer to a command of the control queue.
  int Command(uint16_t queue_index, const std::vector<uint8_t>& command) {
    Queue& queue = *queues_[queue_index];
    std::ranges::copy(std::as_bytes(std::span(command)), At(queue.buffers, 4096));
    const uint64_t answer = queue.buffers + 4096;
    *At(answer, 1) = std::byte{0x55};
    auto chain = queue.driver.NewChain();
    if (!command.empty()) {
      chain.AppendReadable(queue.buffers, static_cast<uint32_t>(command.size()));
    }
    chain.AppendWritable(answer, 1).Add();
    Publish(queue);
    return WaitForUsed(queue) ? static_cast<int>(*At(answer, 1)) : -1;
  }
  std::vector<uint8_t> Config(size_t size = VirtioNet::kConfigSize) {
    std::vector<uint8_t> config(size);
    device_->ReadConfig(0, std::as_writable_bytes(std::span(config)));
    return config;
  }

  DiskThrottle throttle_;
  NetLink link_;
  std::unique_ptr<SocketNetwork> network_;
};

}  // namespace ringside::testing
