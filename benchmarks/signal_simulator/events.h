// What happens next in a simulation: a queue of things to do, by time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ringside {

class Events {
 public:
  int64_t now_ns() const { return now_ns_; }

  // What is to happen at one time happens in the order in which it was asked for.
  void After(int64_t ns, std::function<void()> what);
  // Until there is nothing left to do, or nothing until then.
  void RunUntil(int64_t end_ns);

 private:
  struct Event {
    int64_t ns = 0;
    uint64_t order = 0;
    std::function<void()> what;
    // Of two, the later one is the less for a heap whose greatest is next.
    bool operator<(const Event& other) const {
      return ns != other.ns ? ns > other.ns : order > other.order;
    }
  };

  int64_t now_ns_ = 0;
  uint64_t order_ = 0;
  std::vector<Event> heap_;
};

}  // namespace ringside
