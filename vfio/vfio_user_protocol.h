// The messages of vfio-user, by which one process offers another a device over a Unix socket: how
// they lie in memory, and how much of each we take. A message is a header, then what its command
// says, with descriptors beside it as SCM_RIGHTS. Regions and interrupts are described by the
// kernel's own structures: vfio_region_info with its capabilities, vfio_irq_info, vfio_irq_set.
//
// Threads: any; nothing but layouts. Units: bytes, in the order of the host.
// Spec: the vfio-user protocol 0.1, docs/interop/vfio-user.rst of QEMU, whose sections have the
// commands' names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringside {

enum class VfioUserCommand : uint16_t {
  kVersion = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kGetInfo = 4,
  kGetRegionInfo = 5,
  kGetRegionIoFds = 6,
  kGetIrqInfo = 7,
  kSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kDmaRead = 11,  // from the server, as the next
  kDmaWrite = 12,
  kReset = 13,
};

// In VfioUserHeader::flags.
inline constexpr uint32_t kVfioUserTypeMask = 0xf;
inline constexpr uint32_t kVfioUserTypeCommand = 0;
inline constexpr uint32_t kVfioUserTypeReply = 1;
inline constexpr uint32_t kVfioUserNoReply = 1 << 4;
inline constexpr uint32_t kVfioUserError = 1 << 5;

struct VfioUserHeader {
  uint16_t id;       // the sender's; its reply has the same
  uint16_t command;  // VfioUserCommand
  uint32_t size;     // with this header
  uint32_t flags;
  uint32_t error;  // errno, of a reply with kVfioUserError; may be 0 even then
};
static_assert(sizeof(VfioUserHeader) == 16);

// kVersion, both ways; behind it JSON that ends in a zero byte, or nothing.
struct VfioUserVersion {
  uint16_t major;
  uint16_t minor;
};
static_assert(sizeof(VfioUserVersion) == 4);
inline constexpr uint16_t kVfioUserMajor = 0;
inline constexpr uint16_t kVfioUserMinor = 1;

// kGetInfo, both ways; of the request only argsz counts. The flags are VFIO_DEVICE_FLAGS_*.
struct VfioUserDeviceInfo {
  uint32_t argsz;
  uint32_t flags;
  uint32_t regions;
  uint32_t irqs;
};
static_assert(sizeof(VfioUserDeviceInfo) == 16);

// kDmaMap; beside it the memory's descriptor, or none. The reply is a header alone.
struct VfioUserDmaMap {
  uint32_t argsz;
  uint32_t flags;
  uint64_t offset;  // in the descriptor
  uint64_t address;
  uint64_t size;
};
static_assert(sizeof(VfioUserDmaMap) == 32);
inline constexpr uint32_t kVfioUserDmaRead = 1 << 0;
inline constexpr uint32_t kVfioUserDmaWrite = 1 << 1;

// kDmaUnmap, both ways.
struct VfioUserDmaUnmap {
  uint32_t argsz;
  uint32_t flags;
  uint64_t address;
  uint64_t size;
};
static_assert(sizeof(VfioUserDmaUnmap) == 24);

// kRegionRead and kRegionWrite, both ways; behind it the data of a write and of what a read
// answers.
struct VfioUserRegionAccess {
  uint64_t offset;
  uint32_t region;
  uint32_t count;
};
static_assert(sizeof(VfioUserRegionAccess) == 16);

// kDmaRead and kDmaWrite, both ways, with data likewise.
struct VfioUserDmaAccess {
  uint64_t address;
  uint64_t count;
};
static_assert(sizeof(VfioUserDmaAccess) == 16);

// What holds for one that does not say otherwise ("VFIO_USER_VERSION", capabilities).
inline constexpr uint32_t kVfioUserDefaultMessageFds = 1;
inline constexpr uint64_t kVfioUserDefaultTransfer = 1 << 20;
inline constexpr uint64_t kVfioUserDefaultDmaMaps = 65535;
inline constexpr uint64_t kVfioUserDefaultPageSizes = 4096;

// What we take in one message. A data transfer is the largest; a larger message breaks off the
// connection, since what follows it could not be told from it.
inline constexpr uint32_t kVfioUserMaxMessageFds = 16;
inline constexpr uint32_t kVfioUserMaxTransfer = 1 << 20;
inline constexpr uint32_t kVfioUserMaxPayload = kVfioUserMaxTransfer + sizeof(VfioUserDmaAccess);

}  // namespace ringside
