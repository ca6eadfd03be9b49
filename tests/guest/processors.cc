// See processors.h. The sequence of interrupts that starts a processor is that of SDM 8.4.4.1.

#include "processors.h"

#include <array>

#include "allocator.h"
#include "apic.h"
#include "console.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint64_t kTrampoline = 0x10000;
constexpr uint64_t kStackSize = 16384;
constexpr uint16_t kFirstTask = 0x20;  // selector of processor 0's task descriptor (boot.S)

// Time by the time stamp counter, taken to run at 1 to 5 GHz: the waits only have to be long
// enough.
constexpr uint64_t kTenMilliseconds = 50'000'000;
constexpr uint64_t kSomeSeconds = 15'000'000'000;

struct alignas(64) Processor {
  // Set by processor 0, and by the processor itself once it has returned from it: null.
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
};
constinit std::array<Processor, kMaxProcessors> processors;
constinit uint32_t running = 1;  // written by the processor that starts

// What boot.S loads a processor's registers from, once it is in long mode. There is one, so
// processors are started one at a time.
struct StartFrame {
  uint64_t rip, cs, rflags, rsp, ss;  // as iretq pops them
  uint64_t argument;
  uint64_t task;
};

}  // namespace

extern "C" {
extern const char ap_trampoline[], ap_trampoline_end[];  // real-mode code
extern StartFrame ap_start_frame;

[[noreturn]] void ProcessorMain(uint32_t number) {
  Processor& self = processors[number];
  EnableLocalApic();
  __atomic_store_n(&running, number + 1, __ATOMIC_RELEASE);
  for (;;) {
    const auto function = __atomic_load_n(&self.function, __ATOMIC_ACQUIRE);
    if (function == nullptr) {
      Pause();
      continue;
    }
    function(self.argument);
    __atomic_store_n(&self.function, nullptr, __ATOMIC_RELEASE);
  }
}
}

namespace {

void CopyTrampoline() {
  for (const char* from = ap_trampoline; from < ap_trampoline_end; ++from) {
    Store<char>(kTrampoline + static_cast<uint64_t>(from - ap_trampoline), *from);
  }
}

bool StartProcessor(uint32_t number) {
  // Aligned as it would be just after a call.
  ap_start_frame.rsp = AllocatePages(kStackSize) + kStackSize - 8;
  ap_start_frame.argument = number;
  ap_start_frame.task = kFirstTask + 16 * number;
  const auto runs = [number] { return RunningProcessors() > number; };
  SendStartUp(number, kTrampoline);
  // The second one is for a processor that missed the first.
  if (SpinUntil(runs, kTenMilliseconds)) return true;
  SendStartUp(number, kTrampoline);
  return SpinUntil(runs, kSomeSeconds) || Expect("smp: processor comes", number, 0);
}

}  // namespace

bool StartProcessors(uint32_t count) {
  const uint32_t first = RunningProcessors();
  if (count > kMaxProcessors) return Expect("smp: processors at most", kMaxProcessors, count);
  if (count <= first) return true;
  EnableLocalApic();
  CopyTrampoline();
  for (uint32_t i = first; i < count; ++i) SendInit(i);
  SpinUntil([] { return false; }, kTenMilliseconds);
  for (uint32_t i = first; i < count; ++i) {
    if (!StartProcessor(i)) return false;
  }
  return true;
}

uint32_t RunningProcessors() {
  return __atomic_load_n(&running, __ATOMIC_ACQUIRE);
}

void RunOnProcessor(uint32_t processor, void (*function)(void*), void* argument) {
  processors[processor].argument = argument;
  __atomic_store_n(&processors[processor].function, function, __ATOMIC_RELEASE);
}

bool WaitForProcessors(uint64_t ticks) {
  for (uint32_t i = 1; i < RunningProcessors(); ++i) {
    const auto done = [i] {
      return __atomic_load_n(&processors[i].function, __ATOMIC_ACQUIRE) == nullptr;
    };
    if (!SpinUntil(done, ticks)) return Expect("smp: processor is done", i, 0);
  }
  return true;
}

}  // namespace guest
