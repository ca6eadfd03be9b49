// For tests that hold machines still while their guests are at work.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>

#include "file/file_device.h"
#include "tests/support/devices/zero_disk.h"
#include "tests/support/poll/held_thread.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

namespace ringside::testing {

// A guest whose disk is checked, by how it is served and waited for.
struct CheckedLoad {
  Engine engine;
  const char* wait;
  int cpus;
};
inline std::string NameOf(const CheckedLoad& load) {
  return std::string(EngineName(load.engine)) + "_" + load.wait;
}

class PausingMachine : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  void SetUp() override { SKIP_WITHOUT_KVM(); }

  // With one disk.
  MachineConfig Config(const std::string& command_line, Engine engine = Engine::kAuto) const {
    MachineConfig config = GuestConfig(console_, command_line);
    config.disks = {{.backend = FileConfig{.path = image_.path(), .aio = engine}}};
    return config;
  }
  // A vCPU a queue.
  MachineConfig ConfigOf(const CheckedLoad& load, const std::string& runtime) const {
    const auto& [engine, wait, cpus] = load;
    MachineConfig config = Config("rw=randrw verify=1 size=1M qd=1,16 runtime=" + runtime +
                                      " wait=" + wait + " queues=" + std::to_string(cpus),
                                  engine);
    config.cpus = static_cast<uint32_t>(cpus);
    config.disks[0].queues = static_cast<uint16_t>(cpus);
    return config;
  }
  // An own device, "zeroes", on one I/O thread. `making` is called whenever it is made, and may
  // refuse that.
  static DeviceConfig Zeroes(
      const std::string& io_thread,
      std::function<absl::Status()> making = [] { return absl::OkStatus(); }) {
    return {.id = "zeroes",
            .io_threads = {io_thread},
            .create = [=]() -> absl::StatusOr<std::unique_ptr<Device>> {
              RINGSIDE_RETURN_IF_ERROR(making());
              return std::make_unique<ZeroDisk>();
            }};
  }
  static IoThread& ThreadOf(Machine& machine, const std::string& name) {
    return **machine.internals().io_threads().Find(name);
  }
  static std::unique_ptr<Machine> Make(const MachineConfig& config) {
    auto machine = Machine::Create(config);
    EXPECT_TRUE(machine.ok()) << machine.status();
    return *std::move(machine);
  }
  static std::unique_ptr<Machine> Begin(const MachineConfig& config) {
    auto machine = Make(config);
    EXPECT_TRUE(machine->Start().ok());
    return machine;
  }
  // A power-off after checks that found nothing wrong.
  void EndWell(Machine& machine) {
    const MachineEnd& end = machine.Wait();
    EXPECT_EQ(end.kind, EndKind::kPowerOff) << end.detail;
    EXPECT_THAT(console_.Output(), ::testing::Not(::testing::HasSubstr("FAIL")));
    EXPECT_THAT(console_.Output(), ::testing::HasSubstr("\"errors\":0,\"mismatches\":0"));
  }
  static bool IsOver(const Machine& machine) {
    return WaitForFd(machine.end_fd(), POLLIN, absl::ZeroDuration());
  }
  // Of all devices, since they were last made.
  static uint64_t Requests(Machine& machine) {
    const MachineStatistics statistics = machine.Statistics();
    uint64_t sum = 0;
    const auto add = [&sum](const auto& devices) {
      for (const auto& device : devices) {
        for (const QueueStatistics& queue : device.queues) sum += queue.requests();
      }
    };
    add(statistics.disks);
    add(statistics.devices);
    return sum;
  }
  static void ExpectProgress(Machine& machine) {
    const uint64_t before = Requests(machine);
    EXPECT_TRUE(SpinUntil([&] { return IsOver(machine) || Requests(machine) > before; }));
  }

  // Pauses a machine of which `io_thread` has all devices, and whose guest waits for one request.
  // Whether that is in the ring still, which is likely.
  [[nodiscard]] static bool PauseWithUnread(Machine& machine, IoThread& io_thread) {
    std::atomic<bool> told{false};
    uint64_t before;
    {
      const HeldThread held(io_thread);
      before = Requests(machine);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // it submits, and waits
      machine.BeginPause([&](const absl::Status&) { told = true; });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // and the thread is asked to rest
    }
    EXPECT_TRUE(SpinUntil([&] { return told.load(); }));
    return Requests(machine) == before;
  }

  const TempFile image_{16 * kMiB, "."};
  TestConsole console_;
};

class PausingMachineUnderLoad : public PausingMachine,
                                public ::testing::WithParamInterface<CheckedLoad> {
 protected:
  MachineConfig LoadConfig(const std::string& runtime) const {
    return ConfigOf(GetParam(), runtime);
  }
};

}  // namespace ringside::testing
