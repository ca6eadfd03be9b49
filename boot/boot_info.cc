#include "boot/boot_info.h"

#include <cstring>
#include <type_traits>

#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr uint32_t kMemory = 1;
constexpr uint32_t kReserved = 2;

// boot.rst: type_of_loader of a loader without a number assigned.
constexpr uint8_t kUndefinedLoader = 0xff;

// xen/include/public/arch-x86/hvm/start_info.h
constexpr uint32_t kStartInfoMagic = 0x336ec578;
constexpr uint32_t kStartInfoVersion = 1;  // the first with a memory map

struct HvmStartInfo {
  uint32_t magic;
  uint32_t version;
  uint32_t flags;
  uint32_t module_count;
  uint64_t modules;
  uint64_t command_line;
  uint64_t rsdp;
  uint64_t memory_map;
  uint32_t memory_map_entries;
  uint32_t reserved;
};
static_assert(sizeof(HvmStartInfo) == 56);

struct HvmModule {
  uint64_t address;
  uint64_t size;
  uint64_t command_line;
  uint64_t reserved;
};

struct HvmMemoryMapEntry {
  uint64_t address;
  uint64_t size;
  uint32_t type;
  uint32_t reserved;
};

// The boot data lies in low memory, which every machine has (kMinMemory).
template <typename T>
void Put(const GuestMemory& memory, uint64_t address, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(memory.At(address, sizeof value), &value, sizeof value);
}

}  // namespace

std::vector<MemoryMapEntry> MemoryMap(const GuestMemory& memory) {
  const uint64_t low_end = memory.regions().front().size;
  std::vector<MemoryMapEntry> map = {
      {0, kConventionalEnd, kMemory},
      {kConventionalEnd, kHighMemoryStart - kConventionalEnd, kReserved},
      {kHighMemoryStart, low_end - kHighMemoryStart, kMemory},
      // Reserved here as well as in the DSDT, so that Linux trusts MCFG before it reads the DSDT.
      {kEcam, kEcamSize, kReserved},
  };
  for (const MemoryRegion& region : memory.regions().subspan(1)) {
    map.push_back({region.guest_address, region.size, kMemory});
  }
  return map;
}

void WriteZeroPage(const BootInfo& info, const GuestMemory& memory) {
  boot_params params = {};
  params.hdr = info.setup;
  params.hdr.boot_flag = kBootFlag;
  params.hdr.header = kHeaderMagic;
  params.hdr.type_of_loader = kUndefinedLoader;
  params.hdr.cmd_line_ptr = kCommandLine;
  if (info.initrd.has_value()) {
    params.hdr.ramdisk_image = static_cast<uint32_t>(info.initrd->address);
    params.hdr.ramdisk_size = static_cast<uint32_t>(info.initrd->size);
  }
  params.acpi_rsdp_addr = info.acpi_rsdp;
  for (const MemoryMapEntry& entry : MemoryMap(memory)) {
    boot_e820_entry& slot = params.e820_table[params.e820_entries++];
    slot.addr = entry.address;
    slot.size = entry.size;
    slot.type = entry.type;
  }
  Put(memory, kZeroPage, params);
}

// Start info, then the memory map, then the module, in one page.
void WriteStartInfo(const BootInfo& info, const GuestMemory& memory) {
  uint64_t end = kPvhStartInfo + sizeof(HvmStartInfo);
  HvmStartInfo start = {.magic = kStartInfoMagic,
                        .version = kStartInfoVersion,
                        .flags = 0,
                        .module_count = 0,
                        .modules = 0,
                        .command_line = kCommandLine,
                        .rsdp = info.acpi_rsdp,
                        .memory_map = end,
                        .memory_map_entries = 0,
                        .reserved = 0};
  for (const MemoryMapEntry& entry : MemoryMap(memory)) {
    Put(memory, end, HvmMemoryMapEntry{entry.address, entry.size, entry.type, 0});
    end += sizeof(HvmMemoryMapEntry);
    ++start.memory_map_entries;
  }
  if (info.initrd.has_value()) {
    start.module_count = 1;
    start.modules = end;
    Put(memory, end, HvmModule{info.initrd->address, info.initrd->size, 0, 0});
  }
  Put(memory, kPvhStartInfo, start);
}

}  // namespace ringside
