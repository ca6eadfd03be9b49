// Trees from one directory to another as messages, and what a sender that means harm can do.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "agent/tree_reader.h"
#include "agent/tree_writer.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;

class TreeTest : public ::testing::Test {
 protected:
  TreeTest() {
    std::string name = ::testing::TempDir() + "/treeXXXXXX";
    root_ = mkdtemp(name.data());
    fs::create_directory(root_ / "to");
  }
  ~TreeTest() override { fs::remove_all(root_); }

  static void Put(const fs::path& file, const std::string& text, mode_t mode) {
    std::ofstream(file) << text;
    chmod(file.c_str(), mode);
  }
  static std::string TextOf(const fs::path& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static mode_t ModeOf(const fs::path& file) {
    struct stat status = {};
    EXPECT_EQ(lstat(file.c_str(), &status), 0) << file;
    return status.st_mode & 07777;
  }

  // What `message` says, to a writer.
  template <typename Message>
  static int Send(TreeWriter& writer, const Message& message) {
    std::string bytes;
    if constexpr (std::is_same_v<Message, AgentType>) {
      AppendFrame(message, {}, bytes);
    } else {
      Encode(message, bytes);
    }
    return Take(writer, bytes).error;
  }
  static AgentFault Take(TreeWriter& writer, std::string_view bytes) {
    AgentFrame frame;
    EXPECT_EQ(ReadFrame(bytes, frame), FrameState::kWhole);
    return writer.Take(frame);
  }

  static AgentFault Copy(const fs::path& from, const fs::path& to) {
    TreeReader reader;
    reader.Open(from.string(), true);
    TreeWriter writer;
    AgentFault fault = writer.Open(to.string());
    while (!fault && !reader.is_complete()) {
      std::string bytes;
      fault = reader.Step(bytes);
      if (!fault) fault = Take(writer, bytes);
    }
    EXPECT_EQ(writer.is_complete(), !fault);
    return fault;
  }

  fs::path root_;
};

TEST_F(TreeTest, ATreeIsCopiedWithItsModesAndLinks) {
  fs::create_directories(root_ / "from/sub/empty");
  const std::string large(200'000, 'x');
  Put(root_ / "from/a", "text", 0640);
  Put(root_ / "from/sub/large", large, 0755);
  fs::create_symlink("../a", root_ / "from/sub/link");
  chmod((root_ / "from/sub").c_str(), 0710);
  EXPECT_FALSE(Copy(root_ / "from", root_ / "to")) << "into the directory";
  EXPECT_FALSE(Copy(root_ / "from", root_ / "other")) << "under another name";
  for (const fs::path& copy : {root_ / "to/from", root_ / "other"}) {
    EXPECT_EQ(TextOf(copy / "a"), "text");
    EXPECT_EQ(ModeOf(copy / "a"), 0640U);
    EXPECT_EQ(TextOf(copy / "sub/large"), large);
    EXPECT_EQ(ModeOf(copy / "sub/large"), 0755U);
    EXPECT_EQ(ModeOf(copy / "sub"), 0710U);
    EXPECT_EQ(fs::read_symlink(copy / "sub/link"), "../a");
    EXPECT_TRUE(fs::is_empty(copy / "sub/empty"));
  }
}

TEST_F(TreeTest, AFileReplacesAnother) {
  Put(root_ / "new", "new", 0600);
  Put(root_ / "to/old", "old", 0644);
  EXPECT_FALSE(Copy(root_ / "new", root_ / "to/old"));
  EXPECT_EQ(TextOf(root_ / "to/old"), "new");
  EXPECT_EQ(ModeOf(root_ / "to/old"), 0600U);
}

TEST_F(TreeTest, WhatIsCutOffLeavesNothing) {
  {
    TreeWriter writer;
    EXPECT_FALSE(writer.Open((root_ / "to/file").string()));
    EXPECT_EQ(Send(writer, EntryMessage{.name = "x"}), 0);
    std::string data;
    AppendFrame(AgentType::kData, "half", data);
    EXPECT_FALSE(Take(writer, data));
    EXPECT_FALSE(fs::is_empty(root_ / "to"));
  }
  EXPECT_TRUE(fs::is_empty(root_ / "to"));
}

// A link to elsewhere, and then a directory or a file behind it.
TEST_F(TreeTest, NothingIsWrittenThroughALinkThatWasSent) {
  fs::create_directory(root_ / "elsewhere");
  TreeWriter writer;
  EXPECT_FALSE(writer.Open((root_ / "to").string()));
  EXPECT_EQ(Send(writer, EntryMessage{.kind = EntryKind::kDirectory, .mode = 0700, .name = "d"}),
            0);
  EXPECT_EQ(Send(writer, EntryMessage{.kind = EntryKind::kLink,
                                      .name = "out",
                                      .target = (root_ / "elsewhere").string()}),
            0);
  EXPECT_EQ(Send(writer, EntryMessage{.kind = EntryKind::kDirectory, .mode = 0777, .name = "out"}),
            ENOTDIR);
  EXPECT_TRUE(fs::is_empty(root_ / "elsewhere"));
}

TEST_F(TreeTest, AFileInThePlaceOfALinkReplacesTheLink) {
  Put(root_ / "victim", "safe", 0600);
  fs::create_directory(root_ / "to/d");
  fs::create_symlink(root_ / "victim", root_ / "to/d/f");
  TreeWriter writer;
  EXPECT_FALSE(writer.Open((root_ / "to").string()));
  EXPECT_EQ(Send(writer, EntryMessage{.kind = EntryKind::kDirectory, .mode = 0700, .name = "d"}),
            0);
  EXPECT_EQ(Send(writer, EntryMessage{.name = "f"}), 0);
  EXPECT_EQ(Send(writer, AgentType::kFileEnd), 0);
  EXPECT_EQ(TextOf(root_ / "victim"), "safe");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(root_ / "to/d/f")));
}

