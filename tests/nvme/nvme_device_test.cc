// The NVMe driver on a controller without faults.
#include <cerrno>
#include <random>

#include "tests/support/nvme/nvme_disk.h"
#include "tests/support/poll/silent_ring.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::NvmeModelConfig;
using testing::NvmeModelExecuted;
using testing::NvmeTest;
using testing::Pattern;
using testing::Pieces;
using testing::TestDisk;
using testing::TestRequest;

class NvmeDeviceTest : public NvmeTest {
 protected:
  std::string Stored(uint32_t nsid, uint64_t offset, size_t size, bool durable = false) const {
    const auto bytes = durable ? model_->Durable(nsid) : model_->Contents(nsid);
    return {reinterpret_cast<const char*>(bytes.data()) + offset, size};
  }
  int Do(BlockOp op, uint64_t offset, uint64_t length, bool durable = false) {
    TestRequest request(op, offset);
    request.length = length;
    request.durable = durable;
    return disk_->Run(request);
  }
  int Write(uint64_t offset, const std::string& text, bool durable = false) {
    TestRequest write(BlockOp::kWrite, offset,
                      Pieces{{memory_.At(0, static_cast<uint32_t>(text.size()))}});
    write.Set(text);
    write.durable = durable;
    return disk_->Run(write);
  }
  std::string Read(uint64_t offset, uint32_t size) {
    TestRequest read(BlockOp::kRead, offset, Pieces{{memory_.At(8 << 20, size)}});
    read.Set(std::string(size, 'x'));
    return disk_->Run(read) == 0 ? read.Text() : "failed";
  }
};

TEST_F(NvmeDeviceTest, TellsWhatTheNamespaceIs) {
  Start({.namespaces = {{.blocks = 1000, .block_size = 512}, {.blocks = 300, .block_size = 4096}},
         .write_cache = false});
  auto second = Open(2);
  ASSERT_TRUE(second->status().ok());
  const BlockInfo& small = disk_->device().info();
  EXPECT_EQ(small.size, 512000);
  EXPECT_EQ(small.logical_block, 512);
  EXPECT_FALSE(small.write_back);
  EXPECT_TRUE(small.can_discard);
  const BlockInfo& large = second->device().info();
  EXPECT_EQ(large.size, 1228800);
  EXPECT_EQ(large.logical_block, 4096);
  EXPECT_EQ(large.discard_alignment, 4096);
}

TEST_F(NvmeDeviceTest, ANamespaceThatHasGrownIsLookedAtAgain) {
  Start({.namespaces = {{.blocks = 4096, .block_size = 512}}});
  EXPECT_THAT(disk_->device().Resize(4 << 20), IsBadInput("NVMe namespace", "leave the size out"));
  model_->AnnounceBlocks(1, 3000);  // fewer
  EXPECT_TRUE(absl::IsInvalidArgument(disk_->device().Resize(std::nullopt)));
  EXPECT_EQ(disk_->device().info().size, 2u << 20);
  EXPECT_EQ(Do(BlockOp::kWriteZeroes, 2 << 20, 512), -EINVAL);
  model_->AnnounceBlocks(1, 8192);
  EXPECT_TRUE(disk_->device().Resize(std::nullopt).ok());
  EXPECT_EQ(disk_->device().info().size, 4u << 20);
  // What is there now the model has no bytes for; that it is asked is enough.
  EXPECT_EQ(Read(1 << 20, 512), std::string(512, '\0'));
}

TEST_F(NvmeDeviceTest, WritesAndReads) {
  Start();
  EXPECT_EQ(Write(4096, Pattern(4096, 1)), 0);
  EXPECT_EQ(Stored(1, 4096, 4096), Pattern(4096, 1));
  EXPECT_EQ(Read(4096, 4096), Pattern(4096, 1));
  EXPECT_EQ(Count("bounced"), 0);
  EXPECT_EQ(Count("splits"), 0);
}

TEST_F(NvmeDeviceTest, NamespacesAreApart) {
  Start({.namespaces = {{}, {.block_size = 4096}}});
  auto second = Open(2);
  ASSERT_TRUE(second->status().ok());
  TestRequest write(BlockOp::kWrite, 8192, Pieces{{memory_.At(0, 4096)}});
  write.Set(Pattern(4096, 3));
  EXPECT_EQ(second->Run(write), 0);
  EXPECT_EQ(Stored(2, 8192, 4096), Pattern(4096, 3));
  EXPECT_EQ(Stored(1, 8192, 4096), std::string(4096, '\0'));
  second.reset();
}

