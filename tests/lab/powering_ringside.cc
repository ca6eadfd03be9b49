// The ringside command, whose machine is asked to shut down when the file appears that
// RINGSIDE_PRESS in the environment names. Takes the place of `ringside` in the lab's scripts. The
// limit is far away: a guest that does not hear of the button is noticed by the script.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

#include "command/command_main.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

class Pressing final : public RunCompanion {
 public:
  explicit Pressing(std::string file) : file_(std::move(file)) {}

  void Begin(Machine& machine) override {
    thread_ = std::thread([this, &machine] {
      while (access(file_.c_str(), F_OK) != 0) {
        if (over_.WaitFor(absl::Milliseconds(100))) return;
      }
      const absl::Status status = machine.ShutDown(absl::Minutes(5));
      if (!status.ok()) std::fprintf(stderr, "FAILED: %s\n", status.ToString().c_str());
    });
  }
  void End() override {
    over_.Notify();
    thread_.join();
  }

 private:
  const std::string file_;
  Event over_;
  std::thread thread_;
};

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  const char* file = getenv("RINGSIDE_PRESS");
  ringside::Pressing pressing(file != nullptr ? file : "/nonexistent");
  return ringside::CommandMain(argc, argv, &pressing);
}
