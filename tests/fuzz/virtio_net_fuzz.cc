// libFuzzer: drivers of virtio-net that keep to no rule, with any descriptors in any of its three
// queues, while frames come in, queues move, and the device rests and is reset. Whatever they do, a
// reset ends, and the next driver, which keeps to the rules, gets its frames through.
#include <algorithm>
#include <cstdio>

#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/raw_ring.h"
#include "tests/support/devices/recording_virtio_events.h"
#include "tests/support/devices/socket_network.h"

namespace ringside::testing {
namespace {

constexpr uint16_t kQueues = 3;
constexpr uint16_t kSize = 16;
constexpr uint64_t kQueueMemory = 1 << 20;
constexpr uint64_t kMemorySize = 8 << 20;
constexpr uint64_t kBuffers = 4 << 20;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data, data + size) {}
  bool empty() const { return next_ >= data_.size(); }
  uint32_t Next(int bytes = 1) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | (empty() ? 0U : data_[next_++]);
    return value;
  }

 private:
  const std::vector<uint8_t> data_;
  size_t next_ = 0;
};

const GuestMemory& Memory() {
  static const std::unique_ptr<GuestMemory> memory = MakeMemory(kMemorySize);
  return *memory;
}
IoThread& Thread(uint32_t which) {
  const auto make = [](IoThread::Waiter waiter) {
    auto thread = IoThread::Start("fuzz", waiter);
    return thread.ok() ? *std::move(thread) : *IoThread::Start("fuzz");
  };
  static const std::unique_ptr<IoThread> threads[] = {make(IoThread::Waiter::kEpoll),
                                                      make(IoThread::Waiter::kUring)};
  return *threads[which % 2];
}

class Run {
 public:
  Run(const uint8_t* data, size_t size)
      : input_(data, size),
        network_(1),
        device_(network_, link_, Memory(), std::vector<IoThread*>{&Thread(input_.Next())},
                VirtioNetConfig{.name = "net0", .mac = {2, 0, 0, 0, 0, 1}, .log = Logger()}) {
    for (Queue& queue : queues_) queue.line.Connect(&queue.call);
  }

  void Go() {
    Start();
    for (int i = 0; i < 64 && !input_.empty(); ++i) Step();
    Reset();
    link_.Pull(false);
    device_.SetLink(true);
    while (network_.TryReceive().has_value()) {
    }
    KeepsToTheRules();
  }

 private:
  struct Queue {
    std::optional<RawRing> ring;
    const EventFd kick = *EventFd::Create(), call = *EventFd::Create();
    std::atomic<uint8_t> isr{0};
    InterruptLine line{isr, 1};
    uint16_t available = 0;
  };

