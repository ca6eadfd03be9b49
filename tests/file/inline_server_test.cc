// Which requests are tried inline, and what is remembered of those that failed.
#include "file/inline_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/block/test_disk.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using testing::Must;
using testing::TempFile;
using testing::TestRequest;

class InlineServerTest : public ::testing::Test {
 protected:
  InlineServerTest() {
    target_.size = kSize;
    target_.inline_io = InlineIo::kMemory;
  }
  // What the server reads and writes from now on.
  void Use(int fd) { target_.fd = UniqueFd(Must(fcntl(fd, F_DUPFD_CLOEXEC, 0), "dup")); }
  bool Takes(const TestRequest& request) const { return server_.Takes(request); }

  static constexpr uint64_t kSize = 1 << 20;
  FileTarget target_;
  FileCounters counters_;
  InlineServer server_{target_, counters_};
};

TEST_F(InlineServerTest, TakesSmallReadsAndWrites) {
  for (const BlockOp op : {BlockOp::kRead, BlockOp::kWrite}) {
    EXPECT_TRUE(Takes(TestRequest(op, 0, {512})));
    EXPECT_TRUE(Takes(TestRequest(op, kSize - (64 << 10), {64 << 10})));
    EXPECT_FALSE(Takes(TestRequest(op, 0, {64 << 10, 512})));
    EXPECT_TRUE(Takes(TestRequest(op, 0, std::vector<uint32_t>(32, 512))));
    EXPECT_FALSE(Takes(TestRequest(op, 0, std::vector<uint32_t>(33, 512))));
  }
}

TEST_F(InlineServerTest, LeavesToTheEngineWhatItMustRefuseOrWaitFor) {
  EXPECT_FALSE(Takes(TestRequest(BlockOp::kRead, 0)));
  EXPECT_FALSE(Takes(TestRequest(BlockOp::kRead, kSize - 512, {1024})));
  EXPECT_FALSE(Takes(TestRequest(BlockOp::kRead, ~uint64_t{0} - 511, {512})));
  EXPECT_FALSE(Takes(TestRequest(BlockOp::kFlush, 0)));
  for (const BlockOp op : {BlockOp::kDiscard, BlockOp::kWriteZeroes}) {
    TestRequest request(op, 0);
    request.length = 512;
    EXPECT_FALSE(Takes(request));
  }
  TestRequest write(BlockOp::kWrite, 0, {512});
  write.durable = true;
  EXPECT_FALSE(Takes(write));
  write.durable = false;
  EXPECT_TRUE(Takes(write));
  target_.read_only = true;
  EXPECT_FALSE(Takes(write));
  EXPECT_TRUE(Takes(TestRequest(BlockOp::kRead, 0, {512})));
}

TEST_F(InlineServerTest, TakesNothingWhereItMayNot) {
  target_.inline_io = InlineIo::kNever;
  EXPECT_FALSE(Takes(TestRequest(BlockOp::kRead, 0, {512})));
}

TEST_F(InlineServerTest, AWriteToThePageCacheMayWaitForAFrozenFileSystem) {
  target_.inline_io = InlineIo::kCached;
  EXPECT_FALSE(Takes(TestRequest(BlockOp::kWrite, 0, {512})));
  EXPECT_TRUE(Takes(TestRequest(BlockOp::kRead, 0, {512})));
}

TEST_F(InlineServerTest, AWriteDoesNotWaitForADiscard) {
  target_.allocating = 1;
  EXPECT_FALSE(Takes(TestRequest(BlockOp::kWrite, 0, {512})));
  EXPECT_TRUE(Takes(TestRequest(BlockOp::kRead, 0, {512})));
}

TEST_F(InlineServerTest, AShortTransferIsTheEnginesToDo) {
  TempFile file(kSize);
  Use(file.fd());
  TestRequest read(BlockOp::kRead, 8192, {4096});
  EXPECT_EQ(server_.Serve(read), 4096u);
  EXPECT_EQ(read.result, 0);
  file.Resize(8192 + 512);
  EXPECT_EQ(server_.Serve(read), 0u);
  file.Resize(0);
  EXPECT_EQ(server_.Serve(read), 0u);
  EXPECT_EQ(counters_.served_inline.Get(), 1u);
  EXPECT_EQ(counters_.requests[0].Get(), 1u);
  EXPECT_EQ(counters_.bytes_read.Get(), 4096u);
}

TEST_F(InlineServerTest, AFileWithoutNowaitIsRemembered) {
  const TempFile file(kSize);
  Use(file.fd());
  target_.inline_io = InlineIo::kCached;
  TestRequest read(BlockOp::kRead, 0, {4096});
  ASSERT_TRUE(Takes(read));
  if (server_.Serve(read) != 0) GTEST_SKIP() << "this kernel's tmpfs has RWF_NOWAIT";
  EXPECT_FALSE(Takes(read));
}

TEST_F(InlineServerTest, MissesMakeItTryLessOftenAndAHitAlways) {
  // Written just now, so it is in the page cache; where that has no RWF_NOWAIT, nothing can be
  // seen.
  TempFile file(kSize, ".");
  file.Fill(0, std::string(4096, 'x'));
  Use(file.fd());
  target_.inline_io = InlineIo::kCached;
  TestRequest read(BlockOp::kRead, 0, {4096});
  if (server_.Serve(read) == 0) GTEST_SKIP() << "no RWF_NOWAIT where the tests are built";

  // Nothing can be read there: a miss.
  Use(Must(open("/dev/null", O_RDONLY | O_CLOEXEC), "open"));
  EXPECT_EQ(server_.Serve(read), 0u);
  Use(file.fd());
  EXPECT_EQ(server_.Serve(read), 0u);  // one is skipped
  EXPECT_EQ(server_.Serve(read), 4096u);
  EXPECT_EQ(server_.Serve(read), 4096u);

  Use(Must(open("/dev/null", O_RDONLY | O_CLOEXEC), "open"));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(server_.Serve(read), 0u);
  Use(file.fd());
  unsigned skipped = 0;
  while (server_.Serve(read) == 0 && skipped < 1000) ++skipped;
  EXPECT_GT(skipped, 0u);
  EXPECT_LE(skipped, InlineServer::kMostSkipped);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(server_.Serve(read), 4096u);
}

}  // namespace
}  // namespace ringside
