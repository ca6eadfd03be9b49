// The ringside command, whose machine is paused at random moments for random lengths while it runs:
// RINGSIDE_PAUSES in the environment says how often (100). Takes the place of `ringside` in the lab's
// scripts. Says at the end how often it was paused, as "pauses=N" on standard error.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "command/command_main.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

class Pausing final : public RunCompanion {
 public:
  explicit Pausing(int pauses) : pauses_(pauses) {}

  void Begin(Machine& machine) override {
    thread_ = std::thread([this, &machine] { Pause(machine); });
  }
  void End() override {
    over_.Notify();
    thread_.join();
    std::fprintf(stderr, "pauses=%d\n", paused_);
  }

 private:
  void Pause(Machine& machine) {
    std::mt19937 random(1);
    const auto up_to = [&](absl::Duration limit) {
      return std::uniform_real_distribution<>(0, 1)(random) * limit;
    };
    while (paused_ < pauses_ && !over_.WaitFor(up_to(absl::Milliseconds(300)))) {
      if (!machine.Pause().ok()) return;
      ++paused_;
      over_.WaitFor(up_to(absl::Milliseconds(paused_ % 10 == 0 ? 1000 : 50)));
      machine.Resume();
    }
  }

  const int pauses_;
  int paused_ = 0;
  Event over_;
  std::thread thread_;
};

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  const char* pauses = getenv("RINGSIDE_PAUSES");
  ringside::Pausing pausing(pauses != nullptr ? atoi(pauses) : 100);
  return ringside::CommandMain(argc, argv, &pausing);
}