// It asked for a file of that name, and has a directory with files that a login runs.
TEST_F(TreeTest, WhoAskedForATreeNamesIt) {
  TreeWriter file;
  EXPECT_FALSE(file.OpenToGet((root_ / "to").string(), "/etc/os-release", false));
  EXPECT_EQ(Send(file, EntryMessage{.name = ".bashrc"}), 0);
  EXPECT_EQ(Send(file, AgentType::kFileEnd), 0);
  EXPECT_TRUE(fs::exists(root_ / "to/os-release"));
  EXPECT_FALSE(fs::exists(root_ / "to/.bashrc"));
  TreeWriter directory;
  EXPECT_FALSE(directory.OpenToGet((root_ / "to").string(), "/etc/os-release", false));
  EXPECT_EQ(Send(directory, EntryMessage{.kind = EntryKind::kDirectory, .name = ".ssh"}), EISDIR);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "to"), {}), 1);
  for (const char* nameless : {"/", "/a/..", "."}) {
    TreeWriter writer;
    EXPECT_EQ(writer.OpenToGet((root_ / "to").string(), nameless, true).error, EISDIR) << nameless;
    EXPECT_FALSE(writer.OpenToGet((root_ / "to/new").string(), nameless, true)) << nameless;
  }
}

// The next tree for the same place would go where it points.
TEST_F(TreeTest, ATreeIsNoLink) {
  TreeWriter writer;
  EXPECT_FALSE(writer.OpenToGet((root_ / "to/copy").string(), "/log", true));
  EXPECT_EQ(Send(writer, EntryMessage{.kind = EntryKind::kLink, .name = "log", .target = "/root"}),
            EPROTO);
  EXPECT_TRUE(fs::is_empty(root_ / "to"));
}

TEST_F(TreeTest, ADirectoryThatIsThereKeepsItsPermissions) {
  fs::create_directory(root_ / "to/d");
  chmod((root_ / "to/d").c_str(), 0700);
  TreeWriter writer;
  EXPECT_FALSE(writer.Open((root_ / "to").string()));
  EXPECT_EQ(Send(writer, EntryMessage{.kind = EntryKind::kDirectory, .mode = 0777, .name = "d"}),
            0);
  EXPECT_EQ(Send(writer, AgentType::kLeave), 0);
  EXPECT_EQ(ModeOf(root_ / "to/d"), 0700U);
}

TEST_F(TreeTest, MessagesOutOfOrderAreRefused) {
  const EntryMessage file = {.name = "f"};
  const EntryMessage directory = {.kind = EntryKind::kDirectory, .mode = 0700, .name = "d"};
  const auto writer = [this] {
    TreeWriter made;
    EXPECT_FALSE(made.Open((root_ / "to").string()));
    return made;
  };
  for (const AgentType first : {AgentType::kData, AgentType::kFileEnd, AgentType::kLeave,
                                AgentType::kTreeEnd, AgentType::kExec}) {
    TreeWriter fresh = writer();
    EXPECT_EQ(Send(fresh, first), EPROTO) << static_cast<int>(first);
  }
  TreeWriter in_file = writer();
  EXPECT_EQ(Send(in_file, file), 0);
  EXPECT_EQ(Send(in_file, file), EPROTO);
  EXPECT_EQ(Send(in_file, AgentType::kTreeEnd), EPROTO);
  TreeWriter in_directory = writer();
  EXPECT_EQ(Send(in_directory, directory), 0);
  EXPECT_EQ(Send(in_directory, AgentType::kTreeEnd), EPROTO);
  EXPECT_EQ(Send(in_directory, AgentType::kLeave), 0);
  EXPECT_EQ(Send(in_directory, file), EPROTO) << "a second top";
  EXPECT_EQ(Send(in_directory, AgentType::kTreeEnd), 0);
  EXPECT_EQ(Send(in_directory, file), EPROTO) << "behind the end";
}

