#include "vfio/pci_sysfs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/vfio/fake_sysfs.h"

namespace ringside {
namespace {

using ::ringside::testing::FakeSysfs;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kNvme[] = "0x010802";

TEST(PciSysfs, SaysWhatADeviceIsAndWhoDrivesIt) {
  FakeSysfs fake;
  fake.AddDevice("0000:00:04.0", kNvme, "nvme", 3);
  const auto device = PciSysfs(fake.root()).Find("0000:00:04.0");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->address, "0000:00:04.0");
  EXPECT_EQ(device->class_code, 0x010802);
  EXPECT_EQ(device->driver, "nvme");
  EXPECT_EQ(device->iommu_group, 3);
}

TEST(PciSysfs, ADeviceWithoutDriverAndIommuHasNeither) {
  FakeSysfs fake;
  fake.AddDevice("0000:00:04.0", kNvme, "", -1);
  const auto device = PciSysfs(fake.root()).Find("0000:00:04.0");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->driver, "");
  EXPECT_FALSE(device->iommu_group.has_value());
}

// VFIO makes up a group for a device that nothing guards.
TEST(PciSysfs, AGroupWithoutIommuIsNone) {
  FakeSysfs fake;
  fake.AddDevice("0000:00:04.0", kNvme, "vfio-pci", 0);
  fake.Write(fake.root() / "kernel/iommu_groups/0/name", "vfio-noiommu\n");
  EXPECT_FALSE(PciSysfs(fake.root()).Find("0000:00:04.0")->iommu_group.has_value());
}

TEST(PciSysfs, FindsTheDevicesOfADriver) {
  FakeSysfs fake;
  fake.AddDevice("0000:00:05.0", "0x020000", "vfio-pci", 2);
  fake.AddDevice("0000:00:04.0", kNvme, "vfio-pci", 1);
  fake.AddDevice("0000:00:06.0", kNvme, "nvme", 3);
  EXPECT_THAT(PciSysfs(fake.root()).OfDriver("vfio-pci"),
              ElementsAre(Field(&PciSysfsDevice::address, "0000:00:04.0"),
                          Field(&PciSysfsDevice::address, "0000:00:05.0")));
}

TEST(PciSysfs, TheFullFormOfAnAddressIsSuggested) {
  const FakeSysfs fake;
  const PciSysfs sysfs(fake.root());
  EXPECT_THAT(sysfs.Find("00:04.0").status(),
              IsBadInput("'00:04.0'", "write it as '0000:00:04.0'"));
  EXPECT_THAT(sysfs.Find("0000:0A:04.0").status(),
              IsBadInput("'0000:0A:04.0'", "write it as '0000:0a:04.0'"));
}

TEST(PciSysfs, WhatIsNoAddressIsRefused) {
  const FakeSysfs fake;
  const PciSysfs sysfs(fake.root());
  for (const char* text : {"", "nvme0", "0000:00:04", "0000:00:04.8", "0000:00:04.00", "0:00:04.0",
                           "../../etc", "0000:00:04.0/..", "000000000:00:04.0", "0000:00:0g.0"}) {
    EXPECT_THAT(sysfs.Find(text).status(), IsBadInput(text, "is no PCI address")) << text;
  }
}

TEST(PciSysfs, DomainsOfHostBridgesAreLonger) {
  FakeSysfs fake;
  fake.AddDevice("10000:e1:00.0", kNvme, "nvme", 1);
  EXPECT_TRUE(PciSysfs(fake.root()).Find("10000:e1:00.0").ok());
}

TEST(PciSysfs, AMissingDeviceIsNotFoundAndANearOneNamed) {
  FakeSysfs fake;
  EXPECT_THAT(Message(PciSysfs(fake.root()).Find("0000:00:05.0").status()),
              HasSubstr("'0000:00:05.0' (none at all)"));
  fake.AddDevice("0000:00:04.0", kNvme, "nvme", 1);
  fake.AddDevice("0000:81:00.0", kNvme, "nvme", 2);
  const absl::Status status = PciSysfs(fake.root()).Find("0000:00:05.0").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("did you mean '0000:00:04.0'?"));
}

TEST(PciSysfs, ListsAClassByAddress) {
  FakeSysfs fake;
  fake.AddDevice("0000:00:05.0", kNvme, "nvme", 1);
  fake.AddDevice("0000:00:1f.2", "0x010601", "ahci", 2);
  fake.AddDevice("0000:00:04.0", kNvme, "", -1);
  EXPECT_THAT(PciSysfs(fake.root()).OfClass(0x010802),
              ElementsAre(Field(&PciSysfsDevice::address, "0000:00:04.0"),
                          Field(&PciSysfsDevice::address, "0000:00:05.0")));
}

TEST(PciSysfs, ListsAGroupWithItsDrivers) {
  FakeSysfs fake;
  fake.AddDevice("0000:00:04.1", "0x020000", "e1000e", 1);
  fake.AddDevice("0000:00:04.0", kNvme, "vfio-pci", 1);
  fake.AddDevice("0000:00:05.0", kNvme, "nvme", 2);
  EXPECT_THAT(PciSysfs(fake.root()).InGroup(1),
              ElementsAre(Field(&PciSysfsDevice::driver, "vfio-pci"),
                          Field(&PciSysfsDevice::driver, "e1000e")));
  EXPECT_THAT(PciSysfs(fake.root()).InGroup(7), IsEmpty());
}

TEST(PciSysfs, ReadsAttributesWithoutTheirPadding) {
  FakeSysfs fake;
  fake.AddDevice("0000:00:04.0", kNvme, "nvme", 1);
  const PciSysfs sysfs(fake.root());
  EXPECT_EQ(sysfs.Attribute("0000:00:04.0", "nvme/*/model"), "");
  fake.Write(fake.DevicePath("0000:00:04.0") / "nvme/nvme3/model", "QEMU NVMe Ctrl      \n");
  EXPECT_EQ(sysfs.Attribute("0000:00:04.0", "nvme/*/model"), "QEMU NVMe Ctrl");
  EXPECT_EQ(sysfs.Attribute("0000:00:04.0", "class"), "0x010802");
}

TEST(PciSysfs, AHostWithoutPciHasNoDevices) {
  const FakeSysfs fake;
  EXPECT_THAT(PciSysfs(fake.root()).OfClass(0x010802), IsEmpty());
}

}  // namespace
}  // namespace ringside
