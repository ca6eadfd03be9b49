// What block devices tell of themselves, and the counters that their channels write.
//
// Threads: the counters of a channel are written by its thread and read by any; all else any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/counter.h"
#include "base/sync.h"
#include "ringside/statistics.h"

namespace ringside {

struct BlockStatistics {
  std::string engine;          // what carries out requests; empty: nothing ever had to
  std::string cache = "none";  // how the host's page cache is used
  std::vector<BlockCounter> counters;
};

// The counters of a channel. Each backend derives its own, where a counter is one line:
//
//   struct FileCounters : ChannelCounters {
//     Named retries{*this, "retries"};
//   };
class ChannelCounters {
 public:
  class Named : public Counter {
   public:
    Named(ChannelCounters& owner, const char* name) { owner.named_.push_back({name, *this}); }
  };

  ChannelCounters() = default;
  ChannelCounters(const ChannelCounters&) = delete;

  // To those of the device's other channels; the first ones that are added give the names.
  void AddTo(std::vector<BlockCounter>& sums) const {
    for (size_t i = 0; i < named_.size(); ++i) {
      if (i == sums.size()) sums.push_back({.name = named_[i].name});
      sums[i].value += named_[i].counter.Get();
    }
  }

  // Release when a channel gives them back, acquire when the next one gets them: it goes on
  // counting where the other stopped.
  std::atomic<bool> taken{false};

 private:
  struct Entry {
    const char* name;
    const Counter& counter;
  };
  std::vector<Entry> named_;
};

// The counters of all channels a device has had. They outlive the channels, and serve the next
// ones: a guest resets its disk as often as it likes.
template <typename Counters>
class CounterPool {
 public:
  // Until their `taken` is false again.
  Counters& Take() {
    const MutexLock lock(mutex_);
    for (const auto& counters : all_) {
      if (!counters->taken.exchange(true, std::memory_order_acquire)) return *counters;
    }
    Counters& counters = *all_.emplace_back(std::make_unique<Counters>());
    counters.taken.store(true, std::memory_order_relaxed);
    return counters;
  }
  std::vector<BlockCounter> Sums() const {
    std::vector<BlockCounter> sums;
    Counters().AddTo(sums);  // the names, should there have been no channel
    const MutexLock lock(mutex_);
    for (const auto& counters : all_) counters->AddTo(sums);
    return sums;
  }
  // How many channels there have been at the same time, at most.
  size_t size() const {
    const MutexLock lock(mutex_);
    return all_.size();
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Counters>> all_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
