// A disk in memory that does what a test says: completes at the end of the turn, or keeps requests
// until they are released in whatever order, or fails them; and holds its user to the contract of
// BlockDevice.
//
// Threads: any, as BlockDevice; what changes its behaviour and what looks at its content, too.
// Ownership: the I/O threads of its channels outlive it.
// Errors: a broken contract aborts, since a fuzzer has no other way of saying so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/sync.h"
#include "block/block_device.h"

namespace ringside::testing {

class MemoryDisk final : public BlockDevice {
 public:
  // What was asked of it.
  struct Record {
    BlockOp op;
    uint64_t offset;
    uint64_t length;  // of all segments, or of the range
    size_t segments;
    bool durable;
    bool unmap;
    bool operator==(const Record&) const = default;
  };

  explicit MemoryDisk(const BlockInfo& info) : info_(info), bytes_(info.size) {}
  ~MemoryDisk() override;

  // Behaviour, from the next Submit on.
  void Hold(bool hold) { hold_ = hold; }
  void KeepRecords(bool keep) { keep_records_ = keep; }
  void HandOverAtOnce(bool at_once) { at_once_ = at_once; }
  // Of every request: 0, or a positive errno.
  void FailWith(int error) { error_ = error; }
  // All requests, as a channel does that hands them on to another.
  void MoveBy(uint64_t bytes) { move_by_ = bytes; }
  // Called within Submit, on the channel's thread. To be set while nothing is submitted.
  void OnSubmit(std::function<void()> callback) { on_submit_ = std::move(callback); }
  // Of the next Open.
  void FailOpen(const absl::Status& status);

  // Held requests, oldest first, of all channels.
  size_t held() const;
  bool WaitForHeld(size_t count) const;
  // Completes the i-th of them, and returns when its owner knows.
  void Release(size_t i);
  void ReleaseOnItsThread(size_t i);  // which the caller is
  void ReleaseAll();

  std::vector<Record> records() const;
  std::vector<std::byte> Content(uint64_t offset, size_t length) const;
  void SetContent(uint64_t offset, const std::vector<std::byte>& content);
  size_t channels() const { return channels_; }
  uint64_t submitted() const { return submitted_; }
  // Those that somebody may want back.
  uint64_t recallable() const { return recallable_; }

  const BlockInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

 private:
  class Channel;
  struct Held {
    Channel* channel;
    BlockRequest* request;
  };
  Held Take(size_t i);
  void Accept(const BlockRequest& request);
  void Execute(BlockRequest& request);
  void Transfer(const BlockRequest& request);

  const BlockInfo info_;
  std::atomic<bool> hold_{false};
  std::atomic<bool> keep_records_{true};
  std::atomic<bool> at_once_{false};
  std::atomic<int> error_{0};
  std::atomic<uint64_t> move_by_{0};
  std::function<void()> on_submit_;
  std::atomic<size_t> channels_{0};
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> recallable_{0};
  mutable Mutex mutex_;
  std::vector<std::byte> bytes_ ABSL_GUARDED_BY(mutex_);
  std::vector<Record> records_ ABSL_GUARDED_BY(mutex_);
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);
  absl::Status open_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside::testing
