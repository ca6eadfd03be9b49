// `ringside run` with a network that passt gives: it is started with the ports that are asked for,
// and one that cannot have them ends the command.
#include <arpa/inet.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>

#include "base/fd.h"
#include "tests/support/descriptors.h"
#include "tests/support/directories.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NetCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ProcessResult plain = Run("user");
    if (plain.status != 0) GTEST_SKIP() << "passt gives no network here: " << plain.errors;
  }
  static ProcessResult Run(const std::string& network) {
    return RunProcess({RINGSIDE_COMMAND, "run", "--kernel", RINGSIDE_GUEST_ELF, "--net", network});
  }
  // A port that somebody listens on while the descriptor is open.
  static UniqueFd Listen(int& port) {
    UniqueFd fd(testing::Must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    testing::Must(bind(fd.get(), any, size), "bind");
    testing::Must(listen(fd.get(), 1), "listen");
    testing::Must(getsockname(fd.get(), any, &size), "getsockname");
    port = ntohs(address.sin_port);
    return fd;
  }
};

TEST_F(NetCommandTest, PortsOfTheHostLeadToTheGuest) {
  int tcp = 0, udp = 0;
  Listen(tcp);
  Listen(udp);
  const ProcessResult result =
      Run("user,tcp=" + std::to_string(tcp) + ":22,udp=" + std::to_string(udp) + ":53");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("guest: end=poweroff"));
}

TEST_F(NetCommandTest, APasstThatEndsAtOnceEndsTheCommand) {
  ProcessResult result = Run("user,tcp=nonsense");
  // A busy machine may have it end later than the command waits for that.
  for (int i = 0; i < 20 && result.status == 0; ++i) result = Run("user,tcp=nonsense");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("passt has ended at once"));
  EXPECT_THAT(result.errors, HasSubstr("mend tcp='nonsense'"));
  EXPECT_EQ(result.output, "");
}

// A script in passt's place tells what it was given.
TEST(PasstTest, HasNoDescriptorsButItsOwnAndDoesNotLeadToTheHost) {
  const testing::TempDirectory directory;
  const testing::TempFile leaked(0);
  // Without FD_CLOEXEC, as from whoever starts the command.
  const UniqueFd inherited(testing::Must(open(leaked.path().c_str(), O_RDONLY), "open"));
  {
    std::ofstream script(directory.path() / "passt");
    script << "#!/bin/sh\necho \"$@\" > " << (directory.path() / "words").string()
           << "\nls -l /proc/$$/fd > " << (directory.path() / "fds").string()
           << "\nexec cat <&3 >/dev/null\n";
  }
  std::filesystem::permissions(directory.path() / "passt", std::filesystem::perms::owner_all);
  RunProcess({"/usr/bin/env", "PATH=" + directory.path().string() + ":/usr/bin:/bin",
              RINGSIDE_COMMAND, "run", "--kernel", RINGSIDE_GUEST_ELF, "--net", "user"});
  std::string fds;
  EXPECT_TRUE(testing::SpinUntil([&] {
    std::ifstream file(directory.path() / "fds");
    fds.assign(std::istreambuf_iterator<char>(file), {});
    return fds.find(" 3 -> socket:") != std::string::npos;
  })) << fds;
  EXPECT_THAT(fds, Not(HasSubstr(leaked.path())));
  std::string words;
  std::getline(std::ifstream(directory.path() / "words"), words);
  EXPECT_THAT(words, HasSubstr("--no-map-gw")) << "the guest would reach the host's own services";
  EXPECT_THAT(words, HasSubstr("--dns"));
}

}  // namespace
}  // namespace ringside
