// How long from exec to a running guest, and how much memory beyond the guest's: the ringside
// command, and QEMU's microvm machine where that is installed, with the same bare-metal guest.
//
//   startup_benchmark --benchmark_repetitions=5 --benchmark_min_time=0.05
//
// Times are of CLOCK_MONOTONIC, read in this process before fork: they include exec, dynamic
// linking and all. Compare within one run only.
#include <benchmark/benchmark.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/if_tun.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "net/tap.h"
#include "tests/support/net/own_network.h"

namespace ringside {
namespace {

// A program started with its output on pipes.
struct Child {
  pid_t pid;
  UniqueFd output;
  UniqueFd errors;
};

Child Spawn(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int output[2], errors[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    dup2(errors[1], STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(output[1]);
  close(errors[1]);
  return {pid, UniqueFd(output[0]), UniqueFd(errors[0])};
}

std::string ReadAll(const UniqueFd& fd) {
  std::string all;
  char chunk[4096];
  for (ssize_t got; (got = read(fd.get(), chunk, sizeof chunk)) > 0;) {
    all.append(chunk, static_cast<size_t>(got));
  }
  return all;
}

// Resident memory of a process less what it shares: guest memory is a shared memfd.
double ResidentMiB(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  double kib = 0;
  for (std::string key; status >> key;) {
    double value = 0;
    if ((key == "RssAnon:" || key == "RssFile:") && status >> value) kib += value;
  }
  return kib / 1024;
}

std::vector<std::string> RingsideCommand(const std::string& end) {
  return {RINGSIDE_COMMAND, "run",  "--kernel", RINGSIDE_GUEST_ELF, "--cmdline", end,
          "--memory",       "512M", "--timing"};
}

// The same with a tap.
std::vector<std::string> CommandWithTap(const std::string& end) {
  std::vector<std::string> command = RingsideCommand(end);
  command.insert(command.end(), {"--net", "tap=startup"});
  return command;
}

// The same with a control socket, which nobody uses.
std::vector<std::string> CommandWithSocket(const std::string& end) {
  std::vector<std::string> command = RingsideCommand(end);
  command.insert(command.end(), {"--api-sock", "startup_benchmark.sock"});
  return command;
}

void ExecToFirstKvmRun(benchmark::State& state, const std::vector<std::string>& command) {
  for (auto _ : state) {
    const int64_t start = MonotonicNs();
    const Child child = Spawn(command);
    ReadAll(child.output);
    const std::string timing = ReadAll(child.errors);
    waitpid(child.pid, nullptr, 0);
    const char* stamp = std::strstr(timing.c_str(), "monotonic ");
    const char* resident = std::strstr(timing.c_str(), "guest memory ");
    if (stamp == nullptr || resident == nullptr) {
      state.SkipWithError(timing.c_str());
      return;
    }
    state.SetIterationTime(static_cast<double>(std::atoll(stamp + 10) - start) / 1e9);
    state.counters["resident_MiB"] = std::atof(resident + 13);
  }
}

// With a tap that is there, or that is made; in a network name space of this thread's own.
void ExecToFirstKvmRunWithTap(benchmark::State& state, bool is_there) {
  const testing::OwnNetwork own_network;
  if (!own_network.allowed()) return state.SkipWithError(testing::OwnNetwork::kNotAllowed);
  if (is_there) {
    const auto tap = Tap::ByName("startup", 1, 0);
    if (!tap.ok() || ioctl((*tap)->channel(0).receive_fd(), TUNSETPERSIST, 1) != 0) {
      return state.SkipWithError("no tap can be made that stays");
    }
  }
  ExecToFirstKvmRun(state, CommandWithTap("end=poweroff"));
}

void ExecToFirstCharacter(benchmark::State& state, const std::vector<std::string>& command) {
  for (auto _ : state) {
    const int64_t start = MonotonicNs();
    const Child child = Spawn(command);
    char first;
    const bool spoke = read(child.output.get(), &first, 1) == 1;
    state.SetIterationTime(static_cast<double>(MonotonicNs() - start) / 1e9);
    state.counters["resident_MiB"] = ResidentMiB(child.pid);
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    if (!spoke) {
      state.SkipWithError(ReadAll(child.errors).c_str());
      return;
    }
  }
}

BENCHMARK_CAPTURE(ExecToFirstKvmRun, ringside, RingsideCommand("end=poweroff"))
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ExecToFirstKvmRun, ringside_with_socket, CommandWithSocket("end=poweroff"))
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ExecToFirstKvmRunWithTap, there, true)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ExecToFirstKvmRunWithTap, made, false)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ExecToFirstCharacter, ringside, RingsideCommand("end=spin"))
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
// Guest memory of QEMU comes from a shared memfd here, so that the two resident figures compare.
const std::vector<std::string> qemu_command = {"/usr/bin/qemu-system-x86_64",
                                               "-M",
                                               "microvm,acpi=off,memory-backend=m",
                                               "-object",
                                               "memory-backend-memfd,id=m,size=512M,share=on",
                                               "-enable-kvm",
                                               "-cpu",
                                               "host,-arch-capabilities",
                                               "-m",
                                               "512M",
                                               "-nodefaults",
                                               "-no-reboot",
                                               "-display",
                                               "none",
                                               "-serial",
                                               "stdio",
                                               "-kernel",
                                               RINGSIDE_GUEST_ELF,
                                               "-append",
                                               "end=spin"};

[[maybe_unused]] const bool qemu_registered = [] {
  if (access(qemu_command[0].c_str(), X_OK) != 0) {
    benchmark::AddCustomContext("qemu_microvm", qemu_command[0] + " is not installed");
    return false;
  }
  benchmark::RegisterBenchmark("ExecToFirstCharacter/qemu_microvm", ExecToFirstCharacter,
                               qemu_command)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace ringside
