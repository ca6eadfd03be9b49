// libFuzzer: any bytes as the saved state of a serial port, or of a virtio-pci function on its host
// bridge with its configuration space, MSI-X table, transport and queues. What is refused has
// changed nothing; what is taken is said again; and whatever a driver does next can be saved and
// taken by another one. The fake device holds the transport to the contract of VirtioDevice.
#include "tests/support/devices/restorable_function.h"
#include "tests/support/devices/serial_port.h"

namespace ringside {
namespace {

using testing::RandomState;
using testing::RestorableFunction;

constexpr auto Check = &testing::FakeVirtioDevice::Check;

void TrySerial(RandomState& random) {
  static testing::SerialPort outside;  // one event for all
  Serial port(outside.interrupt, outside.peer);
  const Serial::State fresh = port.Save();
  Serial::State state = {.interrupt_enable = 3, .fifo_control = 1, .modem_control = 0x0b};
  random.Below(2) == 0 ? random.Fill(state, Serial::kFifoSize + 1) : random.Mutate(state);
  if (!port.Restore(state).ok()) return Check(port.Save() == fresh, "a refused port is as it was");
  Check(port.Save() == state, "a port that is restored is as it was saved");
  for (int i = 0; i < 8; ++i) {
    testing::WriteAs<uint8_t>(port, random.Below(Serial::kSize), random.Value<uint8_t>());
    testing::ReadAs<uint8_t>(port, random.Below(Serial::kSize));
  }
  Check(Serial::Check(port.Save()).ok(), "any port can be saved");
}

void TryFunction(RandomState& random) {
  static const RestorableFunction::Saved running = [] {
    RestorableFunction function;
    function.RunWithVectors();
    return function.Save();
  }();
  RestorableFunction function;
  const RestorableFunction::Saved fresh = function.Save();
  RestorableFunction::Saved state = random.Below(4) == 0 ? fresh : running;
  switch (random.Below(4)) {
    case 0:
      random.Fill(state.pci, 4);
      break;
    case 1:
      random.Mutate(state.host);
      break;
    default:
      random.Mutate(state.pci);
  }
  if (!function.Restore(state).ok()) {
    return Check(function.Save() == fresh, "a refused function is as it was");
  }
  Check(function.Save() == state, "a function that is restored is as it was saved");
  function.Use(random);
  RestorableFunction next;
  Check(next.Restore(function.Save()).ok(), "what a driver has done can be taken by another one");
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringside::testing::RandomState random(std::span(data, size));
  if (random.Below(4) == 0) {
    ringside::TrySerial(random);
  } else {
    ringside::TryFunction(random);
  }
  return 0;
}
