#include "kvm/msr_features.h"

#include <algorithm>
#include <array>

#include "kvm/cpu_features.h"

namespace ringside {
namespace {

using enum CpuidRegister;

// An MSR that several features bring has a row for each.
struct MsrFeature {
  uint32_t first;
  uint32_t last;
  CpuidWord word;
  uint32_t bits;  // any of them
};

constexpr CpuidWord k7Ebx = {0x7, 0, kEbx}, k7Ecx = {0x7, 0, kEcx}, k7Edx = {0x7, 0, kEdx};
constexpr CpuidWord kAmdSecurity = {0x80000008, 0, kEbx};

constexpr auto kRows = std::to_array<MsrFeature>({
    {0x48, 0x48, k7Edx, CpuidBits({26, 27, 31})},         // SPEC_CTRL: IBRS, STIBP, SSBD
    {0x48, 0x48, kAmdSecurity, CpuidBits({14, 15, 24})},  // the same
    {0x8c, 0x8f, k7Ecx, CpuidBits({30})},                 // SGX: launch keys
    {0xe1, 0xe1, k7Ecx, CpuidBits({5})},                  // UMWAIT_CONTROL
    {0x10a, 0x10a, k7Edx, CpuidBits({29})},               // ARCH_CAPABILITIES
    {0x122, 0x122, k7Edx, CpuidBits({29})},               // TSX_CTRL, which that announces
    {0x1c4, 0x1c5, {0xd, 1, kEax}, CpuidBits({4})},       // XFD, XFD_ERR
    {0x345, 0x345, {0x1, 0, kEcx}, CpuidBits({15})},      // PERF_CAPABILITIES: PDCM
    {0x480, 0x493, {0x1, 0, kEcx}, CpuidBits({5})},       // what VMX can
    {0x560, 0x587, k7Ebx, CpuidBits({25})},               // RTIT: processor trace
    {0x6a0, 0x6a8, k7Ecx, CpuidBits({7})},                // CET: shadow stacks
    {0x6a0, 0x6a8, k7Edx, CpuidBits({20})},               // CET: indirect branches
    {0xd90, 0xd90, k7Ebx, CpuidBits({14})},               // BNDCFGS: MPX
    {0xda0, 0xda0, {0xd, 1, kEax}, CpuidBits({3})},       // XSS: XSAVES
    {0xc0000103, 0xc0000103, {0x80000001, 0, kEdx}, CpuidBits({27})},  // TSC_AUX: RDTSCP
    {0xc0000103, 0xc0000103, k7Ecx, CpuidBits({22})},                  // RDPID
    {0xc0000104, 0xc0000104, {0x8000000a, 0, kEdx}, CpuidBits({4})},   // SVM's TSC ratio
    {0xc001011f, 0xc001011f, kAmdSecurity, CpuidBits({25})},           // VIRT_SPEC_CTRL
});

}  // namespace

bool GuestHasMsr(std::span<const kvm_cpuid_entry2> cpuid, uint32_t msr) {
  bool is_known = false;
  for (const MsrFeature& row : kRows) {
    if (msr < row.first || msr > row.last) continue;
    if ((CpuidValue(cpuid, row.word) & row.bits) != 0) return true;
    is_known = true;
  }
  return !is_known;
}

}  // namespace ringside
