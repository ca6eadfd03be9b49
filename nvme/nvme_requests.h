// The requests of a channel to a namespace, on their way to being commands: a request is one
// command where it can be; where the device's limits or the shape of the memory do not allow that,
// it is a transfer of several. What finds no slot waits, in order.
//
// For a Channel that derives from it and has
//   uint32_t FillTransfer(Slot&, request, cursor, offset, left);
//            // the slot's next command: as much of a transfer as one takes. 0: none, until a
//            // command has ended
//   void FillDiscard(Slot&, offset, bytes);
//   void FillFlush(Slot&);
//   void Send(Slot&);
//   bool FlushIsVain() const;  // what was written may be gone, so no flush may succeed
//   void WaitersChanged();     // other requests wait than before
// and a Slot with the members request, transfer, sends and next_free.
//
// Threads: the I/O thread's.
#pragma once

#include <bit>
#include <cerrno>
#include <cstdint>

#include "base/counter.h"
#include "block/block_device.h"
#include "block/fifo.h"
#include "block/op_memory.h"
#include "block/segment_cursor.h"
#include "nvme/nvme_identify.h"
#include "nvme/nvme_request.h"

namespace ringside {

// A request that takes several commands.
struct NvmeTransfer {
  BlockRequest* request;
  SegmentCursor cursor;  // what is left
  uint64_t offset;
  uint64_t left;
  unsigned in_flight;
  int result;
  bool flushes;  // at its end
  bool waits;    // in unfinished_
  NvmeTransfer* next = nullptr;
  NvmeTransfer* next_free = nullptr;
};

template <typename Channel, typename Slot, typename Counters>
class NvmeRequests : public BlockChannel {
 protected:
  [[gnu::noinline]] void Wait(BlockRequest& request) {
    if (failed_) return FinishLater(request, failure_);
    waiting_.Push(request);
    ++waited_;
    must_wait_ = true;
    self().WaitersChanged();
  }

  // There is a slot.
  [[gnu::noinline]] void Start(BlockRequest& request) {
    if (request.recalled()) return FinishLater(request, -ECANCELED);
    if (request.op == BlockOp::kFlush) return StartFlush(request, nullptr);
    const bool moves_data = request.op == BlockOp::kRead || request.op == BlockOp::kWrite;
    const uint64_t length = moves_data ? TotalLength(request.segments) : request.length;
    const int error = nvme::Check(ns_, request, length);
    if (error != 0 || length == 0) return FinishLater(request, error);
    if (request.op == BlockOp::kDiscard) return StartDiscard(request);
    StartTransfer(request, length);
  }

  // With the slots and buffers that have become free.
  [[gnu::noinline]] void GoOn() {
    while (!unfinished_.empty()) {
      NvmeTransfer& transfer = *unfinished_.front();
      if (!SendPieces(transfer)) return;
      unfinished_.Pop();
      transfer.waits = false;
      if (transfer.in_flight == 0) FinishTransfer(transfer);  // one that has failed meanwhile
    }
    while (!waiting_.empty() && unfinished_.empty() && free_ != nullptr) {
      ++begun_;
      Start(*waiting_.Pop());
    }
    must_wait_ = failed_ || !waiting_.empty() || !unfinished_.empty();
    self().WaitersChanged();
  }

  // From now on nothing begins, and what has not begun ends with `failure`: later, by way of
  // FinishLater, as no one is in the middle of anything then.
  void FailWaiting(int failure) {
    failed_ = must_wait_ = true;
    failure_ = failure;
    while (NvmeTransfer* transfer = unfinished_.Pop()) {
      transfer->result = failure;
      transfer->left = 0;
      transfer->waits = false;
      if (transfer->in_flight != 0) continue;  // the last piece ends it
      FinishLater(*transfer->request, failure);
      transfers_.Give(*transfer);
    }
    FailWaiters(waited_ - begun_);
  }
  // Of those that wait the oldest ones.
  void FailWaiters(uint64_t count) {
    for (; count != 0 && !waiting_.empty(); --count) {
      ++begun_;
      FinishLater(*waiting_.Pop(), failure_);
    }
    self().WaitersChanged();
  }

  void AddSlot(Slot& slot) {
    slot.next_free = free_;
    free_ = &slot;
  }
  Slot& TakeSlot(BlockRequest& request, NvmeTransfer* transfer) {
    Slot& slot = *free_;
    free_ = slot.next_free;
    slot.request = &request;
    slot.transfer = transfer;
    slot.sends = 0;
    return slot;
  }
  // Its command has ended so, and the slot was added again.
  void Ended(Slot& slot, int result) {
    if (slot.transfer != nullptr) [[unlikely]]
      return PieceIsDone(*slot.transfer, result);
    FinishRequest(*slot.request, result);
  }

