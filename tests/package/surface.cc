// What else embedders may name, in a program that finds Ringside by pkg-config: that it compiles
// and links is most of the test.
#include <absl/time/clock.h>
#include <iostream>
#include <ringside/config.h>
#include <ringside/event.h>
#include <ringside/guest_agent.h>
#include <ringside/log.h>
#include <ringside/machine.h>
#include <ringside/vsock.h>
#include <string>

namespace {

class Lines final : public ringside::LogSink {
 public:
  void Log(ringside::Severity, std::string_view) override { ++count; }
  int count = 0;
};

class Events final : public ringside::EventSink {
 public:
  void Happened(const ringside::MachineEvent& event) override { last = event.sequence; }
  int64_t last = 0;
};

// Never called: a machine's functions are there.
[[maybe_unused]] absl::Status UseAll(ringside::Machine& machine) {
  machine.BeginPause([&machine](const absl::Status&) { machine.Resume(); });
  if (machine.paused() || machine.console_spoken() || machine.first_run_ns() > 0) machine.Stop();
  const auto io_thread = machine.AddIoThread({.id = "more", .cpus = {0}});
  if (!io_thread.ok()) return io_thread.status();
  (void)machine.MoveQueue("disk0", 0, *io_thread, absl::Seconds(1));
  (void)machine.SetPoll(*io_thread, {.kind = ringside::PollKind::kAlways});
  (void)machine.Explain(absl::Seconds(1));
  (void)machine.SetTrace("disk0", true, absl::Seconds(1));
  (void)machine.Latencies("disk0", absl::Seconds(1));
  if (!machine.PressPowerButton().ok()) (void)machine.ShutDown(absl::Seconds(30));
  (void)machine.Pause(absl::Seconds(machine.end_fd()));
  return machine.RemoveIoThread(*io_thread);
}

// Nor this: there is no guest.
[[maybe_unused]] bool UseGuest(const ringside::GuestAgent& agent) {
  const auto end = agent.Exec({.arguments = {"true"}, .limit = absl::Seconds(1)});
  return end.ok() && agent.Ping().ok() && agent.CopyIn("a", "/a").ok() &&
         agent.CopyOut("/a", "b", true).ok() && agent.SetClock(absl::Now()).ok() &&
         agent.RenewRandomness().ok() && agent.ShutDown().ok() &&
         ringside::ConnectToGuest("vm.vsock", 1024).ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Lines log;
  ringside::MachineConfig config;
  config.kernel = argv[1];
  config.log = &log;
  Events events;
  config.events = &events;
  config.disks = {{.backend = ringside::NullConfig{.size = 1 << 20}},
                  {.backend = ringside::NvmeConfig{.address = "0000:00:04.0"}},
                  {.backend = ringside::NvmePassthroughConfig{.path = "/dev/ng0n1"}},
                  {.backend = ringside::FileConfig{.path = "x"}}};
  config.disks = {config.disks[3]};
  config.disks[0].backend.As<ringside::FileConfig>()->path = "/nowhere/disk.img";
  if (config.disks[0].backend.As<ringside::NullConfig>() != nullptr) return 1;
  const absl::Status status = ringside::Machine::Create(config).status();
  std::cout << status << '\n';
  return absl::IsNotFound(status) ? 0 : 1;
}
