// A console between descriptors of the test and a guest's driver.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>

#include "tests/support/devices/serial_driver.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/recording_log.h"
#include "vmm/console.h"

namespace ringside::testing {

class ConsoleTest : public ::testing::Test {
 protected:
  void Open(const ConsoleConfig& config) {
    console_.emplace(config, interrupt_, *io_thread_, Logger(&log_));
    guest_.emplace(console_->serial(), interrupt_);
  }
  void OpenInput(int fd) {
    Open({.input_fd = fd});
    console_->Start();
  }
  void OpenOutput(int fd) { Open({.output_fd = fd}); }

  // Text in which a lost, doubled or displaced byte shows.
  static std::string Text(size_t size) {
    std::string text;
    for (size_t line = 0; text.size() < size; ++line) text += std::to_string(line) + "\n";
    text.resize(size);
    return text;
  }

  std::unique_ptr<IoThread> io_thread_ = *IoThread::Start("test");
  EventFd interrupt_ = *EventFd::Create();
  RecordingLog log_;
  std::optional<Console> console_;
  std::optional<SerialDriver> guest_;
};

}  // namespace ringside::testing
