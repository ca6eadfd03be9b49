#include "vfio/vfio_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/status.h"
#include "tests/vfio/fake_sysfs.h"
#include "vfio/open_files.h"

namespace ringside {
namespace {

using ::ringside::testing::FakeSysfs;
using ::ringside::testing::TempDirectory;
using ::testing::HasSubstr;

constexpr char kNvme[] = "0x010802";
constexpr char kAddress[] = "0000:00:04.0";

std::string Refusal(const FakeSysfs& fake) {
  const absl::Status status = OpenVfioGroup(PciSysfs(fake.root()), kAddress).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  return std::string(Message(status));
}

TEST(OpenVfioGroup, WithoutIommuTheKernelsOptionsAreNamed) {
  FakeSysfs fake;
  fake.AddDevice(kAddress, kNvme, "nvme", -1);
  const std::string refusal = Refusal(fake);
  EXPECT_THAT(refusal, HasSubstr("'0000:00:04.0' is behind no IOMMU"));
  EXPECT_THAT(refusal, HasSubstr("intel_iommu=on"));
  EXPECT_THAT(refusal, HasSubstr("amd_iommu=on"));
  EXPECT_THAT(refusal, HasSubstr("firmware"));
}

TEST(OpenVfioGroup, AnotherDriverIsNamedWithTheCommandThatMendsIt) {
  FakeSysfs fake;
  fake.AddDevice(kAddress, kNvme, "nvme", 1);
  EXPECT_THAT(Refusal(fake), HasSubstr("has the driver 'nvme'; give it to vfio-pci with "
                                       "'tools/nvme-bind 0000:00:04.0'"));
}

TEST(OpenVfioGroup, WhatIsNoNvmeControllerIsBoundByAnotherCommand) {
  FakeSysfs fake;
  fake.AddDevice(kAddress, "0x020000", "e1000e", 1);
  EXPECT_THAT(Refusal(fake), HasSubstr("has the driver 'e1000e'; give it to vfio-pci with "
                                       "'driverctl set-override 0000:00:04.0 vfio-pci'"));
}

TEST(OpenVfioGroup, NoDriverIsSaidSo) {
  FakeSysfs fake;
  fake.AddDevice(kAddress, kNvme, "", 1);
  EXPECT_THAT(Refusal(fake), HasSubstr("has no driver; give it to vfio-pci with "
                                       "'tools/nvme-bind 0000:00:04.0'"));
}

TEST(OpenVfioGroup, AGroupWithoutItsFileIsNamed) {
  FakeSysfs fake;
  fake.AddDevice(kAddress, kNvme, "vfio-pci", 987654);
  const absl::Status status = OpenVfioGroup(PciSysfs(fake.root()), kAddress).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("'/dev/vfio/987654'"));
}

TEST(ProcessWithOpen, FindsThisProcess) {
  const TempDirectory directory;
  const std::string path = std::filesystem::canonical(directory.path()) / "file";
  EXPECT_EQ(ProcessWithOpen(path), std::nullopt);
  std::ofstream file(path);
  EXPECT_EQ(ProcessWithOpen(path), getpid());
}

}  // namespace
}  // namespace ringside
