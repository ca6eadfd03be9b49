#include "overlay/overlay_commit.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "overlay/overlay_file.h"

namespace ringside {

void OverlayCommit::FreeMemory::operator()(MapPage* pages) const {
  std::free(pages);
}

OverlayCommit::OverlayCommit(OverlayState& state, BlockChannel& file, OverlayCounters& counters,
                             Owner& owner)
    : state_(state), file_(file), counters_(counters), owner_(owner) {
  flush_.op = BlockOp::kFlush;
  flush_.commit = this;
  flush_.done = [](BlockRequest& request) { static_cast<Request&>(request).commit->Flushed(); };
}

// Once a channel: most never commit.
void OverlayCommit::MakeRoom() {
  if (pages_ != nullptr) return;
  auto* const pages =
      static_cast<MapPage*>(std::aligned_alloc(kOverlaySlotBytes, kBatch * sizeof(MapPage)));
  if (pages == nullptr) throw std::bad_alloc();
  pages_.reset(pages);
  writes_.resize(kBatch);
  written_.reserve(kBatch);
  for (size_t i = 0; i < kBatch; ++i) {
    Request& write = writes_[i];
    write.op = BlockOp::kWrite;
    write.commit = this;
    write.segment = {
        .host = reinterpret_cast<std::byte*>(pages + i), .length = kOverlaySlotBytes, .region = 0};
    write.segments = {&write.segment, 1};
    write.done = [](BlockRequest& request) {
      static_cast<Request&>(request).commit->PageEnded(request.result);
    };
  }
}

void OverlayCommit::Begin() {
  MakeRoom();
  error_ = 0;
  counters_.commits.Add();
  {
    const MutexLock lock(state_.mutex);
    // What is changed from now on is for the next commit.
    left_ = state_.map->changed_pages();
    CopyBatch();
  }
  Flush();
}

void OverlayCommit::CopyBatch() {
  batch_ = static_cast<size_t>(std::min<uint64_t>(left_, kBatch));
  left_ -= batch_;
  for (size_t i = 0; i < batch_; ++i) {
    const uint64_t number = *state_.map->PopChanged();
    state_.map->Copy(number, pages_.get()[i]);
    writes_[i].number = number;
    writes_[i].offset = PageSlotOffset(number, state_.map->NextSlot(number));
  }
}

void OverlayCommit::Flush() {
  flush_.result = 0;
  file_.Submit(flush_);
}

void OverlayCommit::Flushed() {
  if (flush_.result != 0) return Fail(flush_.result);
  {
    const MutexLock lock(state_.mutex);
    for (const uint64_t number : written_) state_.map->Written(number);
  }
  written_.clear();
  if (batch_ != 0) return WriteBatch();
  End(0);
}

void OverlayCommit::WriteBatch() {
  under_way_ = batch_;
  counters_.map_pages.Add(batch_);
  for (size_t i = 0; i < batch_; ++i) file_.Submit(writes_[i]);
}

void OverlayCommit::PageEnded(int result) {
  if (result != 0 && error_ == 0) error_ = result;
  if (--under_way_ != 0) return;
  for (size_t i = 0; i < batch_; ++i) written_.push_back(writes_[i].number);
  batch_ = 0;
  if (error_ != 0) return Fail(error_);
  {
    const MutexLock lock(state_.mutex);
    CopyBatch();
  }
  Flush();
}

// The slots that counted still do, and the pages are changed as before.
void OverlayCommit::Fail(int result) {
  {
    const MutexLock lock(state_.mutex);
    for (const uint64_t number : written_) state_.map->NotWritten(number);
    for (size_t i = 0; i < batch_; ++i) state_.map->NotWritten(writes_[i].number);
  }
  written_.clear();
  batch_ = 0;
  End(result);
}

void OverlayCommit::End(int result) {
  left_ = 0;
  // Once in an overlay's life. The flush before has put the name into the file system's journal, so
  // this waits for no more than a flush.
  if (result == 0 && state_.has_new_name) {
    result = FlushDirectoryOf(state_.path);
    if (result == 0) state_.has_new_name = false;
  }
  owner_.CommitEnded(result);
}

}  // namespace ringside
