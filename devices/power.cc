#include "devices/power.h"

#include <algorithm>

namespace ringside {

void SleepRegisters::Read(uint64_t, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});  // WAK_STS is never set: this machine does not resume
}

void SleepRegisters::Write(uint64_t offset, std::span<const std::byte> data) {
  // ACPI 6.5 table 4.22: SLP_TYP in bits 4:2, SLP_EN in bit 5.
  const auto value = std::to_integer<uint8_t>(data[0]);
  const bool enable = (value & 0x20) != 0;
  if (offset == 0 && enable && ((value >> 2) & 7) == kSleepTypeS5) power_off_();
}

void ResetPort::Read(uint64_t, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});
}

void ResetPort::Write(uint64_t, std::span<const std::byte> data) {
  if (std::to_integer<uint8_t>(data[0]) == kResetCommand) reset_();
}

}  // namespace ringside
