// Channels of an overlay over two disks in memory, each on an I/O thread of its own, and requests
// of one or more bytes that all are the same letter.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "overlay/overlay_channel.h"
#include "overlay/overlay_header.h"
#include "tests/support/block/memory_disk.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/wait.h"

namespace ringside::testing {

inline constexpr uint64_t kRigBlocks = 16;
inline constexpr uint64_t kRigSize = kRigBlocks * kOverlayBlock;

inline OverlayHeader RigHeader(uint64_t base_bytes = kRigSize, uint64_t size = kRigSize) {
  const BaseIdentity base = {.kind = BaseKind::kRaw, .size = base_bytes};
  return *NewOverlayHeader(size, base, "", kBytesPerMapPage);
}

// What a disk in memory was asked for.
inline MemoryDisk::Record WriteRecord(uint64_t offset, uint64_t length, size_t segments = 1) {
  return {BlockOp::kWrite, offset, length, segments, false, false};
}
inline constexpr MemoryDisk::Record kFlushRecord = {BlockOp::kFlush, 0, 0, 0, false, false};

class RigRequest : public BlockRequest {
 public:
  RigRequest(BlockOp what, uint64_t where, uint64_t bytes = 0, char letter = 0)
      : BlockRequest{.op = what, .offset = where} {
    if (what == BlockOp::kDiscard || what == BlockOp::kWriteZeroes) {
      length = bytes;
      unmap = true;
    } else if (bytes != 0) {
      memory_.assign(bytes, letter);
      segment_ = {.host = reinterpret_cast<std::byte*>(memory_.data()),
                  .length = static_cast<uint32_t>(bytes),
                  .region = 0};
      segments = {&segment_, 1};
    }
    result = 1;
    done = [](BlockRequest& request) {
      auto& self = static_cast<RigRequest&>(request);
      if (self.on_done_) self.on_done_();
      self.ended_.Notify();
    };
  }
  RigRequest(const RigRequest&) = delete;

  const std::string& text() const { return memory_; }
  bool has_ended() const { return ended_.HasBeenNotified(); }
  int Wait() {
    ended_.WaitOrAbort();
    return result;
  }
  void OnDone(std::function<void()> call) { on_done_ = std::move(call); }

 private:
  std::string memory_;
  Segment segment_ = {};
  BoundedEvent ended_;
  std::function<void()> on_done_;
};

class OverlayRig {
 public:
  // The base is full of 'b'; what the overlay's file has where nobody wrote, of '?'.
  explicit OverlayRig(size_t threads = 1, const OverlayHeader& header = RigHeader(),
                      uint64_t limit = 0, bool keeps_map = true)
      : header_(header),
        file_({.size = OverlayFileBytes(header.data_offset, header.size)}),
        base_({.size = std::max<uint64_t>(header.base.size, 512), .read_only = true}),
        state_(*BlockMap::Create(header), header, limit, keeps_map) {
    info_.size = header.size;
    info_.read_only = false;
    base_.SetContent(0, std::vector<std::byte>(base_.info().size, std::byte{'b'}));
    file_.SetContent(
        header.data_offset,
        std::vector<std::byte>(file_.info().size - header.data_offset, std::byte{'?'}));
    for (size_t i = 0; i < threads; ++i) {
      auto& side = sides_.emplace_back();
      side.thread = *IoThread::Start("overlay-test");
      RunOn(*side.thread, [&] {
        side.channel = std::make_unique<OverlayChannel>(*side.thread, *file_.Open(*side.thread),
                                                        *base_.Open(*side.thread), info_, state_,
                                                        counters_.Take());
      });
    }
  }
  ~OverlayRig() {
    for (Side& side : sides_) RunOn(*side.thread, [&] { side.channel.reset(); });
  }

  void Submit(BlockRequest& request, size_t side = 0) {
    RunOn(*sides_[side].thread, [&] { sides_[side].channel->Submit(request); });
  }
  // Returns at once.
  void Begin(BlockRequest& request, size_t side = 0) {
    sides_[side].thread->Begin([this, side, &request] { sides_[side].channel->Submit(request); });
  }
  int Run(RigRequest& request, size_t side = 0) {
    Submit(request, side);
    return request.Wait();
  }
  int Write(uint64_t offset, uint64_t bytes, char letter, size_t side = 0) {
    RigRequest request(BlockOp::kWrite, offset, bytes, letter);
    return Run(request, side);
  }
  std::string Read(uint64_t offset, uint64_t bytes, size_t side = 0) {
    RigRequest request(BlockOp::kRead, offset, bytes, '-');
    const int result = Run(request, side);
    return result == 0 ? request.text() : absl::StrFormat("error %d", result);
  }
  int Flush(size_t side = 0) {
    RigRequest request(BlockOp::kFlush, 0);
    return Run(request, side);
  }
  int Discard(uint64_t offset, uint64_t bytes) {
    RigRequest request(BlockOp::kDiscard, offset, bytes);
    return Run(request);
  }
  void Cancel(size_t side = 0) {
    RunOn(*sides_[side].thread, [&] { sides_[side].channel->Cancel(); });
  }
  // All that was asked of the overlay's file, but for what came before the last call.
  std::vector<MemoryDisk::Record> FileRecords() {
    const auto all = file_.records();
    std::vector<MemoryDisk::Record> fresh(all.begin() + static_cast<ptrdiff_t>(seen_), all.end());
    seen_ = all.size();
    return fresh;
  }
  uint64_t Count(std::string_view name) const {
    for (const BlockCounter& counter : counters_.Sums()) {
      if (counter.name == name) return counter.value;
    }
    return UINT64_MAX;
  }
  // A slot as it is in the file.
  MapPage PageIn(unsigned slot) const {
    MapPage page;
    const auto bytes = file_.Content(PageSlotOffset(0, slot), sizeof page);
    std::memcpy(static_cast<void*>(&page), bytes.data(), sizeof page);
    return page;
  }

  uint64_t data_offset() const { return header_.data_offset; }
  MemoryDisk& file() { return file_; }
  MemoryDisk& base() { return base_; }
  BlockInfo& info() { return info_; }
  OverlayState& state() { return state_; }
  BlockChannel& channel(size_t side = 0) { return *sides_[side].channel; }  // on its thread
  IoThread& thread(size_t side = 0) { return *sides_[side].thread; }

 private:
  struct Side {
    std::unique_ptr<IoThread> thread;
    std::unique_ptr<BlockChannel> channel;
  };

  const OverlayHeader header_;
  MemoryDisk file_;
  MemoryDisk base_;
  BlockInfo info_;
  OverlayState state_;
  CounterPool<OverlayCounters> counters_;
  size_t seen_ = 0;
  std::deque<Side> sides_;
};

inline std::string Letters(uint64_t bytes, char letter) {
  return std::string(bytes, letter);
}

}  // namespace ringside::testing
