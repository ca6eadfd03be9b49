#include "benchmarks/signal_simulator/offline.h"

#include <algorithm>
#include <limits>

namespace ringside {
namespace {

// Completions of one publication.
struct Arrival {
  int64_t ns = 0;
  uint32_t count = 0;
};

// What a trace says, event by event, as differences of indices.
class Walk {
 public:
  explicit Walk(const SignalTrace& trace) : events_(trace.events) {}

  // Returns whether there is one more event.
  bool Next() {
    if (place_ == events_.size()) return false;
    event_ = events_[place_++];
    arrival_ = {};
    if (event_.kind == SignalEventKind::kTook) {
      taken_ = begun_taking_ ? static_cast<uint16_t>(event_.index - last_taken_) : 1;
      begun_taking_ = true;
      last_taken_ = event_.index;
    }
    if (event_.kind == SignalEventKind::kShown) {
      const uint16_t count = begun_showing_ ? static_cast<uint16_t>(event_.index - last_shown_) : 1;
      begun_showing_ = true;
      last_shown_ = event_.index;
      arrival_ = {event_.ns, count};
    }
    return true;
  }
  const SignalEvent& event() const { return event_; }
  uint16_t taken() const { return taken_; }  // by a kTook
  const Arrival& arrival() const { return arrival_; }
  size_t place() const { return place_; }
  int64_t next_ns() const { return place_ < events_.size() ? events_[place_].ns : event_.ns; }

 private:
  const std::vector<SignalEvent>& events_;
  size_t place_ = 0;
  SignalEvent event_;
  Arrival arrival_;
  bool begun_taking_ = false, begun_showing_ = false;
  uint16_t last_taken_ = 0, last_shown_ = 0;
  uint16_t taken_ = 0;
};

// Completions that the guest was not told of, with what they have waited for.
class Owed {
 public:
  void Add(uint32_t count, int64_t now_ns) {
    Wait(now_ns);
    count_ += count;
  }
  // Returns the time that all of them have waited for.
  int64_t Clear(int64_t now_ns) {
    Wait(now_ns);
    const int64_t waited_ns = waited_ns_;
    *this = Owed();
    return waited_ns;
  }
  uint32_t count() const { return count_; }

 private:
  void Wait(int64_t now_ns) {
    waited_ns_ += int64_t{count_} * (now_ns - last_ns_);
    last_ns_ = now_ns;
  }
  uint32_t count_ = 0;
  int64_t waited_ns_ = 0;
  int64_t last_ns_ = 0;
};

// One policy on a guest that does what is recorded.
class Replay {
 public:
  Replay(Signaller& signaller, const SignalTrace& trace) : signaller_(signaller), walk_(trace) {}

  SignalBill Go() {
    while (walk_.Next()) {
      const int64_t now_ns = walk_.event().ns;
      if (walk_.event().kind == SignalEventKind::kTook) Take(walk_.taken(), now_ns);
      if (walk_.arrival().count > 0) Show(walk_.arrival());
      LookUntil(now_ns, walk_.next_ns());
    }
    return bill_;
  }

 private:
  static constexpr int64_t kLookNs = 200;

  void Take(uint32_t count, int64_t now_ns) {
    in_flight_ += count;
    if (signaller_.busy()) signaller_.Took(count, now_ns);
  }

  void Show(const Arrival& arrival) {
    in_flight_ -= std::min(in_flight_, arrival.count);
    owed_.Add(arrival.count, arrival.ns);
    if (held_) return;
    const bool alone = in_flight_ == 0 && !signaller_.busy() && owed_.count() == 1;
    held_ = !alone && signaller_.Decide(View(arrival.ns)) == SignalReason::kHold;
    since_ns_ = arrival.ns;
    if (!held_) Raise(arrival.ns);
  }

  void LookUntil(int64_t now_ns, int64_t end_ns) {
    // The longer it is held, the rarer the looks: gaps in a file are as long as they please.
    for (; held_ && now_ns < end_ns; now_ns += std::max(kLookNs, (now_ns - since_ns_) / 64)) {
      if (signaller_.Look(since_ns_, View(now_ns)) != SignalReason::kHold) Raise(now_ns);
    }
  }

  void Raise(int64_t now_ns) {
    held_ = false;
    signaller_.Handed(owed_.count(), now_ns);
    ++bill_.signals;
    bill_.delay_ns += owed_.Clear(now_ns);
  }
  QueueView View(int64_t now_ns) const {
    return {.in_flight = in_flight_, .owed = owed_.count(), .now_ns = now_ns};
  }

  Signaller& signaller_;
  Walk walk_;
  SignalBill bill_;
  Owed owed_;
  uint32_t in_flight_ = 0;
  bool held_ = false;
  int64_t since_ns_ = 0;
};

}  // namespace

SignalTrace FirstPart(const SignalTrace& trace) {
  Walk walk(trace);
  size_t completions = 0;
  while (completions < kMostCompletions && walk.Next()) {
    completions += walk.arrival().count;
  }
  const auto end = trace.events.begin() + static_cast<ptrdiff_t>(walk.place());
  return {.queue = trace.queue, .events = {trace.events.begin(), end}};
}

SignalBill AsRecorded(const SignalTrace& trace) {
  SignalBill bill;
  Owed owed;
  Walk walk(trace);
  while (walk.Next()) {
    const SignalEvent& event = walk.event();
    owed.Add(walk.arrival().count, event.ns);
    if (event.kind == SignalEventKind::kRaised) {
      ++bill.signals;
      bill.delay_ns += owed.Clear(event.ns);
    } else if (event.kind == SignalEventKind::kConsumed) {
      owed.Clear(event.ns);
    }
  }
  return bill;
}

SignalBill AsDecidedBy(Signaller& signaller, const SignalTrace& trace) {
  return Replay(signaller, trace).Go();
}

// A signal is best sent with the last arrival that it tells of. So the least cost up to an arrival
// is that up to some arrival before it, one signal, and the delay of what came between the two.
double LeastCostNs(const SignalTrace& trace, const SignalPrice& price) {
  std::vector<Arrival> arrivals;
  Walk walk(trace);
  while (walk.Next()) {
    if (walk.arrival().count > 0) arrivals.push_back(walk.arrival());
  }
  std::vector<double> least(arrivals.size() + 1, std::numeric_limits<double>::infinity());
  least[0] = 0;
  for (size_t last = 0; last < arrivals.size(); ++last) {
    double delay_ns = 0;
    for (size_t first = last + 1; first-- > 0;) {
      delay_ns +=
          arrivals[first].count * static_cast<double>(arrivals[last].ns - arrivals[first].ns);
      const double cost = price.signal_ns + price.per_ns * delay_ns;
      least[last + 1] = std::min(least[last + 1], least[first] + cost);
      // What came even earlier only adds to a delay that is dearer than a signal for each.
      if (cost > price.signal_ns * static_cast<double>(last - first + 2)) break;
    }
  }
  return least.back();
}

}  // namespace ringside
