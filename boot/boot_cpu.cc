// Intel SDM volume 3: segment descriptors section 3.4.5, paging section 4.5, control registers
// section 2.5, MTRRs section 12.11.
#include "boot/boot_cpu.h"

#include <array>
#include <cstring>

#include "base/pages.h"
#include "base/status.h"
#include "devices/power.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr uint64_t kCr0ProtectionEnable = 1 << 0;
constexpr uint64_t kCr0ExtensionType = 1 << 4;
constexpr uint64_t kCr0NumericError = 1 << 5;
constexpr uint64_t kCr0Paging = uint64_t{1} << 31;
constexpr uint64_t kCr4PhysicalAddressExtension = 1 << 5;
constexpr uint64_t kEferLongModeEnable = 1 << 8;
constexpr uint64_t kEferLongModeActive = 1 << 10;
constexpr uint64_t kRflagsFixed = 1 << 1;  // interrupts off

constexpr uint64_t kPagePresentWritable = 0x3;
constexpr uint64_t kPageLarge = 1 << 7;
constexpr uint64_t kLargePageSize = 2 << 20;
constexpr uint64_t kEntriesPerTable = 512;
constexpr uint64_t kDirectories = 4;  // 1 GiB each

// boot.rst: __BOOT_CS is 0x10 and __BOOT_DS 0x18.
constexpr uint16_t kCodeSelector = 0x10;
constexpr uint16_t kDataSelector = 0x18;
constexpr uint16_t kTssSelector = 0x20;

kvm_segment FlatSegment(uint16_t selector, uint8_t type) {
  kvm_segment segment = {};
  segment.limit = 0xffffffff;
  segment.selector = selector;
  segment.type = type;
  segment.present = 1;
  segment.s = 1;  // code or data
  segment.g = 1;  // limit in pages
  return segment;
}

kvm_segment CodeSegment(BootProtocol protocol) {
  kvm_segment segment = FlatSegment(kCodeSelector, 0xb);  // execute, read, accessed
  segment.l = protocol == BootProtocol::kLinux;           // 64-bit code ...
  segment.db = protocol == BootProtocol::kPvh;            // ... or 32-bit
  return segment;
}

kvm_segment DataSegment() {
  kvm_segment segment = FlatSegment(kDataSelector, 0x3);  // read, write, accessed
  segment.db = 1;
  return segment;
}

// VM entry on Intel checks that TR holds a busy TSS (SDM section 27.3.1.2).
kvm_segment TaskSegment() {
  kvm_segment segment = {};
  segment.limit = 0x67;
  segment.selector = kTssSelector;
  segment.type = 0xb;
  segment.present = 1;
  return segment;
}

uint64_t Descriptor(const kvm_segment& segment) {
  const uint64_t limit = segment.g != 0 ? segment.limit >> 12 : segment.limit;
  const uint64_t access =
      segment.type | (segment.s << 4) | (segment.dpl << 5) | (segment.present << 7);
  const uint64_t flags = (segment.l << 1) | (segment.db << 2) | (segment.g << 3);
  return (limit & 0xffff) | ((segment.base & 0xffffff) << 16) | (access << 40) |
         ((limit >> 16 & 0xf) << 48) | (flags << 52) | ((segment.base >> 24 & 0xff) << 56);
}

}  // namespace

