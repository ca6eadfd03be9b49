// A device that the guest has whole, on this host's KVM: its registers as memory slots, its DMA and
// its interrupts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vfio/fake_pci_device.h"
#include "tests/support/vmm/test_machine.h"

namespace ringside {
namespace {

using testing::FakePciDevice;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kGiB = 1 << 30;

class AssignedMachineTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  static AssignedConfig Device() { return {.address = "0000:0a:00.0"}; }
  absl::StatusOr<std::unique_ptr<Machine>> Make(const MachineConfig& config) {
    const auto open = [this](const AssignedConfig&) -> absl::StatusOr<std::unique_ptr<PciDevice>> {
      auto device = std::make_unique<FakePciDevice>(record_);
      device->ranges = ranges_;
      device->bar0.size = bar_size_;
      return device;
    };
    return Machine::Internals::Create(config, {.open_assigned = open});
  }
  std::string Refusal(const MachineConfig& config) {
    const absl::Status status = Make(config).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(Message(status));
  }

  TestConsole console_;
  FakePciDevice::Record record_;
  std::vector<IovaRange> ranges_ = {{0, ~uint64_t{0}}};
  uint64_t bar_size_ = FakePciDevice::kBar0Size;
};

TEST_F(AssignedMachineTest, TheGuestUsesIt) {
  MachineConfig config = GuestConfig(console_, "assigned=1");
  config.assigned = {Device()};
  const auto machine = Make(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_EQ(record_.mappings.size(), 1u);
  EXPECT_EQ(record_.mappings[0].iova, 0u);
  EXPECT_EQ(record_.mappings[0].size, config.memory);
  EXPECT_GE(record_.mappings[0].fd, 0);
  ASSERT_TRUE((*machine)->Start().ok());
  const MachineEnd end = (*machine)->Wait();
  EXPECT_EQ(end.kind, EndKind::kPowerOff) << end.detail;
  const std::string output = console_.Output();
  EXPECT_THAT(output, HasSubstr("assigned ok\n"));
  EXPECT_THAT(output, Not(HasSubstr("FAIL")));
  EXPECT_EQ(record_.resets, 1);
  EXPECT_FALSE(record_.bus_master_at_reset);
  EXPECT_EQ(record_.lost_dma, 3);
  const MachineStatistics statistics = (*machine)->Statistics();
  ASSERT_EQ(statistics.assigned.size(), 1u);
  EXPECT_EQ(statistics.assigned[0].address, "0000:0a:00.0");
  EXPECT_EQ(statistics.assigned[0].vectors, 4u);
  // Its 10,000 accesses to what is mapped are not among them.
  EXPECT_GT(statistics.assigned[0].register_exits, 100u);
  EXPECT_LT(statistics.assigned[0].register_exits, 1000u);
}

TEST_F(AssignedMachineTest, AStoppedMachineResetsItBeforeItIsGone) {
  MachineConfig config = GuestConfig(console_, "end=spin");
  config.assigned = {Device()};
  auto machine = Make(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  ASSERT_TRUE(console_.WaitFor("end=spin"));
  (*machine)->Stop();
  (*machine)->Wait();
  EXPECT_EQ(record_.resets, 1);
  EXPECT_TRUE(record_.is_open);
  machine->reset();
  EXPECT_FALSE(record_.is_open);
}

TEST_F(AssignedMachineTest, AllOfTheGuestsMemoryIsMapped) {
  MachineConfig config = GuestConfig(console_, "");
  config.memory = 4 * kGiB;
  config.assigned = {Device()};
  ASSERT_TRUE(Make(config).ok());
  ASSERT_EQ(record_.mappings.size(), 2u);
  EXPECT_EQ(record_.mappings[0].size, 3 * kGiB);
  EXPECT_EQ(record_.mappings[1].iova, 4 * kGiB);
  EXPECT_EQ(record_.mappings[1].size, kGiB);
  EXPECT_EQ(record_.mappings[1].fd_offset, 3 * kGiB);
  EXPECT_FALSE(record_.is_open);
}

TEST_F(AssignedMachineTest, MemoryThatTheIommuHasNoRoomForIsRefused) {
  MachineConfig config = GuestConfig(console_, "");
  config.assigned = {Device()};
  ranges_ = {{0, config.memory - 2}, {kGiB, 2 * kGiB}};
  EXPECT_THAT(Refusal(config), HasSubstr("does not let PCI device '0000:0a:00.0' have the guest's "
                                         "memory at 0, 64M of it"));
  EXPECT_TRUE(record_.mappings.empty());
}

TEST_F(AssignedMachineTest, ABarThatFindsNoPlaceIsNamed) {
  MachineConfig config = GuestConfig(console_, "");
  config.assigned = {Device()};
  bar_size_ = kGiB;
  EXPECT_THAT(Refusal(config),
              HasSubstr("'0000:0a:00.0' (BAR 0 of 1G, BAR 2 of 4K) finds no place: "
                        "the PCI memory window of 536870912 bytes"));
}

TEST_F(AssignedMachineTest, ADeviceGoesToOneUse) {
  MachineConfig config = GuestConfig(console_, "");
  config.assigned = {Device(), Device()};
  EXPECT_THAT(Make(config).status(), IsBadInput("0000:0a:00.0", "twice"));
  config.assigned.pop_back();
  config.disks = {{.backend = NullConfig{.size = kGiB}},
                  {.backend = NvmeConfig{.address = "0000:0a:00.0", .namespace_id = 3}}};
  EXPECT_THAT(Make(config).status(),
              IsBadInput("0000:0a:00.0", "disk1 too (nvme://0000:0a:00.0/3)"));
}

}  // namespace
}  // namespace ringside
