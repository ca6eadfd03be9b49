// Runs a program as a user would: with pipes, or on a pseudo-terminal.
#pragma once

#include <string>
#include <sys/types.h>
#include <termios.h>
#include <vector>

#include "base/fd.h"

namespace ringside {

struct ProcessResult {
  int status = -1;  // exit code, or 128 + signal
  std::string output;
  std::string errors;
};

// Standard input is /dev/null. Kills the program after 30 seconds.
ProcessResult RunProcess(const std::vector<std::string>& command);

// A program with three descriptors of the test's own as standard input, output and error output;
// -1: it has none.
class ChildProcess {
 public:
  ChildProcess(const std::vector<std::string>& command, int in, int out, int err);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int signal) const;
  // Waits for the end, at most ten seconds. Exit code, or 128 + signal.
  int Wait();
  // The names of its threads; none once it is over.
  std::vector<std::string> Threads() const;

 private:
  pid_t pid_ = -1;
};

// A program whose standard input, output and error output are a terminal of its own.
class TerminalProcess {
 public:
  explicit TerminalProcess(const std::vector<std::string>& command);
  ~TerminalProcess();

  void Type(std::string_view text) const;
  void Signal(int signal) const;
  pid_t pid() const { return pid_; }
  // Reads until the output holds `text`, at most ten seconds.
  bool WaitFor(std::string_view text);
  // Waits for the end, at most ten seconds. Exit code, or 128 + signal.
  int Wait();
  // Whether within ten seconds it is over but for threads that the kernel holds: a zombie, which
  // Wait waits for.
  bool WaitForDeath() const;
  // Whether within ten seconds the kernel holds a thread of it, uninterruptibly.
  bool WaitUntilTheKernelHoldsAThread() const;
  // The terminal's mode now, and before the program ran.
  termios mode() const;
  const termios& initial_mode() const { return initial_mode_; }
  const std::string& output() const { return output_; }

 private:
  bool ReadSome(int timeout_ms);

  UniqueFd master_;
  UniqueFd slave_;  // keeps the terminal, and so its mode, beyond the program's end
  termios initial_mode_ = {};
  pid_t pid_ = -1;
  std::string output_;
};

}  // namespace ringside