void WriteBootTables(const GuestMemory& memory) {
  // For Linux, whose protocol wants its segments to be loadable again; PVH guests bring their own.
  const std::array<uint64_t, 6> gdt = {0,
                                       0,
                                       Descriptor(CodeSegment(BootProtocol::kLinux)),
                                       Descriptor(DataSegment()),
                                       Descriptor(TaskSegment()),
                                       0 /* upper half of the TSS */};
  std::memcpy(memory.At(kBootGdt, sizeof gdt), gdt.data(), sizeof gdt);

  const auto table = [&memory](uint64_t number) {
    return reinterpret_cast<uint64_t*>(memory.At(kBootPageTables + number * kPageSize, kPageSize));
  };
  const auto link = [](uint64_t number) {
    return (kBootPageTables + number * kPageSize) | kPagePresentWritable;
  };
  uint64_t* pml4 = table(0);
  uint64_t* pdpt = table(1);
  pml4[0] = link(1);
  for (uint64_t directory = 0; directory < kDirectories; ++directory) {
    pdpt[directory] = link(2 + directory);
    uint64_t* entries = table(2 + directory);
    for (uint64_t i = 0; i < kEntriesPerTable; ++i) {
      entries[i] =
          ((directory * kEntriesPerTable + i) * kLargePageSize) | kPageLarge | kPagePresentWritable;
    }
  }
}

void WriteResetVector(const GuestMemory& memory) {
  // mov al, kResetCommand; out kResetPort, al; halt: hlt; jmp halt
  constexpr std::array<uint8_t, 7> kCode = {
      0xb0, ResetPort::kResetCommand, 0xe6, kResetPort, 0xf4, 0xeb, 0xfd};
  std::memcpy(memory.At(kResetVector, kCode.size()), kCode.data(), kCode.size());
}

absl::Status SetBootRegisters(KvmVcpu& vcpu, const BootEntry& entry) {
  RINGSIDE_ASSIGN_OR_RETURN(kvm_sregs special, vcpu.GetSpecialRegisters());
  const bool long_mode = entry.protocol == BootProtocol::kLinux;
  special.cs = CodeSegment(entry.protocol);
  special.ds = special.es = special.fs = special.gs = special.ss = DataSegment();
  special.tr = TaskSegment();
  special.gdt.base = kBootGdt;
  special.gdt.limit = 6 * sizeof(uint64_t) - 1;
  special.idt.base = 0;
  special.idt.limit = 0;
  special.cr0 = kCr0ProtectionEnable | kCr0ExtensionType;
  special.cr4 = 0;
  special.efer = 0;
  if (long_mode) {
    special.cr0 |= kCr0Paging | kCr0NumericError;
    special.cr3 = kBootPageTables;
    special.cr4 = kCr4PhysicalAddressExtension;
    special.efer = kEferLongModeEnable | kEferLongModeActive;
  }
  RINGSIDE_RETURN_IF_ERROR(vcpu.SetSpecialRegisters(special));

  kvm_regs registers = {};
  registers.rip = entry.address;
  registers.rflags = kRflagsFixed;
  registers.rsp = kBootStackTop;
  (long_mode ? registers.rsi : registers.rbx) = entry.info;
  return vcpu.SetRegisters(registers);
}

absl::StatusOr<int> SetBootMsrs(KvmVcpu& vcpu) {
  constexpr uint32_t kMtrrDefaultType = 0x2ff;
  constexpr uint64_t kMtrrEnable = 1 << 11;
  constexpr uint64_t kWriteBack = 6;
  constexpr uint32_t kMiscEnable = 0x1a0;
  constexpr uint64_t kFastStrings = 1 << 0;
  constexpr uint64_t kNoTraceStores = (1 << 11) | (1 << 12);  // BTS and PEBS, KVM's own default
  // Without a firmware that set them, memory would be uncached and string moves slow.
  const kvm_msr_entry msrs[] = {
      {.index = kMtrrDefaultType, .reserved = 0, .data = kMtrrEnable | kWriteBack},
      {.index = kMiscEnable, .reserved = 0, .data = kFastStrings | kNoTraceStores},
  };
  int refused = 0;
  for (const kvm_msr_entry& msr : msrs) {  // one a call: KVM stops at the first it refuses
    RINGSIDE_ASSIGN_OR_RETURN(const int taken, vcpu.SetMsrs({&msr, 1}));
    refused += 1 - taken;
  }
  return refused;
}

}  // namespace ringside
