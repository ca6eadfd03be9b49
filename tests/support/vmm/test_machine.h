// Runs the bare-metal guest in a Machine, with its console in memory.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "base/fd.h"
#include "vmm/machine.h"

namespace ringside {

// Where /dev/kvm is missing these tests cannot run; where it is, they must.
#define SKIP_WITHOUT_KVM()                               \
  if (access("/dev/kvm", F_OK) != 0) {                   \
    GTEST_SKIP() << "there is no /dev/kvm on this host"; \
  }

// Collects console output in a memfd and can feed console input through a pipe.
class TestConsole {
 public:
  TestConsole();
  ConsoleConfig config() const;
  void Type(std::string_view text) const;
  // All output so far.
  std::string Output() const;
  // Waits until the output holds `text`, at most kWaitLimit: a host that is short of processors can
  // spend seconds in one KVM_SET_GSI_ROUTING.
  bool WaitFor(std::string_view text) const;

 private:
  UniqueFd output_;
  UniqueFd input_reader_;
  UniqueFd input_writer_;
};

// Where the test guest is.
std::string GuestElf();

// The test guest with this command line, on `console`.
MachineConfig GuestConfig(const TestConsole& console, const std::string& command_line);

// Its memory.
inline constexpr uint64_t kGuestHugePages = 32;  // of 2 MiB

struct GuestRun {
  MachineEnd end;
  std::string output;
};
// Runs a machine to its end. Fails the test and returns an empty run if it cannot be built.
GuestRun RunGuest(MachineConfig config, const TestConsole& console);

}  // namespace ringside
