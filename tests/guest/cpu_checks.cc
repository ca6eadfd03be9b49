// What CPUID says, and whether the other processors start.

#include "apic.h"
#include "checks.h"
#include "console.h"
#include "machine.h"

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

}  // namespace

void SayCpuid() {
  SayCpuidLeaf(1, 0);
  SayCacheLeaf();
  SayCpuidLeaf(0xb, 0);
  SayCpuidLeaf(0xb, 1);
  SayCpuidLeaf(0x80000008, 0);
  SayCpuidLeaf(0x8000001e, 0);
  SayCpuidLeaf(0x40000000, 0);  // the hypervisor's signature
}

void CheckProcessors(uint64_t count) {
  EnableLocalApic();
  const uint32_t started = StartApplicationProcessors(static_cast<uint32_t>(count - 1));
  if (Expect("smp: processors running", count, uint64_t{started} + 1)) {
    Say("smp ", Decimal{count}, " ok");
  }
}

}  // namespace guest
