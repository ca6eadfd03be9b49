// What CPUID says, and whether the other processors start.

#include "apic.h"
#include "checks.h"
#include "console.h"
#include "deadline.h"
#include "interrupts.h"
#include "machine.h"
#include "processors.h"

namespace guest {
namespace {

CpuidResult SayCpuidLeaf(uint32_t leaf, uint32_t subleaf) {
  const CpuidResult r = Cpuid(leaf, subleaf);
  Say("cpuid ", Hex{leaf}, ".", Decimal{subleaf}, " ", Hex{r.eax, 8}, " ", Hex{r.ebx, 8}, " ",
      Hex{r.ecx, 8}, " ", Hex{r.edx, 8});
  return r;
}

// Deterministic cache parameters: one subleaf a cache, up to one of type 0 (SDM vol 2, CPUID).
void SayCacheLeaf() {
  constexpr uint32_t kMaxCaches = 16;
  for (uint32_t i = 0; i < kMaxCaches; ++i) {
    if ((SayCpuidLeaf(4, i).eax & 0x1f) == 0) return;
  }
}

constexpr uint8_t kCallVector = 0xe0;

volatile uint32_t calls;
volatile uint32_t called_apic_id;

__attribute__((interrupt)) void OnCall(InterruptFrame*) {
  called_apic_id = ApicId();
  EndOfInterrupt();
  calls = calls + 1;
}

void AwaitCalls(void* privilege_level) {
  *static_cast<unsigned*>(privilege_level) = CurrentPrivilegeLevel();
  SpinUntil([] { return calls >= 2; });
}

}  // namespace

void SayCpuid() {
  SayCpuidLeaf(1, 0);
  SayCacheLeaf();
  SayCpuidLeaf(7, 0);
  SayCpuidLeaf(0xa, 0);
  SayCpuidLeaf(0xb, 0);
  SayCpuidLeaf(0xb, 1);
  SayCpuidLeaf(0xd, 0);
  SayCpuidLeaf(0xd, 1);
  SayCpuidLeaf(0x80000001, 0);
  SayCpuidLeaf(0x80000008, 0);
  SayCpuidLeaf(0x8000001e, 0);
  SayCpuidLeaf(0x40000000, 0);  // the hypervisor's signature
}

// Every processor says where it is and waits for two interrupts: the second shows that the first
// left them switched on.
void CheckProcessors(uint64_t count) {
  if (!StartProcessors(static_cast<uint32_t>(count))) return;
  SetInterruptHandler(kCallVector, OnCall);
  bool ok = true;
  for (uint32_t i = 1; i < count; ++i) {
    calls = 0;
    unsigned privilege_level = 0;
    RunOnProcessor(i, AwaitCalls, &privilege_level);
    for (uint32_t call = 1; call <= 2; ++call) {
      SendInterrupt(i, kCallVector);
      SpinUntil([=] { return calls == call; });
    }
    ok &= WaitForProcessors() && Expect("smp: interrupts taken", 2, calls) &
                                     Expect("smp: privilege level", 3, privilege_level) &
                                     Expect("smp: APIC ID", i, called_apic_id);
  }
  if (ok) Say("smp ", Decimal{count}, " ok");
}

}  // namespace guest
