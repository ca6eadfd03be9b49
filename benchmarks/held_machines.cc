#include "benchmarks/held_machines.h"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

absl::Status MakePipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "cannot make a pipe");
  read_end = UniqueFd(ends[0]);
  write_end = UniqueFd(ends[1]);
  return absl::OkStatus();
}

absl::Status AwaitByte(const UniqueFd& fd) {
  if (testing::WaitForFd(fd.get(), POLLIN, kPatience)) return absl::OkStatus();
  return absl::DeadlineExceededError("the guest does not speak");
}

absl::StatusOr<TalkingMachine> Begin(MachineConfig config) {
  TalkingMachine talking;
  RINGSIDE_RETURN_IF_ERROR(MakePipe(talking.console_input, talking.to_guest));
  RINGSIDE_RETURN_IF_ERROR(MakePipe(talking.from_guest, talking.console_output));
  config.console.input_fd = talking.console_input.get();
  config.console.output_fd = talking.console_output.get();
  RINGSIDE_ASSIGN_OR_RETURN(talking.machine, Machine::Create(config));
  RINGSIDE_RETURN_IF_ERROR(talking.machine->Start());
  return talking;
}

// Returns the line that it answers with.
absl::StatusOr<std::string> Ask(const TalkingMachine& talking, const std::string& line) {
  const std::string text = line + '\n';
  if (write(talking.to_guest.get(), text.data(), text.size()) < 0) {
    return ErrnoError(errno, "cannot tell the guest");
  }
  std::string answer;
  while (!answer.ends_with('\n')) {
    RINGSIDE_RETURN_IF_ERROR(AwaitByte(talking.from_guest));
    char bytes[256];
    const ssize_t got = read(talking.from_guest.get(), bytes, sizeof bytes);
    if (got <= 0) return ErrnoError(errno, "the guest's console is closed");
    answer.append(bytes, static_cast<size_t>(got));
  }
  return answer;
}

void End(Machine& machine) {
  machine.Stop();
  machine.Wait();
}

}  // namespace

absl::StatusOr<TouchTimes> TouchPages(MachineConfig config, bool records_working_set) {
  const int64_t begin = MonotonicNs();
  RINGSIDE_ASSIGN_OR_RETURN(const TalkingMachine talking, Begin(std::move(config)));
  RINGSIDE_ASSIGN_OR_RETURN(const std::string answer, Ask(talking, ""));
  TouchTimes times = {.all_ns = MonotonicNs() - begin};
  if (std::sscanf(answer.c_str(), "guest: touched in %ld ns", &times.guest_ns) != 1) {
    return absl::InternalError("the guest says: " + answer);
  }
  if (records_working_set) RINGSIDE_RETURN_IF_ERROR(talking.machine->RecordWorkingSet());
  End(*talking.machine);
  return times;
}

absl::StatusOr<int64_t> HeldMachines::AddBare() {
  last_is_bare_ = true;
  const int64_t begin = MonotonicNs();
  RINGSIDE_ASSIGN_OR_RETURN(auto machine, GoOnBare(from_->parts().snapshot));
  const int64_t ns = MonotonicNs() - begin;
  bare_.push_back(std::move(machine));
  return ns;
}

absl::StatusOr<int64_t> HeldMachines::AddFork() {
  return Add({.from = from_});
}

absl::StatusOr<int64_t> HeldMachines::AddPooledFork() {
  if (pool_ == nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(pool_, IoPool::Create({}));
  }
  return Add({.from = from_, .io_pool = pool_});
}

absl::StatusOr<int64_t> HeldMachines::Add(MachineConfig config) {
  last_is_bare_ = false;
  const int64_t begin = MonotonicNs();
  Fork fork;
  RINGSIDE_ASSIGN_OR_RETURN(fork.talking, Begin(std::move(config)));
  RINGSIDE_RETURN_IF_ERROR(AwaitByte(fork.talking.from_guest));
  const int64_t ns = MonotonicNs() - begin;
  RINGSIDE_RETURN_IF_ERROR(fork.talking.machine->Pause(kPatience));
  forks_.push_back(std::move(fork));
  return ns;
}

absl::Status HeldMachines::AddThatKeeps(uint64_t number) {
  last_is_bare_ = false;
  MachineConfig config;
  config.from = from_;
  Fork fork;
  RINGSIDE_ASSIGN_OR_RETURN(fork.talking, Begin(std::move(config)));
  fork.keeps = true;
  fork.number = number;
  RINGSIDE_RETURN_IF_ERROR(Ask(fork.talking, std::to_string(number)).status());
  RINGSIDE_RETURN_IF_ERROR(fork.talking.machine->Pause(kPatience));
  forks_.push_back(std::move(fork));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HeldMachines::Recall() {
  uint64_t wrong = 0;
  for (Fork& fork : forks_) {
    if (!fork.keeps) continue;
    fork.talking.machine->Resume();
    RINGSIDE_ASSIGN_OR_RETURN(const std::string answer, Ask(fork.talking, ""));
    if (answer != absl::StrFormat("guest: keeps %d\n", fork.number)) ++wrong;
    RINGSIDE_RETURN_IF_ERROR(fork.talking.machine->Pause(kPatience));
  }
  return wrong;
}

int64_t HeldMachines::Drop() {
  const int64_t begin = MonotonicNs();
  for (const Fork& fork : forks_) fork.talking.machine->Stop();
  for (const Fork& fork : forks_) fork.talking.machine->Wait();
  forks_.clear();
  bare_.clear();
  return MonotonicNs() - begin;
}

void HeldMachines::DropLast() {
  if (last_is_bare_) {
    bare_.pop_back();
  } else {
    End(*forks_.back().talking.machine);
    forks_.pop_back();
  }
}

}  // namespace ringside
