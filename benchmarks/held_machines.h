// Forks of a snapshot, and bare machines of it (bare_restore.h), that stay alive beside each other.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "benchmarks/bare_restore.h"
#include "ringside/io_pool.h"
#include "ringside/machine.h"

namespace ringside {

// One with a console of pipes.
struct TalkingMachine {
  UniqueFd to_guest, from_guest;
  UniqueFd console_input, console_output;
  std::unique_ptr<Machine> machine;
};

// How long a guest (touch=N, tests/guest/main.cc) takes to write to its pages.
struct TouchTimes {
  int64_t guest_ns = 0;  // by its own clock
  int64_t all_ns = 0;    // with all from before the machine was made
};
absl::StatusOr<TouchTimes> TouchPages(MachineConfig config, bool records_working_set);

class HeldMachines {
 public:
  explicit HeldMachines(std::shared_ptr<const MachineTemplate> from) : from_(std::move(from)) {}

  // Makes another, whose guest stands once it has said a byte. Returns how many ns it took to that.
  absl::StatusOr<int64_t> AddBare();
  absl::StatusOr<int64_t> AddFork();
  // With the I/O threads of all those that are made so.
  absl::StatusOr<int64_t> AddPooledFork();
  // Makes a fork whose guest (keep=1, tests/guest/main.cc) has been told a number, and stands.
  absl::Status AddThatKeeps(uint64_t number);
  // Has each of those say what it keeps. Returns how many said another number.
  absl::StatusOr<uint64_t> Recall();
  // Ends all. Returns how many ns that took.
  int64_t Drop();
  // Ends the one that was made last.
  void DropLast();

 private:
  struct Fork {
    TalkingMachine talking;
    uint64_t number = 0;
    bool keeps = false;
  };

  absl::StatusOr<int64_t> Add(MachineConfig config);

  const std::shared_ptr<const MachineTemplate> from_;
  std::shared_ptr<IoPool> pool_;  // null: none is wanted yet
  std::vector<Fork> forks_;
  std::vector<std::unique_ptr<BareMachine>> bare_;
  bool last_is_bare_ = false;
};

}  // namespace ringside