  void Start() {
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < kQueues; ++i) {
      const RingPlace place(i * kQueueMemory, kSize);
      queues_[i].ring.emplace(Memory(), place);
      queues_[i].available = 0;
      setups.push_back({.index = i,
                        .size = kSize,
                        .descriptor_area = place.descriptors,
                        .driver_area = place.available,
                        .device_area = place.used,
                        .kick = &queues_[i].kick,
                        .call = &queues_[i].line});
    }
    // Merged buffers, checksums, the control queue, indirect tables, EVENT_IDX, in any combination.
    const uint32_t bits = input_.Next();
    uint64_t features = kVirtioVersion1;
    for (const int bit : {15, 1, 17, 28, 29}) {
      features |= uint64_t{bits >> (bit % 8) & 1} << bit;
    }
    device_.Activate(features, setups, events_);
  }
  void Reset() {
    BoundedEvent done;
    TaskOf task([&] { done.Notify(); });
    device_.Reset(task);
    done.WaitOrAbort();
  }

  uint64_t Address() {
    const uint32_t choice = input_.Next(3);
    // Most are in memory, some are in the rings, or wrap.
    if (choice % 16 == 0) return ~uint64_t{0} - choice;
    return choice % 16 == 1 ? choice % (kQueues * kQueueMemory) : kBuffers + choice % kBuffers;
  }
  void Step() {
    const uint32_t op = input_.Next();
    Queue& queue = queues_[op / 16 % kQueues];
    switch (op % 16) {
      case 0:
      case 1:
      case 2: {
        const auto index = static_cast<uint16_t>(input_.Next() % kSize);
        const uint32_t length = input_.Next(3) % 70000;
        const auto flags = static_cast<uint16_t>(input_.Next() % 8);
        const auto next = static_cast<uint16_t>(input_.Next() % (kSize + 1));
        queue.ring->SetDescriptor(
            index, {.address = Address(), .length = length, .flags = flags, .next = next});
        break;
      }
      case 3:
      case 4:
      case 5:
      case 6:
        queue.ring->SetAvailableEntry(queue.available,
                                      static_cast<uint16_t>(input_.Next() % (kSize + 1)));
        queue.ring->SetAvailableIndex(++queue.available);
        queue.kick.Signal();
        break;
      case 7:
        queue.ring->SetAvailableIndex(static_cast<uint16_t>(input_.Next(2)));
        queue.kick.Signal();
        break;
      case 8:
      case 9:
        (void)network_.Send(std::vector<uint8_t>(input_.Next(2) % 2048 + 1, 7));
        break;
      case 10:
        (void)network_.Send(std::vector<uint8_t>(input_.Next(2) + 30, 8));
        break;
      case 11:
        while (network_.TryReceive().has_value()) {
        }
        break;
      case 12: {
        BoundedEvent done;
        device_.MoveQueue(static_cast<uint16_t>(op / 16 % kQueues), Thread(input_.Next()),
                          [&](const absl::Status&) { done.Notify(); });
        done.WaitOrAbort();
        break;
      }
      case 13: {
        BoundedEvent done;
        TaskOf task([&] { done.Notify(); });
        device_.Pause(task);
        done.WaitOrAbort();
        for (uint16_t i = 0; i < kQueues; ++i) (void)device_.Position(i);
        Check(device_.CheckState(device_.SaveState()).ok(), "any device can be saved");
        device_.Resume();
        break;
      }
      case 14:
        device_.SetLink(input_.Next() % 2 == 0);
        break;
      default:
        Reset();
        Start();
    }
  }

  void KeepsToTheRules() {
    std::vector<std::unique_ptr<FakeDriver>> drivers;
    std::vector<QueueSetup> setups;
    for (uint16_t i = 0; i < kQueues; ++i) {
      drivers.push_back(std::make_unique<FakeDriver>(
          Memory(), FakeDriver::Options{.size = kSize, .address = i * kQueueMemory}));
      setups.push_back(drivers[i]->Setup(i, queues_[i].kick, queues_[i].line));
    }
    device_.Activate(kVirtioVersion1, setups, events_);
    const std::vector<uint8_t> frame = WithHeader(FrameOf(1, 100));
    std::memcpy(Memory().At(kBuffers, frame.size()), frame.data(), frame.size());
    drivers[1]->NewChain().AppendReadable(kBuffers, static_cast<uint32_t>(frame.size())).Add();
    drivers[1]->Publish();
    queues_[1].kick.Signal();
    Check(network_.Receive() == frame, "the next driver sends a frame");
    // What came for the one before is there first.
    for (int i = 0; i < 12; ++i) {
      drivers[0]->NewChain().AppendWritable(kBuffers + (1 + i) * 131072, 66000).Add();
    }
    drivers[0]->Publish();
    queues_[0].kick.Signal();
    Check(SpinUntil([&] { return network_.Send(frame); }), "the host can send to it");
    Check(SpinUntil([&] { return drivers[0]->HasUsed(); }), "the next driver receives a frame");
    Reset();
  }

  Input input_;
  SocketNetwork network_;
  NetLink link_;
  RecordingVirtioEvents events_;
  VirtioNet device_;
  std::array<Queue, kQueues> queues_;
};

}  // namespace
}  // namespace ringside::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside::testing;
  std::memset(Memory().At(0, kMemorySize), 0, kQueues * kQueueMemory);
  Run(data, size).Go();
  return 0;
}
