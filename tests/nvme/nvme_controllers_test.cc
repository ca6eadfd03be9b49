// What disks of one controller have to agree on. That they share it is seen in the lab, where the
// kernel gives a device to one opener.
#include "nvme/nvme_controllers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/support/directories.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vfio/scripted_vfio_user_server.h"

namespace ringside {
namespace {

constexpr char kAddress[] = "0000:00:04.0";
constexpr char kOther[] = "0000:00:05.0";

class NvmeControllersTest : public ::testing::Test {
 protected:
  std::string Announce(const std::string& disk, const std::string& address, uint32_t namespace_id,
                       std::optional<absl::Duration> timeout = std::nullopt) {
    return Announce(disk, {.address = address, .namespace_id = namespace_id, .timeout = timeout});
  }
  std::string Announce(const std::string& disk, const NvmeConfig& config) {
    const absl::Status status = controllers_.Announce(disk, config);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(Message(status));
  }
  absl::Duration TimeoutOf(const char* address) const {
    return controllers_.SettingsOf({.address = address}).timeout;
  }

  NvmeControllers controllers_{Logger(nullptr)};
};

TEST_F(NvmeControllersTest, ANamespaceIsOneDisk) {
  EXPECT_EQ(Announce("disk0", kAddress, 1), "");
  EXPECT_EQ(Announce("disk1", kAddress, 2), "");
  EXPECT_EQ(Announce("disk2", kOther, 1), "");
  EXPECT_EQ(Announce("disk3", kAddress, 1),
            "disk0 and disk3 are both nvme://0000:00:04.0/1; a namespace can be one disk only");
}

TEST_F(NvmeControllersTest, ASocketIsNamedAsItIsGiven) {
  EXPECT_EQ(Announce("disk0", {.socket = "/run/ctrl"}), "");
  EXPECT_EQ(Announce("disk1", {.socket = "/run/ctrl"}),
            "disk0 and disk1 are both nvme+user:///run/ctrl/1; a namespace can be one disk only");
}

// What a path looks like does not matter.
TEST_F(NvmeControllersTest, AnAddressAndASocketAreTwoControllers) {
  EXPECT_EQ(Announce("disk0", {.address = kAddress}), "");
  EXPECT_EQ(Announce("disk1", {.socket = kAddress, .timeout = absl::Seconds(5)}), "");
  EXPECT_EQ(TimeoutOf(kAddress), NvmeSettings().timeout);
  EXPECT_EQ(controllers_.SettingsOf({.socket = kAddress}).timeout, absl::Seconds(5));
  EXPECT_EQ(Announce("disk2", {}), "disk2 has PCI address '' and socket ''; give one of them");
  EXPECT_EQ(Announce("disk2", {.address = kOther, .socket = "/s"}),
            "disk2 has PCI address '0000:00:05.0' and socket '/s'; give one of them");
}

TEST_F(NvmeControllersTest, AServerOfSomethingElseIsRefused) {
  const testing::TempDirectory directory;
  const std::string path = directory / "socket";
  const testing::ScriptedVfioUserServer server(
      path, [](const VfioUserMessage& message, testing::ScriptedReply& reply) {
        const auto access = HeadOf<VfioUserRegionAccess>(message.payload);
        if (message.header.command == static_cast<uint16_t>(VfioUserCommand::kRegionRead) &&
            access->offset == PCI_CLASS_REVISION) {
          reply.payload.back() = std::byte{2};  // a network controller
        }
      });
  const NvmeConfig config = {.socket = path};
  ASSERT_EQ(Announce("disk0", config), "");
  const absl::Status status = controllers_.Open(config).status();
  EXPECT_THAT(status, IsBadInput("'" + path + "' is no NVMe controller",
                                 "its PCI class is 020802, not 010802"));
}

TEST_F(NvmeControllersTest, AControllerHasOneTimeout) {
  EXPECT_EQ(Announce("disk0", kAddress, 1), "");
  EXPECT_EQ(TimeoutOf(kAddress), NvmeSettings().timeout);
  EXPECT_EQ(Announce("disk1", kAddress, 2, absl::Seconds(5)), "");
  EXPECT_EQ(Announce("disk2", kOther, 2, absl::Seconds(7)), "");
  EXPECT_EQ(Announce("disk3", kAddress, 3, absl::Seconds(5)), "");
  EXPECT_EQ(Announce("disk4", kAddress, 4), "");
  EXPECT_EQ(TimeoutOf(kAddress), absl::Seconds(5));
  EXPECT_EQ(TimeoutOf(kOther), absl::Seconds(7));
  EXPECT_EQ(Announce("disk5", kAddress, 5, absl::Seconds(6)),
            "disk1 and disk5 give NVMe controller '0000:00:04.0' time-outs of 5s and 6s; give one");
}

TEST_F(NvmeControllersTest, ATimeoutHasLimits) {
  uint32_t namespace_id = 1;
  EXPECT_EQ(Announce("disk0", kAddress, 1, kMinNvmeTimeout), "");
  EXPECT_EQ(Announce("disk1", kOther, 1, kMaxNvmeTimeout), "");
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), kMinNvmeTimeout - absl::Nanoseconds(1),
        kMaxNvmeTimeout + absl::Nanoseconds(1), absl::InfiniteDuration()}) {
    EXPECT_THAT(Announce("disk2", kOther, ++namespace_id, timeout),
                ::testing::HasSubstr("is out of range: give 10ms to 1h"));
  }
}

}  // namespace
}  // namespace ringside
