// Register names and bits: National Semiconductor PC16550D data sheet, section 8.
#include "devices/serial.h"

#include <algorithm>

#include "base/status.h"
#include "devices/state_check.h"

namespace ringside {
namespace {

enum Register : uint64_t {
  kData = 0,             // receiver buffer, transmitter holding; divisor low with DLAB
  kInterruptEnable = 1,  // divisor high with DLAB
  kInterruptId = 2,      // FIFO control when written
  kLineControl = 3,
  kModemControl = 4,
  kLineStatus = 5,
  kModemStatus = 6,
  kScratch = 7,
};

constexpr uint8_t kEnableReceive = 0x01;
constexpr uint8_t kEnableTransmit = 0x02;
constexpr uint8_t kEnableLineStatus = 0x04;
constexpr uint8_t kEnableBits = 0x0f;

constexpr uint8_t kIdNone = 0x01;
constexpr uint8_t kIdTransmitterEmpty = 0x02;
constexpr uint8_t kIdReceivedData = 0x04;
constexpr uint8_t kIdLineStatus = 0x06;
constexpr uint8_t kIdFifosEnabled = 0xc0;

constexpr uint8_t kFifoEnable = 0x01;
constexpr uint8_t kFifoClear = 0x02 | kFifoEnable;  // without that bit the others mean nothing
constexpr uint8_t kLineDivisorLatch = 0x80;
constexpr uint8_t kModemRts = 0x02;
constexpr uint8_t kModemLoopback = 0x10;
constexpr uint8_t kModemControlBits = 0x1f;

constexpr uint8_t kStatusDataReady = 0x01;
constexpr uint8_t kStatusOverrun = 0x02;
constexpr uint8_t kStatusTransmitterEmpty = 0x60;  // holding register and shift register

constexpr uint8_t kModemCts = 0x10;
constexpr uint8_t kModemDsr = 0x20;
constexpr uint8_t kModemRi = 0x40;
constexpr uint8_t kModemDcd = 0x80;

constexpr size_t Capacity(uint8_t fifo_control) {
  return (fifo_control & kFifoEnable) != 0 ? Serial::kFifoSize : 1;
}

}  // namespace

void Serial::Read(uint64_t offset, std::span<std::byte> data) {
  const MutexLock lock(mutex_);
  for (std::byte& byte : data) byte = std::byte{ReadRegister(offset++)};
  UpdateInterrupt();
}

void Serial::Write(uint64_t offset, std::span<const std::byte> data) {
  const MutexLock lock(mutex_);
  for (const std::byte byte : data) WriteRegister(offset++, std::to_integer<uint8_t>(byte));
  UpdateInterrupt();
}

size_t Serial::Receive(std::span<const std::byte> data) {
  const MutexLock lock(mutex_);
  size_t taken = 0;
  if (listening()) {
    while (taken < data.size() && input_count_ < capacity()) Push(data[taken++]);
  }
  input_wanted_ = taken < data.size();
  UpdateInterrupt();
  return taken;
}

void Serial::OutputDrained() {
  const MutexLock lock(mutex_);
  // Asked again under the lock: since the peer found room the guest may have sent more.
  if (transmitter_empty_ || !peer_.HasRoom()) return;
  transmitter_empty_ = true;
  transmitter_interrupt_ = true;
  UpdateInterrupt();
}

uint8_t Serial::ReadRegister(uint64_t offset) {
  switch (offset) {
    case kData:
      return divisor_latch() ? divisor_ & 0xff : ReadData();
    case kInterruptEnable:
      return divisor_latch() ? divisor_ >> 8 : interrupt_enable_;
    case kInterruptId: {
      const uint8_t id = InterruptIdentification();
      // Reading the identification acknowledges this cause and no other.
      if (id == kIdTransmitterEmpty) transmitter_interrupt_ = false;
      return id | ((fifo_control_ & kFifoEnable) != 0 ? kIdFifosEnabled : 0);
    }
    case kLineControl:
      return line_control_;
    case kModemControl:
      return modem_control_;
    case kLineStatus: {
      const uint8_t status = (input_count_ > 0 ? kStatusDataReady : 0) |
                             (overrun_ ? kStatusOverrun : 0) |
                             (transmitter_empty_ ? kStatusTransmitterEmpty : 0);
      overrun_ = false;
      return status;
    }
    case kModemStatus:
      return ReadModemStatus();
    default:
      return scratch_;
  }
}

uint8_t Serial::ReadData() {
  if (input_count_ == 0) return 0;
  const std::byte data = input_[input_head_];
  input_head_ = (input_head_ + 1) % kFifoSize;
  --input_count_;
  ResumeInput();
  return std::to_integer<uint8_t>(data);
}

uint8_t Serial::ReadModemStatus() const {
  if (!loopback()) return kModemCts | kModemDsr | kModemDcd;  // a peer is there
  return ((modem_control_ & kModemRts) != 0 ? kModemCts : 0) |
         ((modem_control_ & 0x01) != 0 ? kModemDsr : 0) |  // DTR
         ((modem_control_ & 0x04) != 0 ? kModemRi : 0) |   // OUT1
         ((modem_control_ & 0x08) != 0 ? kModemDcd : 0);   // OUT2
}

// In the order of priority of the data sheet's table III.
uint8_t Serial::InterruptIdentification() const {
  if ((interrupt_enable_ & kEnableLineStatus) != 0 && overrun_) return kIdLineStatus;
  if ((interrupt_enable_ & kEnableReceive) != 0 && input_count_ > 0) return kIdReceivedData;
  if ((interrupt_enable_ & kEnableTransmit) != 0 && transmitter_interrupt_) {
    return kIdTransmitterEmpty;
  }
  return kIdNone;
}

void Serial::WriteRegister(uint64_t offset, uint8_t value) {
  switch (offset) {
    case kData:
      if (divisor_latch()) {
        divisor_ = (divisor_ & 0xff00) | value;
        return;
      }
      // Sending acknowledges this cause too (table III), so being ready for more is an edge again.
      transmitter_interrupt_ = false;
      UpdateInterrupt();
      if (loopback()) {
        if (!Push(std::byte{value})) overrun_ = true;
        transmitter_interrupt_ = true;
      } else {
        transmitter_empty_ = peer_.Send(std::byte{value});
        transmitter_interrupt_ = transmitter_empty_;
      }
      return;
    case kInterruptEnable:
      if (divisor_latch()) {
        divisor_ = (divisor_ & 0x00ff) | (value << 8);
      } else {
        // Enabling it while the transmitter is empty raises it at once; drivers start sending so.
        if ((value & ~interrupt_enable_ & kEnableTransmit) != 0) {
          transmitter_interrupt_ = transmitter_empty_;
        }
        interrupt_enable_ = value & kEnableBits;
        ResumeInput();
      }
      return;
    case kInterruptId:  // FIFO control
      if (((value ^ fifo_control_) & kFifoEnable) != 0 || (value & kFifoClear) == kFifoClear) {
        input_count_ = 0;
      }
      fifo_control_ = value & kFifoEnable;
      ResumeInput();
      return;
    case kLineControl:
      line_control_ = value;
      return;
    case kModemControl:
      modem_control_ = value & kModemControlBits;
      ResumeInput();
      return;
    case kScratch:
      scratch_ = value;
      return;
    default:  // line and modem status are read-only
      return;
  }
}

bool Serial::Push(std::byte data) {
  if (input_count_ == capacity()) return false;
  input_[(input_head_ + input_count_) % kFifoSize] = data;
  ++input_count_;
  return true;
}

// Saved state.

Serial::State Serial::Save() const {
  const MutexLock lock(mutex_);
  State state = {.interrupt_enable = interrupt_enable_,
                 .fifo_control = fifo_control_,
                 .line_control = line_control_,
                 .modem_control = modem_control_,
                 .scratch = scratch_,
                 .divisor = divisor_,
                 .overrun = overrun_,
                 // What the peer still had is written or lost by the time that this is restored:
                 // who waits for the transmitter is told then.
                 .transmitter_interrupt = transmitter_interrupt_ || !transmitter_empty_,
                 .input = {}};
  for (size_t i = 0; i < input_count_; ++i) {
    state.input.push_back(std::to_integer<uint8_t>(input_[(input_head_ + i) % kFifoSize]));
  }
  return state;
}

absl::Status Serial::Check(const State& state) {
  RINGSIDE_RETURN_IF_ERROR(CheckBits("interrupt enable register of the serial port",
                                     state.interrupt_enable, kEnableBits));
  RINGSIDE_RETURN_IF_ERROR(
      CheckBits("FIFO control of the serial port", state.fifo_control, kFifoEnable));
  RINGSIDE_RETURN_IF_ERROR(CheckBits("modem control register of the serial port",
                                     state.modem_control, kModemControlBits));
  RINGSIDE_RETURN_IF_ERROR(CheckBits("overrun flag of the serial port", state.overrun, 1));
  RINGSIDE_RETURN_IF_ERROR(
      CheckBits("transmitter interrupt flag of the serial port", state.transmitter_interrupt, 1));
  const size_t capacity = Capacity(state.fifo_control);
  if (state.input.size() > capacity) {
    return BadInput("the saved input of the serial port has %d bytes; its FIFO has room for %d",
                    state.input.size(), capacity);
  }
  return absl::OkStatus();
}

absl::Status Serial::Restore(const State& state) {
  RINGSIDE_RETURN_IF_ERROR(Check(state));
  const MutexLock lock(mutex_);
  interrupt_enable_ = state.interrupt_enable;
  fifo_control_ = state.fifo_control;
  line_control_ = state.line_control;
  modem_control_ = state.modem_control;
  scratch_ = state.scratch;
  divisor_ = state.divisor;
  overrun_ = state.overrun != 0;
  input_head_ = 0;
  input_count_ = state.input.size();
  std::ranges::transform(state.input, input_.begin(), [](uint8_t data) { return std::byte{data}; });
  // After "no" OutputDrained tells the guest, as it tells any that waits.
  transmitter_empty_ = peer_.HasRoom();
  transmitter_interrupt_ = transmitter_empty_ && state.transmitter_interrupt != 0;
  line_high_ = false;
  UpdateInterrupt();
  return absl::OkStatus();
}

// Only when the FIFO is empty: a refill a FIFO, not one a byte.
void Serial::ResumeInput() {
  if (!input_wanted_ || !listening() || input_count_ > 0) return;
  input_wanted_ = false;
  peer_.InputDrained();
}

// The interrupt controller sees edges, so only a rise of the line is signalled.
void Serial::UpdateInterrupt() {
  const bool high = InterruptIdentification() != kIdNone;
  if (high && !line_high_) interrupt_.Signal();
  line_high_ = high;
}

bool Serial::divisor_latch() const {
  return (line_control_ & kLineDivisorLatch) != 0;
}
bool Serial::listening() const {
  return !loopback() &&
         ((modem_control_ & kModemRts) != 0 || (interrupt_enable_ & kEnableReceive) != 0);
}
bool Serial::loopback() const {
  return (modem_control_ & kModemLoopback) != 0;
}
size_t Serial::capacity() const {
  return Capacity(fifo_control_);
}

}  // namespace ringside
