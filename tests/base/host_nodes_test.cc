#include "base/host_nodes.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/directories.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = 1 << 30;

TEST(HostNodes, ReadsWhatTheKernelSays) {
  testing::TempDirectory sys;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = sys.path() / "devices/system/node" / name;
    create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  };
  write("online", "0,2");
  write("node0/cpulist", "0-1,4");
  write("node0/meminfo", "Node 0 MemTotal:       4194304 kB\nNode 0 MemFree:        1024 kB");
  write("node2/cpulist", "");
  write("node2/meminfo", "Node 2 MemTotal:       1024 kB");
  const std::vector<HostNode> nodes = ReadHostNodes(sys.path());
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(nodes[0].memory, 4 * kGiB);
  EXPECT_THAT(nodes[0].cpus, ElementsAre(0, 1, 4));
  EXPECT_EQ(nodes[1].id, 2);
  EXPECT_EQ(nodes[1].memory, 1u << 20);
  EXPECT_THAT(nodes[1].cpus, IsEmpty());
}

TEST(HostNodes, AKernelWithoutNodesHasNone) {
  testing::TempDirectory sys;
  EXPECT_THAT(ReadHostNodes(sys.path()), IsEmpty());
}

TEST(HostNodes, FindsTheNodesOfCpus) {
  const std::vector<HostNode> nodes = {{0, kGiB, {0, 1}}, {1, kGiB, {2, 3}}, {2, kGiB, {}}};
  EXPECT_THAT(NodesOfCpus(std::vector{3}, nodes), ElementsAre(1));
  EXPECT_THAT(NodesOfCpus(std::vector{2, 0}, nodes), ElementsAre(0, 1));
  EXPECT_THAT(NodesOfCpus(std::vector<int>(), nodes), IsEmpty());
  EXPECT_THAT(NodesOfCpus(std::vector{9}, nodes), IsEmpty());
}

TEST(HostNodes, SaysWhatCannotBeHad) {
  const std::vector<HostNode> nodes = {{0, kGiB, {0, 1}}, {1, 2 * kGiB, {}}, {4, 0, {2}}};
  const auto check = [&](std::vector<int> wanted, uint64_t bytes) {
    return CheckHostNodes(wanted, bytes, nodes);
  };
  EXPECT_TRUE(check({}, 100 * kGiB).ok());
  EXPECT_TRUE(check({1}, 2 * kGiB).ok());
  EXPECT_TRUE(check({0, 1}, 3 * kGiB).ok());
  EXPECT_THAT(check({7}, 1), IsBadInput("memory-node 7", "does not exist: this host has 0, 1, 4"));
  EXPECT_THAT(check({4}, 1), IsBadInput("memory-node 4", "has CPUs and no memory"));
  EXPECT_THAT(check({1, 1}, 1), IsBadInput("memory-node 1", "is named twice"));
  EXPECT_THAT(check({0, 1}, 3 * kGiB + 1),
              IsBadInput("memory-node 0,1", "is more than memory-node 0,1 has (3G)"));
  EXPECT_THAT(CheckHostNodes(std::vector{0}, 1, {}), IsBadInput("memory-node 0", "no NUMA nodes"));
}

}  // namespace
}  // namespace ringside
