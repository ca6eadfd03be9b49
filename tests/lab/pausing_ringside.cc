// The ringside command, whose machine is paused at random moments for random lengths while it runs,
// and whose devices are made anew in some of these pauses. In the environment, RINGSIDE_PAUSES says
// how often (100), and RINGSIDE_RESTORES in how many of a hundred (50). Takes the place of
// `ringside` in the lab's scripts. Says at the end how often it was, as pauses=N and restores=N
// on standard error.
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
  Pausing(int pauses, int restores_percent)
      : pauses_(pauses), restores_percent_(restores_percent) {}

  void Begin(Machine& machine) override {
    thread_ = std::thread([this, &machine] { Pause(machine); });
  }
  void End() override {
    over_.Notify();
    thread_.join();
    std::fprintf(stderr, "pauses=%d\nrestores=%d\n", paused_, restored_);
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
      if (static_cast<int>(random() % 100) < restores_percent_ && !Restore(machine)) return;
      over_.WaitFor(up_to(absl::Milliseconds(paused_ % 10 == 0 ? 1000 : 50)));
      machine.Resume();
    }
  }

  bool Restore(Machine& machine) {
    const absl::StatusOr<DevicesState> state = machine.internals().SaveDevices();
    const absl::Status status =
        state.ok() ? machine.internals().RestoreDevices(*state) : state.status();
    if (status.ok()) ++restored_;
    // The guest may have ended it while it was being paused.
    else if (machine.paused()) {
      std::fprintf(stderr, "FAILED: %s\n", status.ToString().c_str());
      machine.Stop();
    }
    return status.ok();
  }

  const int pauses_;
  const int restores_percent_;
  int paused_ = 0;
  int restored_ = 0;
  Event over_;
  std::thread thread_;
};

}  // namespace
}  // namespace ringside

int FromEnvironment(const char* name, int otherwise) {
  const char* value = getenv(name);
  return value != nullptr ? atoi(value) : otherwise;
}

int main(int argc, char** argv) {
  ringside::Pausing pausing(FromEnvironment("RINGSIDE_PAUSES", 100),
                            FromEnvironment("RINGSIDE_RESTORES", 50));
  return ringside::CommandMain(argc, argv, &pausing);
}