TEST_F(TreeTest, ATreeHasADepthAtMost) {
  TreeWriter writer;
  EXPECT_FALSE(writer.Open((root_ / "to").string()));
  const EntryMessage down = {.kind = EntryKind::kDirectory, .mode = 0700, .name = "d"};
  int depth = 0;
  while (depth < 1000 && Send(writer, down) == 0) ++depth;
  EXPECT_EQ(depth, 128);
}

TEST_F(TreeTest, FilesTogetherHaveSoManyBytesAtMost) {
  const auto data = [](size_t size) {
    std::string frame;
    AppendFrame(AgentType::kData, std::string(size, 'x'), frame);
    return frame;
  };
  TreeWriter file;
  EXPECT_FALSE(file.OpenToGet((root_ / "to/file").string(), "/file", false, 100));
  EXPECT_EQ(Send(file, EntryMessage{.size = 1, .name = "x"}), 0);
  EXPECT_FALSE(Take(file, data(100))) << "its size is no promise";
  EXPECT_EQ(Take(file, data(1)).error, EFBIG);
  {
    TreeWriter tree;
    EXPECT_FALSE(tree.OpenToGet((root_ / "to/tree").string(), "/tree", true, 3 * 4096));
    EXPECT_EQ(Send(tree, EntryMessage{.kind = EntryKind::kDirectory, .mode = 0700, .name = "d"}),
              0);
    for (const char* name : {"a", "b"}) {
      EXPECT_EQ(Send(tree, EntryMessage{.name = name}), 0);
      EXPECT_FALSE(Take(tree, data(1)));
      EXPECT_EQ(Send(tree, AgentType::kFileEnd), 0);
    }
    EXPECT_EQ(Send(tree, EntryMessage{.name = "empty"}), EFBIG);
  }
  EXPECT_TRUE(fs::exists(root_ / "to/tree/b"));
  EXPECT_FALSE(fs::exists(root_ / "to/tree/empty"));
}

TEST_F(TreeTest, WhatCannotBeReadOrPutIsAFault) {
  EXPECT_EQ(Copy(root_ / "missing", root_ / "to").error, ENOENT);
  EXPECT_EQ(Copy("/dev/null", root_ / "to").error, EOPNOTSUPP);
  Put(root_ / "file", "x", 0600);
  EXPECT_EQ(Copy(root_ / "file", root_ / "missing/file").error, ENOENT);
  EXPECT_EQ(Copy(root_ / "file", root_ / "missing/").error, ENOENT);
  fs::create_directory(root_ / "to/file");
  EXPECT_EQ(Copy(root_ / "file", root_ / "to").error, EISDIR);
  // A FIFO that nobody writes holds nobody.
  ASSERT_EQ(mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(Copy(root_ / "fifo", root_ / "to").error, EOPNOTSUPP);
  TreeReader without;
  without.Open((root_ / "to").string(), false);
  std::string out;
  EXPECT_EQ(without.Step(out).error, EISDIR);
}

// The second time each is there already, and is what it was.
TEST_F(TreeTest, LinksWithinATreeAreReplacedWhateverTheyLeadTo) {
  fs::create_directory(root_ / "from");
  fs::create_symlink("/dev/null", root_ / "from/masked");
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(Copy(root_ / "from", root_ / "to"));
  EXPECT_EQ(fs::read_symlink(root_ / "to/from/masked"), "/dev/null");
  fs::remove(root_ / "from/masked");
  Put(root_ / "from/masked", "text", 0600);
  EXPECT_FALSE(Copy(root_ / "from", root_ / "to"));
  EXPECT_EQ(TextOf(root_ / "to/from/masked"), "text");
}

// A file of the kernel's that has nothing to read, and may not have for hours.
TEST_F(TreeTest, AFileThatHasNothingYetHoldsNobody) {
  if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("", (root_ / "to").c_str(), "tracefs", 0, nullptr) != 0) {
    GTEST_SKIP() << "no tracefs can be mounted here: " << strerror(errno);
  }
  const fs::path own = root_ / "to/instances" / root_.filename();  // nobody else reads that
  ASSERT_EQ(mkdir(own.c_str(), 0700), 0);
  TreeReader reader;
  reader.Open((own / "trace_pipe").string(), false);
  std::string out;
  EXPECT_FALSE(reader.Step(out));
  AgentFault fault;
  for (int i = 0; i < 1000 && !fault; ++i) fault = reader.Step(out);
  EXPECT_EQ(fault.error, EAGAIN);
  reader = TreeReader();
  EXPECT_EQ(rmdir(own.c_str()), 0);
  EXPECT_EQ(umount2((root_ / "to").c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace ringside
