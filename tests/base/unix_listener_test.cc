#include "base/unix_listener.h"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "tests/support/http/http_test_server.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::IsOpen;
using testing::RawClient;
using testing::TempDirectory;

mode_t ModeOf(const std::string& path) {
  struct stat file{};
  EXPECT_EQ(lstat(path.c_str(), &file), 0) << path;
  return file.st_mode & 07777;
}

TEST(UnixListenerTest, OnlyItsUserMayConnect) {
  const TempDirectory directory;
  const mode_t before = umask(0);
  const auto listener = UnixListener::Bind(directory / "control");
  umask(before);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(ModeOf(directory / "control"), 0600);
}

// The mode comes from the socket and is there when the file is: nobody has to change it afterwards.
TEST(UnixListenerTest, TheFileNeverHasAnotherMode) {
  const TempDirectory directory;
  const std::string path = directory / "control";
  const mode_t before = umask(0);
  std::atomic<bool> is_over = false;
  mode_t seen = 0;
  std::thread watcher([&] {
    while (!is_over) {
      struct stat file{};
      if (lstat(path.c_str(), &file) == 0) seen |= file.st_mode & 07777;
    }
  });
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(UnixListener::Bind(path).ok());
  is_over = true;
  watcher.join();
  umask(before);
  EXPECT_EQ(seen & ~0600U, 0);
}

TEST(UnixListenerTest, TakesConnectionsAndTellsWhose) {
  const TempDirectory directory;
  const auto listener = UnixListener::Bind(directory / "control");
  ASSERT_TRUE(listener.ok());
  EXPECT_FALSE((*listener->Accept()).has_value()) << "it does not wait";
  const RawClient client(directory / "control");
  const auto accepted = listener->Accept();
  ASSERT_TRUE(accepted.ok() && accepted->has_value());
  EXPECT_EQ((*accepted)->peer, geteuid());
}

TEST(UnixListenerTest, TrustsItsUserAndRoot) {
  EXPECT_TRUE(IsTrustedPeer(1000, 1000));
  EXPECT_TRUE(IsTrustedPeer(0, 1000));
  EXPECT_FALSE(IsTrustedPeer(1001, 1000));
  EXPECT_FALSE(IsTrustedPeer(1000, 0));
}

TEST(UnixListenerTest, RemovesItsFile) {
  const TempDirectory directory;
  EXPECT_TRUE(UnixListener::Bind(directory / "control").ok());
  EXPECT_FALSE(std::filesystem::exists(directory / "control"));
}