  IoThread& io_thread_;
  const NvmeNamespace& ns_;
  Counters& counters_;
  const unsigned block_shift_;
  bool failed_ = false;  // for ever
  int failure_ = -EIO;   // what is given up ends with it
  // Requests that came to wait, and that wait no longer: as a whole.
  uint64_t waited_ = 0;
  uint64_t begun_ = 0;
  bool must_wait_ = false;  // what is submitted, behind others
  Slot* free_ = nullptr;

 private:
  friend Channel;
  NvmeRequests(IoThread& io_thread, const NvmeNamespace& ns, Counters& counters)
      : io_thread_(io_thread),
        ns_(ns),
        counters_(counters),
        block_shift_(static_cast<unsigned>(std::countr_zero(ns.block_size))) {}

  Channel& self() { return static_cast<Channel&>(*this); }

  void StartTransfer(BlockRequest& request, uint64_t length) {
    const uint32_t bytes = self().FillTransfer(*free_, request, {}, request.offset, length);
    if (bytes == length) return self().Send(TakeSlot(request, nullptr));
    NvmeTransfer& transfer = transfers_.Take();
    transfer = {.request = &request, .offset = request.offset, .left = length};
    if (bytes != 0) {
      counters_.splits.Add();
      SendPiece(transfer, bytes);
      if (SendPieces(transfer)) return;
    }
    transfer.waits = must_wait_ = true;
    unfinished_.Push(transfer);
  }

  void StartDiscard(BlockRequest& request) {
    // It is a hint: what is no whole block is left alone.
    const uint64_t mask = ns_.block_size - 1;
    const uint64_t begin = (request.offset + mask) & ~mask;
    const uint64_t end = (request.offset + request.length) & ~mask;
    if (begin >= end) return FinishLater(request, 0);
    self().FillDiscard(*free_, begin, end - begin);
    NvmeTransfer* transfer = nullptr;
    if (request.durable && ns_.volatile_cache) {  // it knows no FUA
      transfer = &transfers_.Take();
      *transfer = {.request = &request, .in_flight = 1, .flushes = true};
    }
    self().Send(TakeSlot(request, transfer));
  }

  void StartFlush(BlockRequest& request, NvmeTransfer* transfer) {
    self().FillFlush(*free_);
    self().Send(TakeSlot(request, transfer));
  }

  // As many as find slots. Whether that was all.
  bool SendPieces(NvmeTransfer& transfer) {
    while (transfer.left != 0) {
      if (transfer.request->recalled()) {
        transfer.left = 0;
        if (transfer.result == 0) transfer.result = -ECANCELED;
        return true;
      }
      if (free_ == nullptr) return false;
      const uint32_t bytes = self().FillTransfer(*free_, *transfer.request, transfer.cursor,
                                                 transfer.offset, transfer.left);
      if (bytes == 0) return false;
      SendPiece(transfer, bytes);
    }
    return true;
  }

  // What the free slot was filled with.
  void SendPiece(NvmeTransfer& transfer, uint32_t bytes) {
    BlockRequest& request = *transfer.request;
    transfer.offset += bytes;
    transfer.left -= bytes;
    if (!request.segments.empty()) transfer.cursor.Advance(request.segments, bytes);
    ++transfer.in_flight;
    self().Send(TakeSlot(request, &transfer));
  }

  [[gnu::noinline]] void PieceIsDone(NvmeTransfer& transfer, int result) {
    --transfer.in_flight;
    if (result < 0 && transfer.result == 0) {
      transfer.result = result;
      transfer.left = 0;
    }
    if (transfer.in_flight == 0 && transfer.left == 0 && !transfer.waits) FinishTransfer(transfer);
  }

  void FinishTransfer(NvmeTransfer& transfer) {
    BlockRequest& request = *transfer.request;
    if (transfer.flushes && transfer.result == 0 && !failed_) {
      transfer.flushes = false;
      transfer.in_flight = 1;
      return StartFlush(request, &transfer);  // there is a slot: that of the piece
    }
    const int result = transfer.flushes && transfer.result == 0 ? failure_ : transfer.result;
    transfers_.Give(transfer);
    FinishRequest(request, result);
  }

  void FinishRequest(BlockRequest& request, int result) {
    if (request.op == BlockOp::kFlush && self().FlushIsVain()) result = -EIO;
    if (result < 0 && result != -ECANCELED) counters_.errors.Add();
    request.result = result;
    request.done(request);
  }

  void FinishLater(BlockRequest& request, int result) {
    request.result = result;
    finished_.Push(request);
    io_thread_.AtPublish(finished_hook_);
  }

  void RunFinished() {
    // What `done` submits is for the next run, which it queues.
    finished_.TakeEach([this](BlockRequest& request) { FinishRequest(request, request.result); });
  }

  Fifo<NvmeTransfer> unfinished_;  // whose next command found no slot, or no bounce buffer
  Fifo<BlockRequest> waiting_;     // behind those
  Fifo<BlockRequest> finished_;    // without a command; to be reported by finished_hook_
  HookTo<NvmeRequests, &NvmeRequests::RunFinished> finished_hook_{*this};
  SlabPool<NvmeTransfer> transfers_;
};

}  // namespace ringside
