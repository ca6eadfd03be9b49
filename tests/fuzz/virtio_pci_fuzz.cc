// libFuzzer: any accesses to the BAR and the configuration space of a virtio-pci function, with
// resets that end at any time. The fake device holds the transport to the contract of VirtioDevice;
// what a driver can read must make sense after every access.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "devices/virtio_pci.h"
#include "tests/support/devices/fake_pci_platform.h"
#include "tests/support/devices/fake_virtio_device.h"
#include "tests/support/registers.h"

namespace ringside {
namespace {

using testing::FakeVirtioDevice;
using testing::ReadAs;
using testing::WriteAs;
using Transport = VirtioTransport;

constexpr auto Check = &FakeVirtioDevice::Check;
constexpr uint64_t kBarAddress = 0xd0000000;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  // Zero once there is no more.
  uint64_t Next(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes && size_ > 0; ++i, ++data_, --size_) value = value << 8 | *data_;
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// The registers that do something, with their widths: what bytes alone would seldom hit.
struct Field {
  uint8_t offset;
  uint8_t width;
};
constexpr Field kFields[] = {{8, 4},  {12, 4}, {16, 2}, {20, 1}, {22, 2}, {24, 2}, {26, 2},
                             {28, 2}, {32, 4}, {36, 4}, {32, 8}, {40, 8}, {48, 8}, {20, 1}};

class Guest {
 public:
  Guest() {
    device_.on_reset = [this](Task& done) { reset_done_ = &done; };
    pci_ = *VirtioPci::Create(device_, "fuzz", platform_, Logger());
  }
  ~Guest() {
    EndReset();
    device_.on_reset = [](Task& done) { done.Run(); };
    pci_->transport().ResetAndWait();
    Check(pci_->transport().status() == 0 && !device_.active, "a reset ends everything");
    pci_.reset();
    Check(platform_.doorbells.empty(), "a function that is gone leaves no doorbells");
  }

  void Step(Input& input) {
    switch (input.Next(1) % 14) {
      case 0:
        return Access(input, [this](uint64_t at, auto value) {
          if (at + sizeof value > VirtioPci::kBarSize) return;
          WriteAs(bar(), at, value);
        });
      case 1:
        return Access(input, [this](uint64_t at, auto value) {
          if (at + sizeof value > VirtioPci::kBarSize) return;
          ReadAs<decltype(value)>(bar(), at);
        });
      case 2:
        return Access(input, [this](uint64_t at, auto value) {
          pci_->WriteConfig(at % 300, std::as_bytes(std::span(&value, 1)));
        });
      case 3:
        return Access(input, [this](uint64_t at, auto value) {
          pci_->ReadConfig(at % 300, std::as_writable_bytes(std::span(&value, 1)));
        });
      case 4:
      case 5:
      case 6:
      case 7:
        return WriteField(input);
      case 8:
        return Map(input.Next(1) % 2 == 0);
      case 9:
        return EndReset();
      case 10:
        return Complain();
      case 11:
        return Set<uint8_t>(20, static_cast<uint8_t>(input.Next(1) | 15));  // start, more or less
      case 12:
        return AcceptVersion1();
      default:
        return Interrupt();
    }
  }

  // What holds after every step.
  void CheckRegisters() {
    const auto status = Common<uint8_t>(20);
    Check((status & (16 | 32)) == 0, "reserved bits of the status stay 0");
    if ((status & Transport::kDriverOk) != 0) {
      Check((status & Transport::kFeaturesOk) != 0, "the device runs only with features agreed");
    }
    if (device_.active) Check((status & Transport::kDriverOk) != 0, "the status says it runs");
    if (reset_done_ != nullptr) Check(status != 0, "the status waits for the reset");
    const auto size = Common<uint16_t>(24);
    Check((size & (size - 1)) == 0 && size <= FakeVirtioDevice::kMaxSize, "a size is possible");
    for (const uint64_t at : {16, 26}) {
      const auto vector = Common<uint16_t>(at);
      Check(vector <= FakeVirtioDevice::kQueues || vector == 0xffff, "a vector exists");
    }
    Check(Common<uint16_t>(18) == FakeVirtioDevice::kQueues, "the queues stay");
    Check(platform_.doorbells.size() == (mapped_ ? FakeVirtioDevice::kQueues : 0u),
          "doorbells are there while the BAR is");
  }

 private:
  IoHandler& bar() { return *pci_->bar(0).handler; }
  template <typename T>
  T Common(uint64_t offset) {
    return ReadAs<T>(bar(), VirtioPci::kCommonPage + offset);
  }

  template <typename T>
  void Set(uint64_t offset, T value) {
    WriteAs<T>(bar(), VirtioPci::kCommonPage + offset, value);
  }
  // Chance would take long to get there.
  void AcceptVersion1() {
    Set<uint32_t>(8, 0);
    Set<uint32_t>(12, 0);
    Set<uint32_t>(8, 1);
    Set<uint32_t>(12, 1);
  }

  // Calls with an address and a value of 1, 2, 4 or 8 bytes.
  template <typename Function>
  void Access(Input& input, Function access) {
    const uint64_t width = input.Next(1) % 4;
    const uint64_t at = input.Next(2) % VirtioPci::kBarSize;
    const uint64_t value = input.Next(1 << width);
    if (width == 0) return access(at, static_cast<uint8_t>(value));
    if (width == 1) return access(at, static_cast<uint16_t>(value));
    if (width == 2) return access(at, static_cast<uint32_t>(value));
    access(at, value);
  }
  void WriteField(Input& input) {
    const Field field = kFields[input.Next(1) % std::size(kFields)];
    const uint64_t value = input.Next(field.width);
    const uint64_t at = VirtioPci::kCommonPage + field.offset;
    bar().Write(at, std::as_bytes(std::span(&value, 1)).first(field.width));
  }
  void Map(bool wanted) {
    if (wanted == mapped_) return;
    mapped_ = wanted;
    if (mapped_) {
      pci_->BarMapped(0, kBarAddress);
    } else {
      pci_->BarUnmapped(0, kBarAddress);
    }
  }
  void EndReset() {
    if (Task* done = std::exchange(reset_done_, nullptr)) done->Run();
  }
  void Complain() {
    if (device_.events != nullptr) device_.events->NeedsReset("fuzz");
  }
  void Interrupt() {
    for (const QueueSetup& queue : device_.setups) queue.call->Signal();
  }

  FakeVirtioDevice device_;
  testing::FakePciPlatform platform_;
  std::unique_ptr<VirtioPci> pci_;
  Task* reset_done_ = nullptr;
  bool mapped_ = false;
};

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringside::Input input(data, size);
  ringside::Guest guest;
  while (!input.empty()) {
    guest.Step(input);
    guest.CheckRegisters();
  }
  return 0;
}