TEST(UnixListenerTest, LeavesAFileThatIsAnothers) {
  const TempDirectory directory;
  const std::string path = directory / "control";
  {
    const auto first = UnixListener::Bind(path);
    std::filesystem::remove(path);
    std::ofstream(path) << "another's";
  }
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(UnixListenerTest, ReplacesTheSocketOfAProcessThatIsGone) {
  const TempDirectory directory;
  const std::string path = directory / "control";
  const UniqueFd gone(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(gone.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto listener = UnixListener::Bind(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const RawClient client(path);
  EXPECT_TRUE((*listener->Accept()).has_value());
}

TEST(UnixListenerTest, RefusesASocketThatAnswers) {
  const TempDirectory directory;
  const auto first = UnixListener::Bind(directory / "control");
  const auto second = UnixListener::Bind(directory / "control");
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_THAT(std::string(Message(second.status())), HasSubstr("is in use by another process"));
  const RawClient client(directory / "control");
}

// Of several that start at once one gets the path, and it keeps it.
TEST(UnixListenerTest, OneOfSeveralGetsAnOldPath) {
  const TempDirectory directory;
  const std::string path = directory / "control";
  for (int round = 0; round < 20; ++round) {
    {
      std::filesystem::remove(path);
    }
    const UniqueFd gone(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(gone.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    std::vector<absl::StatusOr<UnixListener>> results;
    for (int i = 0; i < 3; ++i) results.emplace_back(absl::UnknownError(""));
    std::atomic<int> waiting = static_cast<int>(results.size());
    std::vector<std::thread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] {
        --waiting;
        testing::SpinUntil([&] { return waiting == 0; });
        result = UnixListener::Bind(path);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::ranges::count_if(results, [](const auto& each) { return each.ok(); }), 1);
    const RawClient client(path);
  }
}

TEST(UnixListenerTest, ALockThatIsHeldHoldsItUpForAMomentOnly) {
  const TempDirectory directory;
  const UniqueFd other(open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  EXPECT_TRUE(UnixListener::Bind(directory / "control").ok());
}

TEST(UnixListenerTest, RefusesWhatIsNoSocket) {
  const TempDirectory directory;
  const std::string path = directory / "file";
  std::ofstream(path) << "precious";
  EXPECT_THAT(UnixListener::Bind(path).status(), IsBadInput(path, "is no socket"));
  EXPECT_EQ(std::filesystem::file_size(path), 8);
  std::filesystem::create_symlink(directory / "nowhere", directory / "link");
  EXPECT_THAT(UnixListener::Bind(directory / "link").status(), IsBadInput("link", "is no socket"));
  EXPECT_THAT(UnixListener::Bind(directory / "").status(), IsBadInput("", "no path of a socket"));
  EXPECT_THAT(UnixListener::Bind(directory / "..").status(), IsBadInput("", "no path of a socket"));
  EXPECT_TRUE(absl::IsNotFound(UnixListener::Bind(directory / "a/b").status()));
}

TEST(UnixListenerTest, TakesPathsThatAnAddressCannotHold) {
  const TempDirectory directory;
  std::string folder = directory.path();
  for (int i = 0; i < 4; ++i) folder += "/" + std::string(100, 'a');
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/control";
  {
    const auto listener = UnixListener::Bind(path);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_TRUE(absl::IsFailedPrecondition(UnixListener::Bind(path).status()));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(UnixListener::Bind(folder + "/" + std::string(100, 'b')).status(),
              IsBadInput("", "name of socket"));
}

TEST(UnixListenerTest, AdoptsASocketThatListens) {
  const TempDirectory directory;
  const std::string path = directory / "control";
  auto first = UnixListener::Bind(path);
  ASSERT_TRUE(first.ok());
  const int fd = dup(first->fd());
  {
    const auto adopted = UnixListener::Adopt(fd);
    ASSERT_TRUE(adopted.ok()) << adopted.status();
    const RawClient client(path);
    EXPECT_TRUE((*adopted->Accept()).has_value());
  }
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_TRUE(std::filesystem::exists(path)) << "the file is whoever's made it";
}

TEST(UnixListenerTest, AdoptsNothingElse) {
  for (const int fd :
       {open("/dev/null", O_RDWR | O_CLOEXEC), socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 12345}) {
    EXPECT_THAT(UnixListener::Adopt(fd).status(),
                IsBadInput(std::to_string(fd), "no Unix stream socket that listens"));
    EXPECT_FALSE(IsOpen(fd));
  }
}

// A process of another user, where the socket's file does not keep it out.
TEST(HttpServerPeerTest, AnotherUserIsClosedAtOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TempDirectory directory;
  directory.OpenToAll();
  const std::string path = directory / "control";
  auto listener = UnixListener::Bind(path);
  ASSERT_TRUE(listener.ok());
  std::filesystem::permissions(path, std::filesystem::perms(0777));
  testing::TestHandler handler(testing::Echo);
  testing::RecordingLog log;
  const auto server = HttpServer::Start(*std::move(listener), handler, {}, &log);
  ASSERT_TRUE(server.ok());
  std::thread stranger([&] {
    // Of this thread alone, as the kernel's call does it.
    testing::Must(static_cast<int>(syscall(SYS_setresuid, -1, 65534, -1)), "setresuid");
    for (int i = 0; i < 20; ++i) {
      RawClient client(path);
      EXPECT_EQ(client.Ask("GET / HTTP/1.0\r\n\r\n"), "");
      EXPECT_TRUE(client.IsClosed());
    }
  });
  stranger.join();
  EXPECT_EQ(handler.count(), 0);
  EXPECT_LE(log.lines().size(), 5);
  ASSERT_FALSE(log.lines().empty());
  EXPECT_THAT(log.lines().front(), HasSubstr("user 65534"));
  RawClient own(path);
  EXPECT_THAT(own.Ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
              EndsWith("GET / "));
}

}  // namespace
}  // namespace ringside
