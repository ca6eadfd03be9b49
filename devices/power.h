// How a guest ends itself: the ACPI sleep control register (power off), and the keyboard
// controller's reset line at port 0x64, which is also what our FADT names as its reset register, so
// that guests with and without ACPI reset alike.
//
// Neither keeps anything, so a machine that is saved has nothing of theirs to save.
//
// Threads: registers are accessed from any vCPU thread; the callbacks run on that vCPU's thread.
#pragma once

#include <functional>

#include "devices/bus.h"

namespace ringside {

// SLEEP_CONTROL_REG at offset 0 and SLEEP_STATUS_REG at offset 1 (ACPI 6.5 section 4.8.3.7).
class SleepRegisters final : public IoHandler {
 public:
  static constexpr uint64_t kSize = 2;
  // The SLP_TYP value of \_S5 in boot/dsdt.asl.
  static constexpr uint8_t kSleepTypeS5 = 5;

  explicit SleepRegisters(std::function<void()> power_off) : power_off_(std::move(power_off)) {}
  void Read(uint64_t offset, std::span<std::byte> data) override;
  void Write(uint64_t offset, std::span<const std::byte> data) override;

 private:
  const std::function<void()> power_off_;
};

// Port 0x64: reads 0 (no input waiting, nothing to read), and the command 0xfe pulses the reset
// line.
class ResetPort final : public IoHandler {
 public:
  static constexpr uint64_t kSize = 1;
  static constexpr uint8_t kResetCommand = 0xfe;

  explicit ResetPort(std::function<void()> reset) : reset_(std::move(reset)) {}
  void Read(uint64_t offset, std::span<std::byte> data) override;
  void Write(uint64_t offset, std::span<const std::byte> data) override;

 private:
  const std::function<void()> reset_;
};

}  // namespace ringside
