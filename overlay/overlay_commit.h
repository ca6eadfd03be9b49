// Makes what has been written to an overlay durable, on one channel: the data, then the pages of
// the map that say where it is.
//
//   copy the changed pages as they are; flush; write the copies; flush
//
// What a copy says was written before it was made, so it is durable before the copy can be. Many
// pages go in batches, for which the flush behind one is the flush before the next. Without changed
// pages it is one flush.
//
// Threads: the channel's. The state and the channel of the file outlive it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "overlay/overlay_counters.h"
#include "overlay/overlay_state.h"

namespace ringside {

class OverlayCommit {
 public:
  class Owner {
   public:
    // 0 or -errno. Not from within Begin.
    virtual void CommitEnded(int result) = 0;

   protected:
    ~Owner() = default;
  };

  OverlayCommit(OverlayState& state, BlockChannel& file, OverlayCounters& counters, Owner& owner);
  OverlayCommit(const OverlayCommit&) = delete;
  OverlayCommit& operator=(const OverlayCommit&) = delete;

  // While no other is under way for this overlay.
  void Begin();

 private:
  static constexpr size_t kBatch = 256;  // pages: 1 MiB

  struct Request : BlockRequest {
    OverlayCommit* commit = nullptr;
    uint64_t number = 0;  // of the page
    Segment segment = {};
  };
  struct FreeMemory {
    void operator()(MapPage* pages) const;
  };

  void MakeRoom();
  void CopyBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);
  void Flush();
  void Flushed();
  void WriteBatch();
  void PageEnded(int result);
  void Fail(int result);
  void End(int result);

  OverlayState& state_;
  BlockChannel& file_;
  OverlayCounters& counters_;
  Owner& owner_;
  Request flush_;
  std::unique_ptr<MapPage, FreeMemory> pages_;  // of the batch
  std::vector<Request> writes_;
  std::vector<uint64_t> written_;  // pages that the next flush makes durable
  uint64_t left_ = 0;              // pages for later batches
  size_t batch_ = 0;               // pages that are copied and not written
  size_t under_way_ = 0;
  int error_ = 0;
};

}  // namespace ringside