TEST_F(NvmeDeviceTest, AFlushMakesWritesDurable) {
  Start();
  EXPECT_EQ(Write(0, Pattern(4096, 1)), 0);
  EXPECT_NE(Stored(1, 0, 4096, true), Pattern(4096, 1));
  EXPECT_EQ(Do(BlockOp::kFlush, 0, 0), 0);
  EXPECT_EQ(Stored(1, 0, 4096, true), Pattern(4096, 1));
}

TEST_F(NvmeDeviceTest, ADurableWriteIsDurable) {
  Start();
  EXPECT_EQ(Write(0, Pattern(4096, 1), true), 0);
  EXPECT_EQ(Stored(1, 0, 4096, true), Pattern(4096, 1));
}

TEST_F(NvmeDeviceTest, AskingForDurabilityCostsNothingWithoutACache) {
  Start({.write_cache = false});
  EXPECT_EQ(Write(0, Pattern(4096, 1), true), 0);
  EXPECT_THAT(Executed(), ElementsAre(Field(&NvmeModelExecuted::flags, 0)));
}

TEST_F(NvmeDeviceTest, DiscardsAndZeroes) {
  Start();
  EXPECT_EQ(Write(0, Pattern(16384, 1)), 0);
  EXPECT_EQ(Do(BlockOp::kDiscard, 0, 4096), 0);
  EXPECT_EQ(Do(BlockOp::kWriteZeroes, 8192, 4096), 0);
  EXPECT_EQ(Stored(1, 0, 4096), std::string(4096, '\0'));
  EXPECT_EQ(Stored(1, 4096, 4096), Pattern(16384, 1).substr(4096, 4096));
  EXPECT_EQ(Stored(1, 8192, 4096), std::string(4096, '\0'));
}

TEST_F(NvmeDeviceTest, ADurableDiscardIsFlushed) {
  Start();
  EXPECT_EQ(Write(0, Pattern(4096, 1), true), 0);
  EXPECT_EQ(Do(BlockOp::kDiscard, 0, 4096, true), 0);
  EXPECT_EQ(Stored(1, 0, 4096, true), std::string(4096, '\0'));
}

TEST_F(NvmeDeviceTest, ADiscardKeepsBlocksThatItNamesInPart) {
  Start({.namespaces = {{.block_size = 4096}}});
  EXPECT_EQ(Write(0, Pattern(16384, 1)), 0);
  EXPECT_EQ(Do(BlockOp::kDiscard, 512, 8192), 0);
  EXPECT_EQ(Read(0, 4096), Pattern(16384, 1).substr(0, 4096));
  EXPECT_EQ(Read(4096, 4096), std::string(4096, '\0'));
  EXPECT_EQ(Read(8192, 4096), Pattern(16384, 1).substr(8192, 4096));
  EXPECT_EQ(Do(BlockOp::kDiscard, 512, 1024), 0);
}

