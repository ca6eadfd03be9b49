// Which resolvers of a host its guests can use, by files such as distributions have.
#include "command/resolvers.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/directories.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ResolversTest : public ::testing::Test {
 protected:
  std::vector<std::string> Behind(const std::string& text, const std::string& behind) {
    std::ofstream(directory_ / "resolv.conf") << text;
    std::ofstream(directory_ / "behind") << behind;
    return ResolversBehind(directory_ / "resolv.conf", directory_ / "behind");
  }
  testing::TempDirectory directory_;
};

TEST_F(ResolversTest, ThoseBehindOnesAtLoopback) {
  const std::string behind =
      "# of systemd-resolved\nnameserver 192.0.2.53\nnameserver\t2001:db8::53\nnameserver "
      "fe80::1%eth0\n"
      "search example.com\nnameserver 127.0.0.1\nnameserver nonsense\nnameserver 192.0.2.54\n"
      "nameserver 192.0.2.55\n";
  for (const char* text : {"nameserver 127.0.0.53\noptions edns0\n", "nameserver ::1\n", ""}) {
    EXPECT_THAT(Behind(text, behind), ElementsAre("192.0.2.53", "2001:db8::53", "192.0.2.54"))
        << text;
  }
  EXPECT_THAT(Behind("nameserver 127.0.0.1\nnameserver 192.0.2.1\n", behind), IsEmpty());
  EXPECT_THAT(Behind("nameserver 127.0.0.53\n", ""), IsEmpty());
}

TEST_F(ResolversTest, NoFilesNameNone) {
  EXPECT_THAT(ResolversBehind(directory_ / "none", directory_ / "none"), IsEmpty());
}

}  // namespace
}  // namespace ringside
