// Devices that an embedder brings along: on the bus behind the disks, as good as the machine's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "tests/support/test_machine.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kScsiClass = 0x010000;
constexpr uint64_t kMiB = 1 << 20;

class OwnDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_KVM();
    disk_ = *NullDevice::Create({.size = 8 * kMiB});
    io_thread_ = *IoThread::Start("own");
  }

  DeviceConfig Device() {
    return {.name = "own", .class_code = kScsiClass, .create = [this](const GuestMemory& memory) {
              return std::make_unique<VirtioBlk>(*disk_, memory,
                                                 std::vector<IoThread*>{io_thread_.get()},
                                                 VirtioBlkConfig{.serial = "own"});
            }};
  }

  TestConsole console_;
  std::unique_ptr<BlockDevice> disk_;
  std::unique_ptr<IoThread> io_thread_;
};

TEST_F(OwnDeviceTest, TheGuestUsesItAndItIsResetAtTheEnd) {
  MachineConfig config = GuestConfig(console_, "rw=randread qd=4 runtime=20ms wait=irq");
  config.devices = {Device()};
  const GuestRun run = RunGuest(config, console_);
  EXPECT_EQ(run.end.kind, EndKind::kPowerOff) << run.end.detail;
  EXPECT_THAT(run.output, ContainsRegex("\"ios\":[1-9].*\"errors\":0,"));
  EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
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
