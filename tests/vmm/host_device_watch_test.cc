// What uevents of the kernel say of block devices.
#include "vmm/host_device_watch.h"

#include <gtest/gtest.h>
#include <string>
#include <sys/sysmacros.h>

namespace ringside {
namespace {

// Lines, each with a zero behind it.
std::string Uevent(std::initializer_list<const char*> lines) {
  std::string text;
  for (const char* line : lines) {
    text += line;
    text += '\0';
  }
  return text;
}

TEST(HostDeviceWatchTest, ABlockDeviceThatHasChangedIsKnownByItsNumber) {
  EXPECT_EQ(ChangedBlockDevice(Uevent({"change@/devices/virtual/block/loop0", "ACTION=change",
                                       "DEVPATH=/devices/virtual/block/loop0", "SUBSYSTEM=block",
                                       "RESIZE=1", "MAJOR=7", "MINOR=0", "DEVNAME=loop0"})),
            makedev(7, 0));
  EXPECT_EQ(ChangedBlockDevice(Uevent(
                {"change@/devices/virtual/block/dm-3", "SUBSYSTEM=block", "MAJOR=253", "MINOR=3"})),
            makedev(253, 3));
}

TEST(HostDeviceWatchTest, NothingElseIsTakenForOne) {
  for (const std::string& other :
       {std::string(), Uevent({"change@/x"}),
        Uevent({"add@/x", "ACTION=add", "SUBSYSTEM=block", "MAJOR=7", "MINOR=0"}),
        Uevent({"change@/x", "SUBSYSTEM=net", "MAJOR=7", "MINOR=0"}),
        Uevent({"change@/x", "SUBSYSTEM=block", "MINOR=0"}),
        Uevent({"change@/x", "SUBSYSTEM=block", "MAJOR=7"}),
        Uevent({"change@/x", "SUBSYSTEM=block", "MAJOR=x", "MINOR=0"}),
        Uevent({"change@/x", "SUBSYSTEM=block", "MAJOR=7", "MINOR=-1"}),
        Uevent({"libudev", "SUBSYSTEM=block", "MAJOR=7", "MINOR=0"})}) {
    EXPECT_FALSE(ChangedBlockDevice(other)) << other;
  }
}

}  // namespace
}  // namespace ringside