TEST_F(NvmeDeviceTest, ZeroesBeyondOneCommand) {
  Start({.namespaces = {{.blocks = 200'000}}});
  EXPECT_EQ(Do(BlockOp::kWriteZeroes, 512, 150'000 * 512), 0);
  EXPECT_EQ(Executed().size(), 3);
}

TEST_F(NvmeDeviceTest, RefusesWhatCannotBe) {
  Start({.namespaces = {{.blocks = 100, .block_size = 4096}}});
  EXPECT_EQ(Write(512, Pattern(4096, 1)), -EINVAL);
  EXPECT_EQ(Write(0, Pattern(512, 1)), -EINVAL);
  EXPECT_EQ(Write(396 << 10, Pattern(16384, 1)), -EINVAL);
  EXPECT_EQ(Do(BlockOp::kDiscard, 0, 500 << 10), -EINVAL);
  EXPECT_EQ(Do(BlockOp::kWriteZeroes, 0, 512), -EINVAL);
  EXPECT_EQ(Do(BlockOp::kWriteZeroes, UINT64_MAX - 4095, 8192), -EINVAL);
  EXPECT_EQ(Write(0, ""), 0);
  EXPECT_THAT(Executed(), ElementsAre());
  // Of a page or two the controller looks itself.
  EXPECT_EQ(Write(400 << 10, Pattern(4096, 1)), -EINVAL);
}

TEST_F(NvmeDeviceTest, SplitsAtTheLargestTransfer) {
  Start({.mdts = 2});
  EXPECT_EQ(Write(0, Pattern(100 << 10, 5)), 0);
  EXPECT_EQ(Stored(1, 0, 100 << 10), Pattern(100 << 10, 5));
  EXPECT_EQ(Executed().size(), 7);
  EXPECT_EQ(Count("splits"), 1);
}

TEST_F(NvmeDeviceTest, SplitsAtTheBoundary) {
  Start({.namespaces = {{.boundary = 32}}});
  EXPECT_EQ(Write(12 << 10, Pattern(24 << 10, 5)), 0);
  EXPECT_EQ(Stored(1, 12 << 10, 24 << 10), Pattern(24 << 10, 5));
  for (const NvmeModelExecuted& each : Executed()) {
    EXPECT_LE(each.start % 32 + each.blocks, 32);
  }
  EXPECT_EQ(Executed().size(), 3);
}

// Section 3.3 of the notes on QEMU's driver: it copied whatever was not a page.
TEST_F(NvmeDeviceTest, CopiesOnlyWhatPrpCannotExpress) {
  Start();
  // 512 bytes at any multiple of four.
  TestRequest plain(BlockOp::kWrite, 0, Pieces{{memory_.At(4092, 512)}});
  EXPECT_EQ(disk_->Run(plain.Set(Pattern(512, 1))), 0);
  // A gap between blocks.
  TestRequest gap(BlockOp::kWrite, 4096, Pieces{{memory_.At(8192, 512), memory_.At(20480, 1024)}});
  EXPECT_EQ(disk_->Run(gap.Set(Pattern(1536, 2))), 0);
  EXPECT_EQ(Count("bounced"), 0);
  EXPECT_EQ(Count("splits"), 1);
  // A gap within a block, and an odd address.
  TestRequest within(BlockOp::kWrite, 8192,
                     Pieces{{memory_.At(40960, 100), memory_.At(50000, 412)}});
  EXPECT_EQ(disk_->Run(within.Set(Pattern(512, 3))), 0);
  TestRequest odd(BlockOp::kWrite, 12288, Pieces{{memory_.At(60001, 8192)}});
  EXPECT_EQ(disk_->Run(odd.Set(Pattern(8192, 4))), 0);
  EXPECT_EQ(Count("bounced"), 2);
  EXPECT_EQ(Stored(1, 0, 512), Pattern(512, 1));
  EXPECT_EQ(Stored(1, 4096, 1536), Pattern(1536, 2));
  EXPECT_EQ(Stored(1, 8192, 512), Pattern(512, 3));
  EXPECT_EQ(Stored(1, 12288, 8192), Pattern(8192, 4));
  TestRequest back(BlockOp::kRead, 12288, Pieces{{memory_.At(70001, 8192)}});
  EXPECT_EQ(disk_->Run(back), 0);
  EXPECT_EQ(back.Text(), Pattern(8192, 4));
}

// More copies than there are buffers, more requests than slots, in one turn.
TEST_F(NvmeDeviceTest, WhatFindsNoRoomWaits) {
  Start({.service_ns = 20'000});
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> list;
  for (uint32_t i = 0; i < 700; ++i) {
    const uint64_t skew = i % 3 == 0 ? 1 : 0;
    auto& request = requests.emplace_back(std::make_unique<TestRequest>(
        BlockOp::kWrite, i * 4096, Pieces{{memory_.At(i * 8192 + skew, 4096)}}));
    list.push_back(&request->Set(Pattern(4096, static_cast<char>(i))));
  }
  disk_->Run(list);
  const std::string stored = Stored(1, 0, 700 * 4096);
  for (uint32_t i = 0; i < 700; ++i) {
    ASSERT_EQ(requests[i]->result, 0);
    ASSERT_EQ(stored.substr(i * 4096, 4096), Pattern(4096, static_cast<char>(i))) << i;
  }
  EXPECT_EQ(Count("bounced"), 234);
  EXPECT_EQ(Count("commands"), 700);
}

TEST_F(NvmeDeviceTest, ABatchCostsTwoDoorbells) {
  Start();
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> list;
  for (uint32_t i = 0; i < 32; ++i) {
    list.push_back(requests
                       .emplace_back(std::make_unique<TestRequest>(
                           BlockOp::kRead, i * 4096, Pieces{{memory_.At(i * 4096, 4096)}}))
                       .get());
  }
  disk_->Run(list);
  EXPECT_LE(Count("doorbells"), 1 + 32);
  EXPECT_EQ(Count("commands"), 32);
}

struct Shape {
  uint8_t stride;
  bool shadows;
  uint32_t entries;
};
class NvmeShapeTest : public NvmeDeviceTest, public ::testing::WithParamInterface<Shape> {};

// 461bba04bf: the stride of doorbells. Rings of all sizes go round many times.
TEST_P(NvmeShapeTest, RingsGoRound) {
  Start({.queue_entries = GetParam().entries,
         .doorbell_stride = GetParam().stride,
         .shadow_doorbells = GetParam().shadows});
  for (int i = 0; i < 600; ++i) {
    ASSERT_EQ(Write(i % 50 * 4096, Pattern(4096, static_cast<char>(i))), 0);
    ASSERT_EQ(Read(i % 50 * 4096, 4096), Pattern(4096, static_cast<char>(i)));
  }
}
INSTANTIATE_TEST_SUITE_P(Of, NvmeShapeTest,
                         ::testing::Values(Shape{0, false, 1024}, Shape{2, false, 64},
                                           Shape{0, true, 1024}, Shape{0, true, 8},
                                           Shape{4, true, 4}));

TEST_F(NvmeDeviceTest, AReadOnlyDiskTakesNoWrites) {
  Start();
  auto device = NvmeDevice::Create(controller_, {.namespace_id = 1, .read_only = true});
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE((*device)->info().read_only);
  const MemoryRegion region = memory_.region();
  ASSERT_TRUE((*device)->MapMemory({&region, 1}).ok());
  TestDisk disk(*std::move(device), IoThread::Waiter::kEpoll);
  for (const BlockOp op : {BlockOp::kDiscard, BlockOp::kWriteZeroes}) {
    TestRequest request(op, 0);
    request.length = 4096;
    EXPECT_EQ(disk.Run(request), -EROFS);
  }
  TestRequest write(BlockOp::kWrite, 0, Pieces{{memory_.At(0, 4096)}});
  EXPECT_EQ(disk.Run(write), -EROFS);
  TestRequest read(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
  EXPECT_EQ(disk.Run(read), 0);
}

TEST_F(NvmeDeviceTest, ANamespaceThatIsNotThereIsNamedWithThoseThatAre) {
  Start({.namespaces = {{}, {.blocks = 0}, {}}});
  for (const uint32_t nsid : {2U, 4U, 77U}) {
    const auto disk = Open(nsid);
    EXPECT_TRUE(absl::IsNotFound(disk->status())) << disk->status();
    EXPECT_THAT(std::string(Message(disk->status())),
                ::testing::AllOf(HasSubstr(absl::StrFormat("no namespace %d", nsid)),
                                 HasSubstr("there is: 1, 3")));
  }
}

TEST_F(NvmeDeviceTest, AFormatThatCannotBeUsedIsSaid) {
  Start({.namespaces = {{}, {.metadata = 8}}});
  const auto disk = Open(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(disk->status())) << disk->status();
  EXPECT_THAT(std::string(Message(disk->status())), HasSubstr("8 of metadata"));
}

class NvmeQueuesTest : public NvmeDeviceTest, public ::testing::WithParamInterface<bool> {};

TEST_P(NvmeQueuesTest, AreGivenBack) {
  Start({.queues = 2, .shadow_doorbells = GetParam()});
  for (int i = 0; i < 10; ++i) {
    auto second = Open(1);
    ASSERT_TRUE(second->status().ok());
    TestRequest read(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
    ASSERT_EQ(second->Run(read), 0);
    ASSERT_EQ(Count("timeouts"), 0);
    if (i == 9) {
      const auto third = Open(1);
      EXPECT_TRUE(absl::IsFailedPrecondition(third->status()));
      EXPECT_THAT(std::string(Message(third->status())), HasSubstr("2 queues, all in use"));
    }
    second.reset();
    // The controller's thread gives it back in its own time.
    ASSERT_TRUE(testing::SpinUntil([&] {
      const auto log = model_->log();
      return std::ranges::count_if(log, [](const NvmeModelExecuted& each) {
               return each.queue == 0 && each.opcode == 4;
             }) == i + 1;
    }));
  }
}
INSTANTIATE_TEST_SUITE_P(Shadows, NvmeQueuesTest, ::testing::Bool());

TEST_F(NvmeDeviceTest, WhoLooksTakesNoInterrupts) {
  Start();
  const auto looking = Open(1, IoThread::Waiter::kEpoll, {.kind = PollKind::kAlways});
  ASSERT_TRUE(looking->status().ok());
  const testing::SilentRing ring(looking->io_thread());
  TestRequest read(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(looking->Run(read), 0);
  const uint64_t before = model_->counters().interrupts;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(looking->Run(read), 0);
  EXPECT_EQ(model_->counters().interrupts, before);
}

// The next thread with the same vector may sleep.
TEST_F(NvmeDeviceTest, AVectorIsGivenBackUnmasked) {
  Start({.queues = 2, .service_ns = 1'000'000});
  auto looking = Open(1, IoThread::Waiter::kEpoll, {.kind = PollKind::kAlways});
  ASSERT_TRUE(looking->status().ok());
  TestRequest read(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
  for (int i = 0; i < 10; ++i) ASSERT_EQ(looking->Run(read), 0);
  looking.reset();
  std::unique_ptr<TestDisk> sleeping;
  ASSERT_TRUE(testing::SpinUntil([&] {
    sleeping = Open(1);
    return sleeping->status().ok();
  }));
  for (int i = 0; i < 10; ++i) ASSERT_EQ(sleeping->Run(read), 0);
  EXPECT_EQ(Count("lost_interrupts"), 0);
}

TEST_F(NvmeDeviceTest, AThreadSleepsOnlyOnceItsInterruptIsUnmasked) {
  Start({.queues = 2, .unmask_calls = 5, .service_ns = 1'000'000});
  const auto disk = Open(1, IoThread::Waiter::kEpoll, {.kind = PollKind::kAlways});
  ASSERT_TRUE(disk->status().ok());
  TestRequest read(BlockOp::kRead, 0, Pieces{{memory_.At(0, 4096)}});
  for (int i = 0; i < 10; ++i) ASSERT_EQ(disk->Run(read), 0);
  testing::RunOn(disk->io_thread(), [&] { disk->io_thread().SetPoll({.kind = PollKind::kNever}); });
  for (int i = 0; i < 10; ++i) ASSERT_EQ(disk->Run(read), 0);
  EXPECT_EQ(Count("lost_interrupts"), 0);
}

TEST_F(NvmeDeviceTest, MemoryThatTheIommuHasNoPlaceForIsPutElsewhere) {
  Start({.iova_ranges = {{0x40000000, 0x7fffffff}}});
  EXPECT_EQ(Write(4096, Pattern(4096, 1)), 0);
  EXPECT_EQ(Read(4096, 4096), Pattern(4096, 1));
}

TEST_F(NvmeDeviceTest, AnEventIsTold) {
  Start();
  model_->SendAsyncEvent(0x00020001);  // SMART
  ASSERT_TRUE(testing::SpinUntil([&] { return Logged("a health warning"); }));
  model_->SendAsyncEvent(0x00020001);
  ASSERT_TRUE(testing::SpinUntil([&] {
    return std::ranges::count_if(log_.lines(), [](const std::string& line) {
             return line.find("a health warning") != std::string::npos;
           }) == 2;
  }));
}

TEST_F(NvmeDeviceTest, AnOrderlyEndMakesAllDurable) {
  Start();
  EXPECT_EQ(Write(0, Pattern(4096, 1)), 0);
  Disconnect();
  EXPECT_EQ(Stored(1, 0, 4096, true), Pattern(4096, 1));
  Connect();
  EXPECT_EQ(Read(0, 4096), Pattern(4096, 1));
}

}  // namespace
}  // namespace ringside
