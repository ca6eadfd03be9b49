// Devices that an embedder brings along: on the bus behind the disks, as good as the machine's own.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "tests/support/devices/zero_disk.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

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
  uint32_t pci_class() const override { return blk_.pci_class(); }
  uint16_t max_queue_size(uint16_t queue) const override { return blk_.max_queue_size(queue); }
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
  void Pause(Task& done) override { blk_.Pause(done); }
  void Resume() override { blk_.Resume(); }
  uint16_t Position(uint16_t queue) const override { return blk_.Position(queue); }

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

  DeviceConfig Device(const std::string& id = "own") {
    return {.name = id, .create = [this](const DeviceContext& context) {
              return std::make_unique<CountedDisk>(*disk_, context.memory, *io_thread_, calls_);
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
  config.devices = {Device("a"), Device("b")};
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  const GuestRun run = RunGuest(config, console_);
  EXPECT_THAT(run.output, ContainsRegex("disk 0 sectors=32768 .*serial=disk0\n"));
  EXPECT_THAT(run.output, ContainsRegex("disk 1 sectors=16384 .*serial=own\n"));
  EXPECT_THAT(run.output, ContainsRegex("disk 2 sectors=16384 .*serial=own\n"));
}

TEST_F(OwnDeviceTest, WhatItCannotDoIsTheMachinesError) {
  MachineConfig config = GuestConfig(console_, "");
  config.devices = {Device("a"), Device("b")};
  config.devices[1].create = [](const DeviceContext&) { return BadInput("no such thing"); };
  const auto machine = Machine::Create(config);
  EXPECT_EQ(machine.status(), absl::InvalidArgumentError("no such thing"));
}

TEST_F(OwnDeviceTest, TheBusHasRoomForSoMany) {
  MachineConfig config = GuestConfig(console_, "");
  for (uint32_t i = 0; i < PciHost::kDevices - 2; ++i) {
    config.devices.push_back(Device(absl::StrFormat("own%d", i)));
  }
  EXPECT_TRUE(Machine::Create(config).ok());
  config.devices.push_back(Device());
  EXPECT_THAT(Message(Machine::Create(config).status()), HasSubstr("room for 31 PCI devices"));
}

// One whose queues are served by the machine's I/O threads: all that disks have is its too.
TEST_F(OwnDeviceTest, ItsQueuesMoveAndAreCountedAndTraced) {
  MachineConfig config = GuestConfig(console_, "rw=randread qd=4 runtime=500ms wait=irq");
  config.io_threads = {{.name = "a"}, {.name = "b"}};
  config.devices = {{.name = "zeroes", .create = [](const DeviceContext& context) {
                       return std::make_unique<testing::ZeroDisk>(
                           context.memory, std::vector{context.io_threads.Find("b")->get()},
                           QueuedDevice::QueueConfig{.trace_latency = true});
                     }}};
  auto machine = Machine::Create(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  const auto requests = [&] { return (*machine)->Statistics().devices[0].queues[0].requests(); };
  for (const std::string to : {"a", "b", "a"}) {
    const uint64_t before = requests();
    ASSERT_TRUE((*machine)->MoveQueue("zeroes", 0, to).ok());
    EXPECT_TRUE(testing::SpinUntil([&] { return requests() > before + 10; }));
    EXPECT_EQ((*machine)->Statistics().devices[0].queues[0].io_thread, to);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition((*machine)->RemoveIoThread("a")));
  EXPECT_TRUE((*machine)->RemoveIoThread("b").ok());
  EXPECT_TRUE(absl::IsNotFound((*machine)->MoveQueue("zeroes", 0, "b")));
  EXPECT_EQ(*(*machine)->AddIoThread({}), "io0");
  EXPECT_TRUE((*machine)->MoveQueue("zeroes", 0, "io0").ok());
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), ContainsRegex("\"ios\":[1-9].*\"errors\":0,"));
  const std::vector<QueueLatencies> latencies = (*machine)->Latencies();
  ASSERT_EQ(latencies.size(), 1u);
  EXPECT_EQ(latencies[0].disk, "zeroes");
  EXPECT_GT(latencies[0].records.size(), 30u);
}

}  // namespace
}  // namespace ringside
