// What is simulated: a guest, its jobs, a device and an I/O thread, as plain figures.
//
// Units: ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ringside {

// What the guest's processors pay.
struct GuestCosts {
  std::string name;
  int64_t interrupt_ns = 0;   // entry and exit of its handler
  int64_t entry_ns = 0;       // the handler's work for each used entry
  int64_t wake_ns = 0;        // of a thread that slept: the switch to it
  int64_t fetch_ns = 0;       // its call that fetches what has completed
  int64_t reap_ns = 0;        // and for each of those
  int64_t submit_ns = 0;      // it handles that, and submits the next request
  int64_t to_running_ns = 0;  // from the signal to a processor that runs
  int64_t to_halted_ns = 0;   // and to one that is halted
  int64_t ipi_ns = 500;       // the handler wakes a thread of another processor
};
inline const GuestCosts kCheap = {"cheap", 1'000, 150, 800, 300, 50, 800, 500, 2'000};
inline const GuestCosts kMid = {"mid", 3'000, 300, 1'500, 500, 100, 1'500, 1'000, 4'000};
inline const GuestCosts kDear = {"dear", 8'000, 300, 2'000, 500, 100, 1'500, 2'000, 10'000};

// From `at_ns` on the job keeps so many requests under way.
struct DepthChange {
  int64_t at_ns = 0;
  uint32_t depth = 0;
};

struct Job {
  size_t vcpu = 0;
  uint32_t depth = 1;
  int64_t think_ns = 0;   // between a completion and the next request, on the processor
  bool parallel = false;  // no thread does that: each request has a processor to itself
  bool at_once = false;   // requests by which the depth grows come all at one time
  bool preempts = false;  // when its thread wakes, the one that runs has to wait
  std::vector<DepthChange> changes;
  // Serial and parallel thinking take turns, if this is not 0.
  int64_t alternates_ns = 0;
};

// Another program takes a processor for so long, so often.
struct ForeignLoad {
  size_t vcpu = 0;
  int64_t every_ns = 0;
  int64_t for_ns = 0;
};

struct DeviceModel {
  enum class Kind : uint8_t {
    kParallel,  // each request takes service_ns, give or take
    kSerial,    // one after the other
    kInline,    // the I/O thread serves it at once
  };
  Kind kind = Kind::kParallel;
  int64_t service_ns = 20'000;
  double jitter = 0.2;  // of service_ns, evenly
};

struct ThreadModel {
  int64_t turn_ns = 200;
  int64_t request_ns = 350;  // on its way there, and on its way back
  int64_t signal_ns = 800;
  int64_t look_ns = 200;        // between two looks for work
  int64_t spin_ns = INT64_MAX;  // it sleeps after that long without work
  int64_t wake_ns = 6'000;
  int64_t kick_ns = 2'000;  // the guest's exit that wakes it
};

enum class Mischief : uint8_t {
  kNone,
  kShrinks,     // at each hold one request less
  kDrips,       // replaces one at a time while an interrupt is held, as late as keeps it held
  kMovesEvent,  // used_event jumps away and back
  kAfterRaise,  // the device completes just after each signal
};

struct Scenario {
  std::string family;
  std::string name;
  GuestCosts costs;
  size_t vcpus = 1;
  std::vector<Job> jobs;
  std::vector<ForeignLoad> foreign;
  // The handler publishes used_event at each entry that it takes, as some kernels did
  // (docs/signalling.md).
  bool rearms_early = false;
  DeviceModel device;
  ThreadModel thread;
  Mischief mischief = Mischief::kNone;
  uint16_t first_index = 0;  // where the rings begin
};

}  // namespace ringside
