#include "tests/support/vmm/test_machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "tests/support/wait.h"

namespace ringside {

TestConsole::TestConsole() : output_(memfd_create("console", MFD_CLOEXEC)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) abort();
  input_reader_ = UniqueFd(ends[0]);
  input_writer_ = UniqueFd(ends[1]);
}

ConsoleConfig TestConsole::config() const {
  ConsoleConfig config;
  config.input_fd = input_reader_.get();
  config.output_fd = output_.get();
  return config;
}

void TestConsole::Type(std::string_view text) const {
  ASSERT_EQ(write(input_writer_.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
}

std::string TestConsole::Output() const {
  std::string text(static_cast<size_t>(lseek(output_.get(), 0, SEEK_END)), '\0');
  const ssize_t got = pread(output_.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(got));
  return text;
}

bool TestConsole::WaitFor(std::string_view text) const {
  const absl::Time deadline = absl::Now() + testing::kWaitLimit;
  while (absl::Now() < deadline) {
    if (Output().find(text) != std::string::npos) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

std::string GuestElf() {
  return RINGSIDE_GUEST_ELF;
}

MachineConfig GuestConfig(const TestConsole& console, const std::string& command_line) {
  MachineConfig config;
  config.kernel = GuestElf();
  config.command_line = command_line;
  config.memory = 64 << 20;
  config.console = console.config();
  return config;
}

GuestRun RunGuest(MachineConfig config, const TestConsole& console) {
  absl::StatusOr<std::unique_ptr<Machine>> machine = Machine::Create(config);
  EXPECT_TRUE(machine.ok()) << machine.status();
  if (!machine.ok()) return {};
  EXPECT_TRUE((*machine)->Start().ok());
  const MachineEnd end = (*machine)->Wait();
  return {end, console.Output()};
}

}  // namespace ringside
