// Devices that an embedder brings along: on the bus behind the disks, as good as the machine's own.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "tests/support/test_machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kScsiClass = 0x010000;
constexpr uint64_t kMiB = 1 << 20;

// A disk that remembers how often it was put to work and stopped.
class CountedDisk final : public VirtioDevice {
 public:
  struct Calls {
    std::atomic<int> activations{0}, resets{0};
  };

  CountedDisk(BlockDevice& disk, const GuestMemory& memory, IoThread& io_thread, Calls& calls)
      : blk_(disk, memory, {&io_thread}, {.serial = "own"}), calls_(calls) {}

  uint16_t id() const override { return blk_.id(); }
  uint64_t features() const override { return blk_.features(); }
  uint16_t queue_count() const override { return blk_.queue_count(); }
  uint16_t max_queue_size() const override { return blk_.max_queue_size(); }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override {
    blk_.ReadConfig(offset, data);
  }
  void WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) override {
    blk_.WriteConfig(offset, data, features);
  }
  void Activate(uint64_t features, std::span<const QueueSetup> queues,
                VirtioEvents& events) override {
    ++calls_.activations;
    blk_.Activate(features, queues, events);
  }
  void Reset(Task& done) override {
    ++calls_.resets;
    blk_.Reset(done);
  }

 private:
  VirtioBlk blk_;
  Calls& calls_;
};

class OwnDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_KVM();
    disk_ = *NullDevice::Create({.size = 8 * kMiB});
    io_thread_ = *IoThread::Start("own");
  }

  DeviceConfig Device() {
    return {.name = "own", .class_code = kScsiClass, .create = [this](const GuestMemory& memory) {
              return std::make_unique<CountedDisk>(*disk_, memory, *io_thread_, calls_);
            }};
  }

  TestConsole console_;
  std::unique_ptr<BlockDevice> disk_;
  std::unique_ptr<IoThread> io_thread_;
  CountedDisk::Calls calls_;
};

TEST_F(OwnDeviceTest, TheGuestUsesIt) {
  MachineConfig config = GuestConfig(console_, "rw=randread qd=4 runtime=300ms wait=irq");
  config.devices = {Device()};
  const GuestRun run = RunGuest(config, console_);
  EXPECT_EQ(run.end.kind, EndKind::kPowerOff) << run.end.detail;
  EXPECT_THAT(run.output, ContainsRegex("\"ios\":[1-9].*\"errors\":0,"));
  EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
}

TEST_F(OwnDeviceTest, ItIsResetWhenTheMachineIsStopped) {
  MachineConfig config = GuestConfig(console_, "rw=randread runtime=60s");
  config.devices = {Device()};
  const auto machine = Machine::Create(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  ASSERT_TRUE(testing::SpinUntil([this] { return calls_.activations > calls_.resets; }));
  (*machine)->Stop();
  (*machine)->Wait();
  EXPECT_EQ(calls_.resets, calls_.activations);
}

TEST_F(OwnDeviceTest, ItStandsBehindTheDisks) {
  MachineConfig config = GuestConfig(console_, "disk=1");
  config.devices = {Device(), Device()};
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  const GuestRun run = RunGuest(config, console_);
  EXPECT_THAT(run.output, ContainsRegex("disk 0 sectors=32768 .*serial=disk0\n"));
  EXPECT_THAT(run.output, ContainsRegex("disk 1 sectors=16384 .*serial=own\n"));
  EXPECT_THAT(run.output, ContainsRegex("disk 2 sectors=16384 .*serial=own\n"));
}

TEST_F(OwnDeviceTest, WhatItCannotDoIsTheMachinesError) {
  MachineConfig config = GuestConfig(console_, "");
  config.devices = {Device(), Device()};
  config.devices[1].create = [](const GuestMemory&) { return BadInput("no such thing"); };
  const auto machine = Machine::Create(config);
  EXPECT_EQ(machine.status(), absl::InvalidArgumentError("no such thing"));
}

TEST_F(OwnDeviceTest, TheBusHasRoomForSoMany) {
  MachineConfig config = GuestConfig(console_, "");
  config.devices.assign(PciHost::kDevices - 2, Device());
  EXPECT_TRUE(Machine::Create(config).ok());
  config.devices.push_back(Device());
  EXPECT_THAT(Message(Machine::Create(config).status()), HasSubstr("room for 31 PCI devices"));
}

}  // namespace
}  // namespace ringside
