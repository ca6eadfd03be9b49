// Every address of the machine, in one place.
//
//   0x0000'0500  GDT                    } boot data: read by the guest's first instructions,
//   0x0000'6000  PVH start info         } its to reuse afterwards
//   0x0000'7000  Linux zero page        }
//   0x0000'8000  boot stack (grows down from 0x9000)
//   0x0000'9000  boot page tables       }
//   0x0002'0000  command line           }
//   0x0009'fc00  end of conventional memory; from here to 1 MiB the memory map says reserved
//   0x000e'0000  ACPI tables, RSDP first
//   0x000e'e000  generation identifier;  0x000e'f000 VMClock: what tells a guest that it is a copy
//   0x000f'fff0  reset vector: what a jump to "the BIOS" finds
//   0x0010'0000  memory: kernel, then initrd at the top of low memory
//   0xc000'0000  end of low memory: the hole begins with the PCI window
//   0xe000'0000  PCI configuration (ECAM)
//   0xfec0'0000  IOAPIC;  0xfee0'0000 local APICs;  0xfffb'c000 KVM's own pages
//   0x1'0000'0000  the rest of memory
//
// I/O ports: 0x61 NMI status, 0x64 reset, 0x3f8 COM1, 0x505 pvpanic, 0x600 sleep control,
// 0xcf8 PCI configuration. IOAPIC pins: 4 COM1, 16 power button, 17 new generation.
#pragma once

#include <cstdint>

namespace ringside {

inline constexpr uint64_t kBootGdt = 0x500;
inline constexpr uint64_t kPvhStartInfo = 0x6000;
inline constexpr uint64_t kZeroPage = 0x7000;
inline constexpr uint64_t kBootStackTop = 0x9000;
inline constexpr uint64_t kBootPageTables = 0x9000;  // PML4, PDPT, four page directories
inline constexpr uint64_t kCommandLine = 0x20000;
inline constexpr uint64_t kConventionalEnd = 0x9fc00;
inline constexpr uint64_t kAcpiTables = 0xe0000;
// Not at its page's start: Linux looks for an option ROM's signature at every 2 KiB up to here.
inline constexpr uint64_t kGenerationId = 0xee010;
inline constexpr uint64_t kVmClock = 0xef000;           // a page of its own, as programs may map it
inline constexpr uint64_t kResetVector = 0xffff0;       // f000:fff0
inline constexpr uint64_t kHighMemoryStart = 0x100000;  // "high" as in 1 MiB

inline constexpr uint64_t kLowMemoryEnd = 0xc0000000;
inline constexpr uint64_t kPciWindow = 0xc0000000;
inline constexpr uint64_t kPciWindowSize = 0x20000000;
inline constexpr uint64_t kEcam = 0xe0000000;
inline constexpr uint64_t kEcamSize = 0x100000;  // one bus
inline constexpr uint64_t kIoApic = 0xfec00000;
inline constexpr uint64_t kLocalApic = 0xfee00000;
inline constexpr uint64_t kKvmIdentityMap = 0xfffbc000;  // 1 page, Intel only
inline constexpr uint64_t kKvmTss = 0xfffbd000;          // 3 pages, Intel only
inline constexpr uint64_t kMemoryAbove4G = 0x100000000;

inline constexpr uint16_t kNmiStatusPort = 0x61;
inline constexpr uint16_t kResetPort = 0x64;
inline constexpr uint16_t kCom1Port = 0x3f8;
inline constexpr uint16_t kPanicPort = 0x505;
inline constexpr uint16_t kSleepControlPort = 0x600;
inline constexpr uint16_t kPciConfigPort = 0xcf8;

inline constexpr uint32_t kCom1Irq = 4;
inline constexpr uint32_t kPowerButtonPin = 16;  // of the IOAPIC, beyond those of ISA
inline constexpr uint32_t kGenerationPin = 17;
inline constexpr uint32_t kIoApicPins = 24;

inline constexpr uint64_t kMinMemory = 0x200000;           // room for the boot data and a guest
inline constexpr uint64_t kMaxMemory = uint64_t{1} << 40;  // 1 TiB: below any host's address width

}  // namespace ringside
