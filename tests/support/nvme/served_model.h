// nvme_model_server as a process of its own, for tests that have RINGSIDE_NVME_MODEL_SERVER: its
// socket and the image of its namespace are in a directory of the test's, and outlive it.
//
// Threads: one. Ownership: the process ends with the object at the latest.
#pragma once

#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/support/descriptors.h"
#include "tests/support/directories.h"

namespace ringside::testing {

class ServedModel {
 public:
  explicit ServedModel(std::vector<std::string> options = {}) : options_(std::move(options)) {
    Start();
  }
  ~ServedModel() {
    if (pid_ > 0) Kill();
  }
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  std::string socket() const { return directory_ / "socket"; }
  std::string image() const { return directory_ / "image"; }

  void Start() {
    std::vector<std::string> command = {RINGSIDE_NVME_MODEL_SERVER, socket(), "--image", image()};
    command.insert(command.end(), options_.begin(), options_.end());
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    Pipe output;
    const pid_t parent = getpid();
    pid_ = Must(fork(), "fork");
    if (pid_ == 0) {
      // A test that dies takes it along.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
      dup2(output.write_end.get(), STDOUT_FILENO);
      dup2(errors_.get(), STDERR_FILENO);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    EXPECT_EQ(ReadExactly(output.read_end.get(), 6), "ready\n");
  }
  void Kill() { EXPECT_EQ(End(SIGKILL), 128 + SIGKILL); }
  // In order; it must have had nothing to complain of.
  void Stop() {
    EXPECT_EQ(End(SIGTERM), 0);
    char text[4096] = {};
    EXPECT_GE(pread(errors_.get(), text, sizeof text - 1, 0), 0);
    EXPECT_STREQ(text, "");
  }
  // Stands still, and goes on.
  void Pause() { kill(pid_, SIGSTOP); }
  void Resume() { kill(pid_, SIGCONT); }

 private:
  // Exit code, or 128 + signal.
  int End(int signal) {
    kill(pid_, signal);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const std::vector<std::string> options_;
  const TempDirectory directory_;
  const UniqueFd errors_ = RegularFile();
  pid_t pid_ = -1;
};

}  // namespace ringside::testing
