// `ringside run` asked to end while what it waits for is its own to leave.
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/support/descriptors.h"
#include "tests/support/subprocess.h"
#include "tests/support/vmm/disk_command_fixture.h"

namespace ringside {
namespace {

class StopCommandTest : public testing::DiskCommandTest {
 protected:
  static TerminalProcess Start(const std::string& disk) {
    return TerminalProcess({RINGSIDE_COMMAND, "run", "--kernel", RINGSIDE_GUEST_ELF, "--memory",
                            "16M", "--disk", disk, "--cmdline", "records=1"});
  }
  static bool IsAsBefore(const TerminalProcess& process) {
    return process.mode().c_lflag == process.initial_mode().c_lflag;
  }
};

// Requests that would take a second each are not waited for: no line says so.
TEST_F(StopCommandTest, ANullDiskWithALatencyHoldsNothing) {
  TerminalProcess process = Start("type=null,size=1G,latency=1s");
  ASSERT_TRUE(process.WaitFor("guest: ")) << process.output();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM);
  EXPECT_THAT(process.output(), ::testing::Not(::testing::HasSubstr("does not give them back")));
}

// One that takes connections, and never says a word.
TEST_F(StopCommandTest, ASlowOpeningEndsWithTheFirstSignal) {
  const UniqueFd server(testing::Must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  const std::string path = Path("slow.sock");
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  testing::Must(bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
  testing::Must(listen(server.get(), 1), "listen");
  TerminalProcess process = Start("nvme+user://" + path + "/1");
  const UniqueFd connection(
      testing::Must(accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
  EXPECT_TRUE(IsAsBefore(process)) << "raw, though nothing runs yet";
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 128 + SIGINT);
  EXPECT_TRUE(IsAsBefore(process));
}

}  // namespace
}  // namespace ringside
