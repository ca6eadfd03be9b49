#include "tests/support/block/memory_disk.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/support/poll/run_on.h"

namespace ringside::testing {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "memory disk: broken contract: %s\n", what);
  std::abort();
}

uint64_t LengthOf(const BlockRequest& request) {
  if (request.op == BlockOp::kDiscard || request.op == BlockOp::kWriteZeroes) return request.length;
  uint64_t length = 0;
  for (const Segment& segment : request.segments) length += segment.length;
  return length;
}

}  // namespace

class MemoryDisk::Channel final : public BlockChannel {
 public:
  Channel(MemoryDisk& disk, IoThread& io_thread) : disk_(disk), io_thread_(io_thread) {
    ++disk_.channels_;
  }
  ~Channel() override {
    Require(in_flight_ == 0, "a channel goes when nothing is in flight");
    --disk_.channels_;
  }

  void Submit(BlockRequest& request) override {
    request.Move(disk_.move_by_);
    disk_.Accept(request);
    if (disk_.at_once_) io_thread_.HandsOverAtOnce();
    if (disk_.on_submit_) disk_.on_submit_();
    ++in_flight_;
    if (disk_.hold_) {
      const MutexLock lock(disk_.mutex_);
      disk_.held_.push_back({this, &request});
      return;
    }
    request.next = nullptr;
    *end_ = &request;
    end_ = &request.next;
    io_thread_.AtPublish(complete_);
  }

  void Complete(BlockRequest& request) {
    --in_flight_;
    disk_.Execute(request);
    request.done(request);
  }
  IoThread& io_thread() { return io_thread_; }

 private:
  void CompleteAll() {
    BlockRequest* request = std::exchange(first_, nullptr);
    end_ = &first_;
    while (request != nullptr) {
      BlockRequest* next = request->next;
      Complete(*request);
      request = next;
    }
  }

  MemoryDisk& disk_;
  IoThread& io_thread_;
  size_t in_flight_ = 0;
  BlockRequest* first_ = nullptr;
  BlockRequest** end_ = &first_;
  HookTo<Channel, &Channel::CompleteAll> complete_{*this};
};

MemoryDisk::~MemoryDisk() {
  Require(channels_ == 0, "channels go before their disk");
}

void MemoryDisk::FailOpen(const absl::Status& status) {
  const MutexLock lock(mutex_);
  open_status_ = status;
}

absl::StatusOr<std::unique_ptr<BlockChannel>> MemoryDisk::Open(IoThread& io_thread) {
  {
    const MutexLock lock(mutex_);
    if (!open_status_.ok()) return std::exchange(open_status_, absl::OkStatus());
  }
  return std::make_unique<Channel>(*this, io_thread);
}

void MemoryDisk::Accept(const BlockRequest& request) {
  if (request.owner != nullptr) ++recallable_;
  const uint64_t length = LengthOf(request);
  Require(request.done != nullptr, "somebody wants to know the result");
  const bool flush = request.op == BlockOp::kFlush;
  Require(flush || length > 0, "a request has a length");
  Require(length % 512 == 0 && request.offset % 512 == 0, "requests are multiples of 512");
  Require(request.offset <= info_.size && length <= info_.size - request.offset,
          "requests lie within the device");
  Require(request.op == BlockOp::kRead || !info_.read_only, "a read-only disk is only read");
  ++submitted_;
  if (!keep_records_) return;
  const MutexLock lock(mutex_);
  records_.push_back({.op = request.op,
                      .offset = request.offset,
                      .length = length,
                      .segments = request.segments.size(),
                      .durable = request.durable,
                      .unmap = request.unmap});
}

void MemoryDisk::Execute(BlockRequest& request) {
  request.result = -error_;
  if (request.result == 0) Transfer(request);
}

void MemoryDisk::Transfer(const BlockRequest& request) {
  const MutexLock lock(mutex_);
  std::byte* place = bytes_.data() + request.offset;
  switch (request.op) {
    case BlockOp::kRead:
    case BlockOp::kWrite:
      for (const Segment& segment : request.segments) {
        if (request.op == BlockOp::kRead) {
          std::memcpy(segment.host, place, segment.length);
        } else {
          std::memcpy(place, segment.host, segment.length);
        }
        place += segment.length;
      }
      break;
    case BlockOp::kFlush:
      break;
    case BlockOp::kDiscard:
    case BlockOp::kWriteZeroes:
      std::memset(place, 0, request.length);
  }
}

size_t MemoryDisk::held() const {
  const MutexLock lock(mutex_);
  return held_.size();
}

bool MemoryDisk::WaitForHeld(size_t count) const {
  return SpinUntil([&] { return held() >= count; });
}

MemoryDisk::Held MemoryDisk::Take(size_t i) {
  const MutexLock lock(mutex_);
  Require(i < held_.size(), "only what is held can be released");
  const Held held = held_[i];
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
  return held;
}

void MemoryDisk::Release(size_t i) {
  const Held held = Take(i);
  RunOn(held.channel->io_thread(), [&] { held.channel->Complete(*held.request); });
}

void MemoryDisk::ReleaseOnItsThread(size_t i) {
  const Held held = Take(i);
  held.channel->Complete(*held.request);
}

void MemoryDisk::ReleaseAll() {
  while (held() > 0) Release(0);
}

std::vector<MemoryDisk::Record> MemoryDisk::records() const {
  const MutexLock lock(mutex_);
  return records_;
}

std::vector<std::byte> MemoryDisk::Content(uint64_t offset, size_t length) const {
  const MutexLock lock(mutex_);
  const auto begin = bytes_.begin() + static_cast<ptrdiff_t>(offset);
  return {begin, begin + static_cast<ptrdiff_t>(length)};
}

void MemoryDisk::SetContent(uint64_t offset, const std::vector<std::byte>& content) {
  const MutexLock lock(mutex_);
  Require(offset + content.size() <= bytes_.size(), "content fits");
  std::memcpy(bytes_.data() + offset, content.data(), content.size());
}

}  // namespace ringside::testing
