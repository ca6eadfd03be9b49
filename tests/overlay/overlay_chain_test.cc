// Overlays on overlays: what one read becomes at the bottom, where each of them cuts it.
#include <algorithm>
#include <cerrno>
#include <deque>
#include <gtest/gtest.h>

#include "tests/overlay/overlay_rig.h"

namespace ringside {
namespace {

using testing::Letters;
using testing::MemoryDisk;
using testing::RigRequest;
using testing::RunOn;

constexpr size_t kLayers = 3;
constexpr uint64_t kDisk = uint64_t{16} << 20;
// As OverlayChannel has it: of all reads together, and one for each.
constexpr size_t kMostPieces = 128;

// An image full of 'b', and overlays on it, the lowest first. In each, blocks that are here come
// every so often: what is between two of them in one is a run of its own, of some 16 in the next.
// Those of a layer have its number as their letter.
class Chain {
 public:
  Chain() {
    for (size_t i = 0; i < kLayers; ++i) {
      Layer& layer = layers_.emplace_back(header_);
      layer.file.SetContent(header_.data_offset,
                            std::vector<std::byte>(kDisk, static_cast<std::byte>(LetterOf(i))));
      disks_.push_back(&layer.file);
      const MutexLock lock(layer.state.mutex);
      for (uint64_t block = 0; block < kDisk / kOverlayBlock; block += StrideOf(i)) {
        layer.state.map->SetHere(block, block + 1);
      }
    }
    image_.SetContent(0, std::vector<std::byte>(kDisk, std::byte{'b'}));
    disks_.push_back(&image_);
    for (MemoryDisk* disk : disks_) disk->KeepRecords(false);
    info_.size = kDisk;
    RunOn(*thread_, [&] {
      top_ = *image_.Open(*thread_);
      for (Layer& layer : layers_) {
        top_ =
            std::make_unique<OverlayChannel>(*thread_, *layer.file.Open(*thread_), std::move(top_),
                                             info_, layer.state, counters_.Take());
      }
    });
  }
  ~Chain() {
    RunOn(*thread_, [&] { top_.reset(); });
  }

  void Submit(BlockRequest& request) {
    RunOn(*thread_, [&] { top_->Submit(request); });
  }
  void Cancel() {
    RunOn(*thread_, [&] { top_->Cancel(); });
  }
  void Hold(bool hold) {
    for (MemoryDisk* disk : disks_) disk->Hold(hold);
  }
  void ReleaseAll() {
    for (MemoryDisk* disk : disks_) disk->ReleaseAll();
  }
  // The oldest of a disk; false if nothing is held.
  bool ReleaseOne() {
    const auto one =
        std::ranges::find_if(disks_, [](MemoryDisk* disk) { return disk->held() > 0; });
    if (one == disks_.end()) return false;
    (*one)->Release(0);
    std::ranges::rotate(disks_, disks_.begin() + 1);  // not of the same disk all the time
    return true;
  }
  // Those that have arrived below: at the image and at all files.
  size_t held() const {
    size_t sum = 0;
    for (const MemoryDisk* disk : disks_) sum += disk->held();
    return sum;
  }
  // What a guest reads.
  static std::string Content() {
    std::string content = Letters(kDisk, 'b');
    for (size_t i = 0; i < kLayers; ++i) {
      const uint64_t stride = StrideOf(i) * kOverlayBlock;
      for (uint64_t at = 0; at < kDisk; at += stride) {
        content.replace(at, kOverlayBlock, kOverlayBlock, LetterOf(i));
      }
    }
    return content;
  }

 private:
  struct Layer {
    explicit Layer(const OverlayHeader& header)
        : file({.size = OverlayFileBytes(header.data_offset, header.size)}),
          state(*BlockMap::Create(header), header, 0, true) {}
    MemoryDisk file;
    OverlayState state;
  };

  static char LetterOf(size_t layer) { return static_cast<char>('0' + layer); }
  static uint64_t StrideOf(size_t layer) { return uint64_t{2} << (4 * layer); }  // blocks

  const OverlayHeader header_ = testing::RigHeader(kDisk, kDisk);
  MemoryDisk image_{{.size = kDisk, .read_only = true}};
  std::deque<Layer> layers_;
  std::vector<MemoryDisk*> disks_;
  BlockInfo info_;
  CounterPool<OverlayCounters> counters_;
  std::unique_ptr<IoThread> thread_ = *IoThread::Start("chain-test");
  std::unique_ptr<BlockChannel> top_;
};

// Each layer has no more under way than 128, and one for each read that has reached it: of one read
// 64 reach the second, and 128 + 64 the third.
constexpr size_t kMostOfOneRead = 64 + 2 * kMostPieces;

TEST(OverlayChainTest, AReadIsCutALittleAtATime) {
  Chain chain;
  chain.Hold(true);
  RigRequest read(BlockOp::kRead, 0, kDisk, '-');
  chain.Submit(read);
  EXPECT_GE(chain.held(), kMostPieces);
  // Nor has it more under way as it goes on.
  do {
    ASSERT_LE(chain.held(), kMostOfOneRead);
  } while (chain.ReleaseOne());
  ASSERT_EQ(read.Wait(), 0);
  EXPECT_TRUE(read.text() == Chain::Content());
}

// Also those that come when others have taken all that there is.
TEST(OverlayChainTest, EachReadGoesOn) {
  constexpr size_t kReads = 100;
  constexpr uint64_t kBytes = uint64_t{1} << 20;
  Chain chain;
  const std::string content = Chain::Content();
  chain.Hold(true);
  std::deque<RigRequest> reads;
  for (size_t i = 0; i < kReads; ++i) {
    reads.emplace_back(BlockOp::kRead, i % 16 * kBytes, kBytes, '-');
    const size_t before = chain.held();
    chain.Submit(reads.back());
    ASSERT_GT(chain.held(), before);
  }
  EXPECT_LE(chain.held(), kReads + kLayers * kMostPieces);
  chain.Hold(false);
  chain.ReleaseAll();
  for (size_t i = 0; i < kReads; ++i) {
    ASSERT_EQ(reads[i].Wait(), 0);
    ASSERT_TRUE(reads[i].text() == content.substr(i % 16 * kBytes, kBytes));
  }
}

TEST(OverlayChainTest, WhatIsNotCutYetIsNotBegunOnceItIsRecalled) {
  Chain chain;
  chain.Hold(true);
  RequestOwner owner;
  RigRequest read(BlockOp::kRead, 0, kDisk, '-');
  read.owner = &owner;
  chain.Submit(read);
  const size_t begun = chain.held();
  owner.recalls = true;
  while (chain.ReleaseOne()) ASSERT_LT(chain.held(), begun);
  EXPECT_EQ(read.Wait(), -ECANCELED);
}

TEST(OverlayChainTest, NorIsItAtTheEndOfTheMachine) {
  Chain chain;
  chain.Hold(true);
  RigRequest read(BlockOp::kRead, 0, kDisk, '-');
  chain.Submit(read);
  const size_t begun = chain.held();
  chain.Cancel();
  while (chain.ReleaseOne()) ASSERT_LT(chain.held(), begun);
  EXPECT_EQ(read.Wait(), -ECANCELED);
}

}  // namespace
}  // namespace ringside
