// libFuzzer: drivers of virtio-net that keep to no rule, with any descriptors in any of its three
// queues, while frames come in, queues move, and the device rests and is reset. Whatever they do, a
// reset ends, and the next driver, which keeps to the rules, gets its frames through.
#include <algorithm>

#include "tests/fuzz/queued_device_run.h"
#include "tests/support/devices/socket_network.h"

namespace ringside::testing {
namespace {

// Merged buffers, checksums, the control queue, indirect tables, EVENT_IDX, in any combination.
constexpr int kFeatures[] = {15, 1, 17, 28, 29};

class Run : public QueuedDeviceRun<VirtioNet> {
 public:
  Run(const uint8_t* data, size_t size)
      : QueuedDeviceRun(data, size),
        network_(1),
        device_(network_, link_, Memory(), std::vector<IoThread*>{&Thread(input_.Next())},
                VirtioNetConfig{.name = "net0", .mac = {2, 0, 0, 0, 0, 1}, .log = Logger()}) {}

  void Go() {
    Start(kFeatures);
    for (int i = 0; i < 64 && !input_.empty(); ++i) Step();
    Reset();
    link_.Pull(false);
    device_.SetLink(true);
    while (network_.TryReceive().has_value()) {
    }
    KeepsToTheRules();
  }

 private:
  VirtioNet& device() override { return device_; }

  void Step() {
    const uint32_t op = input_.Next();
    if (TakeStep(op)) return;
    switch (op % 16) {
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
      case 14:
        device_.SetLink(input_.Next() % 2 == 0);
        break;
      default:
        Reset();
        Start(kFeatures);
    }
  }

  void KeepsToTheRules() {
    const std::vector<std::unique_ptr<FakeDriver>> drivers = StartInGoodOrder();
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

  SocketNetwork network_;
  NetLink link_;
  VirtioNet device_;
};

}  // namespace
}  // namespace ringside::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringside::testing::Run(data, size).Go();
  return 0;
}
