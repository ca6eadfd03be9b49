// Reads the two loaders' structures. PVH: Xen's public/arch-x86/hvm/start_info.h. Linux:
// Documentation/x86/boot.rst and Documentation/x86/zero-page.rst, whose offsets stand below.

#include "boot_info.h"

#include "console.h"
#include "machine.h"

namespace guest {
namespace {

struct HvmStartInfo {
  uint32_t magic;
  uint32_t version;
  uint32_t flags;
  uint32_t module_count;
  uint64_t module_list_address;
  uint64_t command_line_address;
  uint64_t rsdp_address;
  uint64_t memory_map_address;  // from version 1 on
  uint32_t memory_map_entries;
  uint32_t reserved;
};
static_assert(sizeof(HvmStartInfo) == 56);
constexpr uint32_t kHvmStartMagic = 0x336ec578;

struct HvmModule {
  uint64_t address;
  uint64_t size;
  uint64_t command_line_address;
  uint64_t reserved;
};
static_assert(sizeof(HvmModule) == 32);

struct HvmMemoryMapEntry {
  uint64_t address;
  uint64_t size;
  uint32_t type;
  uint32_t reserved;
};
static_assert(sizeof(HvmMemoryMapEntry) == 24);

// boot_params, by offset: fields of setup_header start at 0x1f1.
constexpr uint64_t kAcpiRsdpAddress = 0x070;
constexpr uint64_t kExtRamdiskImage = 0x0c0;
constexpr uint64_t kExtRamdiskSize = 0x0c4;
constexpr uint64_t kExtCommandLinePointer = 0x0c8;
constexpr uint64_t kE820Entries = 0x1e8;
constexpr uint64_t kHeaderMagic = 0x202;
constexpr uint64_t kRamdiskImage = 0x218;
constexpr uint64_t kRamdiskSize = 0x21c;
constexpr uint64_t kCommandLinePointer = 0x228;
constexpr uint64_t kE820Table = 0x2d0;
constexpr uint32_t kHeaderMagicValue = 0x53726448;  // "HdrS"

// An entry of the e820 table is packed: address, size, type in 20 bytes.
constexpr uint64_t kE820EntrySize = 20;

uint64_t Join(uint32_t high, uint32_t low) {
  return uint64_t{high} << 32 | low;
}

}  // namespace

void BootInfo::Read(BootProtocol protocol, uint64_t structure) {
  if (protocol == BootProtocol::kPvh) {
    ReadPvh(structure);
  } else {
    ReadLinux64(structure);
  }
}

void BootInfo::ReadPvh(uint64_t structure) {
  const auto& info = *reinterpret_cast<const HvmStartInfo*>(structure);
  if (!Expect("hvm_start_info magic", kHvmStartMagic, info.magic)) return;
  CopyCommandLine(info.command_line_address);
  rsdp_ = info.rsdp_address;
  if (info.module_count > 0) {
    const auto& module = *reinterpret_cast<const HvmModule*>(info.module_list_address);
    initrd_ = {module.address, module.size, 0};
  }
  if (!Expect("hvm_start_info has a memory map", 1, info.version >= 1)) return;
  const auto* entries = reinterpret_cast<const HvmMemoryMapEntry*>(info.memory_map_address);
  for (uint32_t i = 0; i < info.memory_map_entries; ++i) {
    AddMemoryRange(entries[i].address, entries[i].size, entries[i].type);
  }
}

void BootInfo::ReadLinux64(uint64_t structure) {
  const auto field32 = [structure](uint64_t offset) { return Load<uint32_t>(structure + offset); };
  if (!Expect("boot_params header magic", kHeaderMagicValue, field32(kHeaderMagic))) return;
  CopyCommandLine(Join(field32(kExtCommandLinePointer), field32(kCommandLinePointer)));
  rsdp_ = Load<uint64_t>(structure + kAcpiRsdpAddress);
  initrd_ = {Join(field32(kExtRamdiskImage), field32(kRamdiskImage)),
             Join(field32(kExtRamdiskSize), field32(kRamdiskSize)), 0};
  const int entries = Load<uint8_t>(structure + kE820Entries);
  for (int i = 0; i < entries; ++i) {
    const uint64_t entry = structure + kE820Table + i * kE820EntrySize;
    AddMemoryRange(Load<uint64_t>(entry), Load<uint64_t>(entry + 8), Load<uint32_t>(entry + 16));
  }
}

void BootInfo::CopyCommandLine(uint64_t address) {
  if (address == 0) return;
  const char* text = reinterpret_cast<const char*>(address);
  while (command_line_size_ < command_line_.size() && text[command_line_size_] != '\0') {
    command_line_[command_line_size_] = text[command_line_size_];
    ++command_line_size_;
  }
}

void BootInfo::AddMemoryRange(uint64_t start, uint64_t size, uint32_t type) {
  if (memory_map_size_ < memory_map_.size()) memory_map_[memory_map_size_++] = {start, size, type};
}

}  // namespace guest
