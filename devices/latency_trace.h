// When each request of a queue passed which point of its way: the newest of them, in a ring.
//
//   seen       just before the look at the available index that showed the request
//   taken      its descriptor chain has been parsed
//   submitted  its batch is about to be handed over: for io_uring and Linux AIO the end of the
//              thread's turn, just before its first io_submit and some loads before its
//              io_uring_enter; for a channel that hands over at once (aio=threads without inline),
//              as taken. What the I/O thread does inline it begins then, one after the
//              other. What the channel lets wait for room counts as submitted. A batch that fills
//              the io_uring earlier in the turn is stamped late by what is left of the turn. Of
//              parts it is the first; a request that begins anew on another thread is submitted
//              there
//   completed  the channel has reported its result to this thread, which answers it
//   published  the used index that shows its answer has been stored
//   interrupt  the interrupt of its batch has been signalled; never, if the driver wanted none
//
// What is answered without the disk (an error, the disk's id) is submitted and completed when it is
// taken. seen, submitted, published and interrupt are stamped once a batch, the others once a
// request. What comes before `seen` (the kick, the thread's waking up) and after `interrupt` is the
// guest's to measure.
//
// A trace may begin and end in the middle of I/O: a request that was taken before has no record.
//
// Threads: the queue's I/O thread stamps, and makes snapshots; made and read elsewhere, it is while
// nothing is stamped.
// Cost: some 60 ns of a request alone and 20 ns of one in a batch of 32 (a read of the counter is 8
// to 11); nothing is allocated after the constructor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/newest.h"
#include "base/tsc.h"
#include "devices/latency_histogram.h"
#include "poll/source.h"
#include "ringside/statistics.h"

namespace ringside {

// As written in reports.
const char* RequestKindName(RequestKind kind);
const char* LatencyPointName(LatencyPoint point);

class LatencyTrace {
 public:
  static constexpr size_t kCapacity = 1 << 16;  // records; 4 MiB

  // Of a queue whose heads are below `queue_size`. `histograms` stay.
  LatencyTrace(uint16_t queue_size, LatencyHistograms& histograms, size_t capacity = kCapacity);

  // A new driver: what was under way will never be published.
  void Restart();

  void Seen() { seen_ = ReadTsc(); }
  void Taken(uint16_t head, RequestKind kind, uint64_t bytes) {
    Ticks& request = under_way_[head];
    request.kind = kind;
    request.bytes = bytes;
    request.At(LatencyPoint::kSubmitted) = 0;
    request.At(LatencyPoint::kCompleted) = 0;
    request.At(LatencyPoint::kSeen) = seen_;
    request.At(LatencyPoint::kTaken) = ReadTsc();
  }
  // It is submitted when the hook runs that is returned, or now.
  Hook& SubmitLater(uint16_t head) {
    to_submit_.Add(head);
    return hand_over_hook_;
  }
  void SubmitNow(uint16_t head) { under_way_[head].CopyTaken(LatencyPoint::kSubmitted); }
  // What was not submitted was answered when it was taken.
  void Answered(uint16_t head) {
    Ticks& request = under_way_[head];
    if (request.At(LatencyPoint::kSeen) == 0) return;  // it was taken before the trace began
    const bool at_once = request.At(LatencyPoint::kSubmitted) == 0;
    if (at_once) request.CopyTaken(LatencyPoint::kSubmitted);
    request.At(LatencyPoint::kCompleted) = at_once ? request.At(LatencyPoint::kTaken) : ReadTsc();
    to_publish_.Add(head);
  }
  // All that were completed or answered. The records are made in Finish, lest an interrupt wait for
  // them: until then a head stands for its request. Where a driver breaks the rules and uses one
  // again before it was told that it may (section 2.7.13), only the later request has a record.
  void Published() { published_ = ReadTsc(); }
  enum class Interrupt { kRaised, kSuppressed, kHeld };
  void Finish(Interrupt interrupt);
  // The interrupt was raised for all batches that were finished as held since the last that was
  // not.
  void HeldIsRaised();
  // Or never will be.
  void HeldIsDropped() { held_ = 0; }

  class Snapshot;
  // Into the memory that the snapshot has already: nothing is allocated. Some 100 us for a full
  // ring.
  void CopyTo(Snapshot& snapshot) const;
  // Oldest first.
  std::vector<LatencyRecord> Records() const;
  // Records that newer ones have taken the place of.
  uint64_t overwritten() const { return records_.overwritten(); }

 private:
  struct Ticks {
    std::array<uint64_t, kLatencyPoints> at;
    uint64_t bytes;
    RequestKind kind;

    uint64_t& At(LatencyPoint point) { return at[static_cast<size_t>(point)]; }
    void CopyTaken(LatencyPoint point) { At(point) = At(LatencyPoint::kTaken); }
  };

  // Heads in the order in which they came, each once, whatever the driver does with it. What nobody
  // empties, as that of a queue that is broken or stopped, never holds more than there are heads.
  class HeadList {
   public:
    explicit HeadList(size_t heads) : heads_(heads), listed_(heads) {}
    void Add(uint16_t head) {
      if (listed_[head] != 0) return;
      listed_[head] = 1;
      heads_[count_++] = head;
    }
    template <typename Function>
    void Empty(Function take) {
      for (size_t i = 0; i < count_; ++i) {
        listed_[heads_[i]] = 0;
        take(heads_[i]);
      }
      count_ = 0;
    }

   private:
    std::vector<uint16_t> heads_;
    std::vector<uint8_t> listed_;  // by head
    size_t count_ = 0;
  };

  void HandOver();

  LatencyHistograms& histograms_;
  const TscMoment start_ = TscMoment::Now();
  TscRate rate_{start_};
  uint64_t seen_ = 0;
  uint64_t published_ = 0;
  std::vector<Ticks> under_way_;  // by head
  HeadList to_submit_;
  HeadList to_publish_;
  Newest<Ticks> records_;
  size_t held_ = 0;  // the newest of them whose interrupt is to come
  HookTo<LatencyTrace, &LatencyTrace::HandOver> hand_over_hook_{*this};
};

// The records of a moment, which may be turned into times on another thread.
class LatencyTrace::Snapshot {
 public:
  // Touches all of its memory, as much as a trace of `capacity` has.
  explicit Snapshot(size_t capacity = kCapacity) : ticks_(capacity) {}

  std::vector<LatencyRecord> Records() const;
  uint64_t overwritten() const { return overwritten_; }

 private:
  friend class LatencyTrace;

  std::vector<Ticks> ticks_;  // oldest first
  TscMoment start_;
  uint64_t overwritten_ = 0;
};

}  // namespace ringside
