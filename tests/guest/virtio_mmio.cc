// See virtio_mmio.h.

#include "virtio_mmio.h"

#include <array>
#include <charconv>
#include <utility>

#include "apic.h"
#include "console.h"
#include "interrupts.h"

namespace guest {
namespace {

constexpr uint32_t kMagicValue = 0x74726976;  // "virt"
constexpr uint32_t kModern = 2;

constexpr uint8_t kIoApicPins = 24;

// One vector and one handler for each device.
constexpr size_t kMaxLines = 8;
constexpr uint8_t kFirstVector = 0x41;

struct Line {
  uint64_t device = 0;
  volatile uint32_t count = 0;
};
constinit std::array<Line, kMaxLines> lines;
constinit size_t line_count = 0;

// The pin is edge-triggered: the acknowledgement must let the line fall before the next edge, and
// what the device does between the two shows in the rings.
template <size_t kLine>
__attribute__((interrupt)) void OnInterrupt(InterruptFrame*) {
  Line& line = lines[kLine];
  const auto status = Load<uint32_t>(line.device + mmio_register::kInterruptStatus);
  Store<uint32_t>(line.device + mmio_register::kInterruptAck, status);
  line.count = line.count + 1;
  EndOfInterrupt();
}

template <size_t... kLines>
constexpr auto Handlers(std::index_sequence<kLines...>) {
  return std::array<InterruptHandler, kMaxLines>{OnInterrupt<kLines>...};
}
constexpr auto kHandlers = Handlers(std::make_index_sequence<kMaxLines>());

// False if `text` is not a number that `number` can hold.
template <typename Number>
bool ParseNumber(std::string_view text, int base, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base);
  return error == std::errc() && rest == end;
}

}  // namespace

bool MmioDevice::Parse(std::string_view word) {
  const size_t at = word.find('@');
  if (at == std::string_view::npos) return false;
  word.remove_prefix(at + 1);
  const size_t colon = word.find(':');
  if (colon == std::string_view::npos || !word.starts_with("0x")) return false;
  const std::string_view irq(word.data() + colon + 1, word.size() - colon - 1);
  return ParseNumber({word.data() + 2, colon - 2}, 16, address) && IsMapped(address, kPageSize) &&
         ParseNumber(irq, 10, pin) && pin < kIoApicPins;
}

uint32_t MmioDevice::Id() const {
  if (Load<uint32_t>(address + mmio_register::kMagic) != kMagicValue) return 0;
  return Load<uint32_t>(address + mmio_register::kDeviceId);
}

bool VirtioMmio::Open(const MmioDevice& device) {
  EnableLocalApic();
  device_ = device;
  // QEMU's are legacy ones without -global virtio-mmio.force-legacy=false.
  if (!Expect("virtio-mmio: version", kModern, Get(mmio_register::kVersion))) return false;
  if (line_count == kMaxLines) return Expect("virtio-mmio: devices", kMaxLines, kMaxLines + 1);
  line_ = line_count++;
  lines[line_].device = device.address;
  return true;
}

uint64_t VirtioMmio::OfferedFeatures() const {
  uint64_t features = 0;
  for (const uint32_t half : {0u, 1u}) {
    Set(mmio_register::kDeviceFeaturesSelect, half);
    features |= uint64_t{Get(mmio_register::kDeviceFeatures)} << (32 * half);
  }
  return features;
}

void VirtioMmio::AcceptFeatures(uint64_t features) const {
  for (const uint32_t half : {0u, 1u}) {
    Set(mmio_register::kDriverFeaturesSelect, half);
    Set(mmio_register::kDriverFeatures, static_cast<uint32_t>(features >> (32 * half)));
  }
}

void VirtioMmio::EnableInterrupts() {
  RouteInterrupt(device_.pin, static_cast<uint8_t>(kFirstVector + line_), kHandlers[line_]);
}

uint16_t VirtioMmio::MaxQueueSize(uint16_t queue) const {
  Set(mmio_register::kQueueSelect, queue);
  return static_cast<uint16_t>(Get(mmio_register::kQueueSizeMax));
}

bool VirtioMmio::EnableQueue(uint16_t queue, const Virtqueue& rings, uint32_t) {
  using namespace mmio_register;
  Set(kQueueSelect, queue);
  Set(kQueueSize, rings.size());
  const auto write = [this](uint64_t at, uint64_t address) {
    Set(at, static_cast<uint32_t>(address));
    Set(at + 4, static_cast<uint32_t>(address >> 32));
  };
  write(kQueueDescriptors, rings.descriptor_area());
  write(kQueueDriver, rings.driver_area());
  write(kQueueDevice, rings.device_area());
  Set(kQueueReady, 1);
  return Expect("virtio: queue ready", 1, Get(kQueueReady));
}

NotifyRegister VirtioMmio::Notify(uint16_t queue) const {
  return {.address = device_.address + mmio_register::kQueueNotify,
          .value = queue,
          .width = NotifyRegister::Width::k32Bits};
}

const volatile uint32_t& VirtioMmio::InterruptCounter(uint16_t) const {
  return lines[line_].count;
}

}  // namespace guest
