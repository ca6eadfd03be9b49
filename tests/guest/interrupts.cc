// See interrupts.h. Gate format: SDM 6.14.1.

#include "interrupts.h"

#include <utility>

#include "console.h"
#include "end.h"
#include "machine.h"

namespace guest {
namespace {

struct Gate {
  uint16_t offset_0_15;
  uint16_t selector;
  uint8_t interrupt_stack;
  uint8_t attributes;
  uint16_t offset_16_31;
  uint32_t offset_32_63;
  uint32_t reserved;
};
static_assert(sizeof(Gate) == 16);

// Selectors of boot.S.
constexpr uint16_t kKernelCode = 0x08;
constexpr uint16_t kUserCode = 0x18 | 3;

// Present, DPL 3, and the type.
constexpr uint8_t kInterruptGate = 0xee;
constexpr uint8_t kTrapGate = 0xef;

// RunInRing0 enters by int3, the one-byte breakpoint: where KVM interprets guest ring 0, `int n`
// from ring 3 ends in an invalid-opcode exception.
constexpr uint8_t kRing0Vector = 3;

constexpr int kExceptionCount = 32;

// Exceptions that push an error code (SDM table 6-1): 8, 10 to 14, 17, 21, 29, 30.
constexpr uint32_t kPushesErrorCode = 0x60227d00;

// A second exception, in the printing or in the ending, stops the guest where it is.
[[noreturn]] void FailByException(int vector, const InterruptFrame& frame, uint64_t error) {
  static bool failed = false;
  while (failed) Pause();
  failed = true;
  Say("FAIL exception: expected none got ", Decimal{static_cast<uint64_t>(vector)},
      " rip=", Hex{frame.rip}, " error=", Hex{error});
  End();
}

template <int kVector>
__attribute__((interrupt)) void OnException(InterruptFrame* frame) {
  FailByException(kVector, *frame, 0);
}

template <int kVector>
__attribute__((interrupt)) void OnExceptionWithError(InterruptFrame* frame, uint64_t error) {
  FailByException(kVector, *frame, error);
}

template <int kVector>
uint64_t ExceptionHandler() {
  if constexpr ((kPushesErrorCode >> kVector & 1) != 0) {
    return reinterpret_cast<uint64_t>(&OnExceptionWithError<kVector>);
  } else {
    return reinterpret_cast<uint64_t>(&OnException<kVector>);
  }
}

}  // namespace

// Loaded by boot.S.
extern "C" {
alignas(16) Gate idt[256];
void ring0_gate();
}

namespace {

void SetGate(int vector, uint64_t handler, uint16_t selector, uint8_t attributes) {
  idt[vector] = {.offset_0_15 = static_cast<uint16_t>(handler),
                 .selector = selector,
                 .interrupt_stack = 0,
                 .attributes = attributes,
                 .offset_16_31 = static_cast<uint16_t>(handler >> 16),
                 .offset_32_63 = static_cast<uint32_t>(handler >> 32),
                 .reserved = 0};
}

template <int... kVectors>
void SetExceptionGates(std::integer_sequence<int, kVectors...>) {
  (SetGate(kVectors, ExceptionHandler<kVectors>(), kUserCode, kTrapGate), ...);
}

}  // namespace

void InitInterrupts() {
  SetExceptionGates(std::make_integer_sequence<int, kExceptionCount>());
  SetGate(kRing0Vector, reinterpret_cast<uint64_t>(&ring0_gate), kKernelCode, kInterruptGate);
}

void SetInterruptHandler(uint8_t vector, InterruptHandler handler) {
  SetGate(vector, reinterpret_cast<uint64_t>(handler), kUserCode, kTrapGate);
}

void RunInRing0(void (*function)()) {
  asm volatile("int3"
               : "+D"(function)
               :
               : "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
}

}  // namespace guest
