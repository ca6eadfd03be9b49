// A ring that takes nothing for a while. The kernel's never does that on demand, so this program is
// linked with --wrap for Uring::Push.
#include <atomic>
#include <gtest/gtest.h>
#include <vector>

#include "poll/uring.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/file/file_disk.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/temp_file.h"

namespace {
std::atomic<int> refusals{0};
}  // namespace

#define URING_PUSH(prefix) prefix##_ZN8ringside5Uring4PushERK12io_uring_sqeRNS_7UringOpE

extern "C" bool URING_PUSH(__real_)(ringside::Uring*, const io_uring_sqe&, ringside::UringOp&);
extern "C" bool URING_PUSH(__wrap_)(ringside::Uring* ring, const io_uring_sqe& entry,
                                    ringside::UringOp& op);
extern "C" bool URING_PUSH(__wrap_)(ringside::Uring* ring, const io_uring_sqe& entry,
                                    ringside::UringOp& op) {
  if (refusals > 0) {
    --refusals;
    return false;
  }
  return URING_PUSH(__real_)(ring, entry, op);
}

namespace ringside {
namespace {

TEST(FullRingTest, WhatDidNotFitIsPushedInALaterTurn) {
  if (const auto status = testing::UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  const testing::TempFile file(1 << 20);
  testing::FileDisk disk({.path = file.path(), .aio = Engine::kIoUring, .inline_io = false},
                         IoThread::Waiter::kUring);
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  std::vector<std::unique_ptr<testing::TestRequest>> requests;
  std::vector<testing::TestRequest*> all;
  for (uint64_t i = 0; i < 20; ++i) {
    requests.push_back(std::make_unique<testing::TestRequest>(BlockOp::kWrite, i * 4096,
                                                              std::vector<uint32_t>{4096}));
    all.push_back(&requests.back()->Set(std::string(4096, static_cast<char>('a' + i))));
  }
  for (const int times : {1, 7}) {
    refusals = times;
    disk.Run(all);
    EXPECT_EQ(refusals, 0);
    for (const testing::TestRequest* request : all) EXPECT_EQ(request->result, 0);
  }
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(file.Content(i * 4096, 4096), std::string(4096, static_cast<char>('a' + i)));
  }
}

}  // namespace
}  // namespace ringside
