// A 16550A serial port: the guest's console (COM1).
//
// The line has hardware flow control: input is held back until the guest raises RTS or enables the
// receive interrupt, so that what was typed while it boots is not lost when its driver clears the
// FIFO.
//
// Threads: registers from any vCPU thread, Receive and OutputDrained from an I/O thread; a mutex
// guards all state. The SerialPeer is called with that mutex held, so it may lock its own state but
// not call back, and its owner calls in with no lock held.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/fd.h"
#include "base/sync.h"
#include "devices/bus.h"

namespace ringside {

// The far end of the line.
class SerialPeer {
 public:
  virtual ~SerialPeer() = default;
  // Takes one byte from the guest and returns whether Serial::kFifoSize more would fit. After "no"
  // it calls Serial::OutputDrained once they do; what the guest sends meanwhile may be dropped.
  // Runs on a vCPU thread and does not block.
  virtual bool Send(std::byte data) = 0;
  // The same answer without a byte, and the same duty after "no".
  virtual bool HasRoom() = 0;
  // Receive has room again. Runs on a vCPU thread.
  virtual void InputDrained() = 0;
};

class Serial final : public IoHandler {
 public:
  static constexpr uint64_t kSize = 8;  // registers
  static constexpr size_t kFifoSize = 16;

  // Registers as the guest reads them, and what it is owed. Whether the transmitter is empty is not
  // here: that is whether the peer has room, and the next port asks its own.
  struct State {
    uint8_t interrupt_enable = 0;
    uint8_t fifo_control = 0;  // bit 0: the FIFO is enabled
    uint8_t line_control = 0;
    uint8_t modem_control = 0;
    uint8_t scratch = 0;
    uint16_t divisor = 1;
    uint8_t overrun = 0;  // 1: input was lost, and the guest has not read so yet
    // 1: the guest has not been told that the transmitter is empty, or is waiting until it is.
    uint8_t transmitter_interrupt = 0;
    std::vector<uint8_t> input;  // the receive FIFO, the oldest byte first
    bool operator==(const State&) const = default;
  };

  // `interrupt` is signalled at each rise of the port's interrupt line. Both outlive the port.
  Serial(const EventFd& interrupt, SerialPeer& peer) : interrupt_(interrupt), peer_(peer) {}

  void Read(uint64_t offset, std::span<std::byte> data) override;
  void Write(uint64_t offset, std::span<const std::byte> data) override;

  // Puts bytes into the receive FIFO and returns how many fitted. After fewer than all, the peer's
  // InputDrained tells when to go on.
  size_t Receive(std::span<const std::byte> data);
  void OutputDrained();

  State Save() const;
  // Restore into a port that is new, before its peer has input for it. It raises the interrupt if
  // the state has a cause for one: the controller may have had that edge before, and a second one
  // costs the guest a look, while one that is missing stops its driver for ever. InvalidArgument if
  // no port could have been saved so; the port is then as it was.
  static absl::Status Check(const State& state);
  absl::Status Restore(const State& state);

 private:
  uint8_t ReadRegister(uint64_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint8_t ReadData() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint8_t ReadModemStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint8_t InterruptIdentification() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteRegister(uint64_t offset, uint8_t value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Push(std::byte data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResumeInput() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateInterrupt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool divisor_latch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool listening() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool loopback() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t capacity() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EventFd& interrupt_;
  SerialPeer& peer_;

  mutable Mutex mutex_;
  std::array<std::byte, kFifoSize> input_ ABSL_GUARDED_BY(mutex_);
  size_t input_head_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t input_count_ ABSL_GUARDED_BY(mutex_) = 0;
  // Receive was refused bytes: tell the peer when there is room.
  bool input_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool overrun_ ABSL_GUARDED_BY(mutex_) = false;
  // The peer takes bytes (LSR.THRE), and the guest has not yet been told so by interrupt.
  bool transmitter_empty_ ABSL_GUARDED_BY(mutex_) = true;
  bool transmitter_interrupt_ ABSL_GUARDED_BY(mutex_) = false;
  bool line_high_ ABSL_GUARDED_BY(mutex_) = false;
  uint8_t interrupt_enable_ ABSL_GUARDED_BY(mutex_) = 0;
  uint8_t fifo_control_ ABSL_GUARDED_BY(mutex_) = 0;
  uint8_t line_control_ ABSL_GUARDED_BY(mutex_) = 0;
  uint8_t modem_control_ ABSL_GUARDED_BY(mutex_) = 0;
  uint8_t scratch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint16_t divisor_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace ringside
