// What NVM Express lays down: registers, queue entries, opcodes, status codes and the fields of
// data structures that Ringside uses. All little-endian, as the hosts it runs on.
//
// Spec: NVM Express Base Specification 2.0 (sections are its), NVM Command Set 1.0.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ringside::nvme {

static_assert(std::endian::native == std::endian::little);

// Registers in BAR 0, section 3.1.3.
inline constexpr uint64_t kCap = 0x00;  // 64 bits
inline constexpr uint64_t kVersion = 0x08;
inline constexpr uint64_t kCc = 0x14;
inline constexpr uint64_t kCsts = 0x1c;
inline constexpr uint64_t kAqa = 0x24;
inline constexpr uint64_t kAsq = 0x28;  // 64 bits
inline constexpr uint64_t kAcq = 0x30;  // 64 bits
inline constexpr uint64_t kDoorbells = 0x1000;

struct Capabilities {
  explicit Capabilities(uint64_t value) : cap(value) {}
  // As many as it takes, in a power of two (MQES, which is less one).
  uint16_t queue_entries(uint16_t most) const {
    return static_cast<uint16_t>(
        std::min<uint32_t>(most, std::bit_floor(static_cast<uint32_t>(cap & 0xffff) + 1)));
  }
  // Two entries at least, says the specification: one is always left free, so that a queue of one
  // holds nothing.
  bool has_usable_queues() const { return (cap & 0xffff) != 0; }
  uint32_t timeout_ms() const { return ((cap >> 24) & 0xff) * 500; }      // TO
  uint32_t doorbell_stride() const { return 4U << ((cap >> 32) & 0xf); }  // DSTRD, bytes
  bool has_nvm_command_set() const { return ((cap >> 37) & 1) != 0; }     // CSS
  unsigned min_page_shift() const { return 12 + ((cap >> 48) & 0xf); }    // MPSMIN
  uint64_t cap;
};

// Where in BAR 0 a queue's doorbell is; the pages of shadow doorbells are laid out alike, from 0.
inline uint64_t DoorbellOffset(uint16_t queue, bool completion, uint32_t stride) {
  return (uint64_t{2} * queue + (completion ? 1 : 0)) * stride;
}

// CC: EN, CSS = NVM, MPS = 4 KiB, AMS = round robin, entries of 64 and 16 bytes.
inline constexpr uint32_t kCcEnable = 1;
inline constexpr uint32_t kCcEntrySizes = (6U << 16) | (4U << 20);
inline constexpr uint32_t kCcShutdownNormal = 1U << 14;  // SHN
inline constexpr uint32_t kCcShutdownMask = 3U << 14;

inline constexpr uint32_t kCstsReady = 1;
inline constexpr uint32_t kCstsFatal = 2;               // CFS
inline constexpr uint32_t kCstsShutdownMask = 3U << 2;  // SHST
inline constexpr uint32_t kCstsShutdownComplete = 2U << 2;
inline constexpr uint32_t kCstsSubsystemReset = 1U << 4;  // NSSRO; cleared by writing 1
inline constexpr uint32_t kGone = 0xffffffff;             // any register of a device that is gone

inline constexpr uint32_t kPageSize = 4096;  // CC.MPS is 0

enum class AdminOp : uint8_t {
  kDeleteSq = 0x00,
  kCreateSq = 0x01,
  kGetLogPage = 0x02,
  kDeleteCq = 0x04,
  kCreateCq = 0x05,
  kIdentify = 0x06,
  kAbort = 0x08,
  kSetFeatures = 0x09,
  kGetFeatures = 0x0a,
  kAsyncEvent = 0x0c,
  kDoorbellBuffers = 0x7c,
};

enum class IoOp : uint8_t {
  kFlush = 0x00,
  kWrite = 0x01,
  kRead = 0x02,
  kWriteZeroes = 0x08,
  kDatasetManagement = 0x09,
};

// Submission queue entry, section 3.3.3.1.
struct Command {
  uint8_t opcode;
  uint8_t flags;  // PSDT = PRP, not fused
  uint16_t id;
  uint32_t nsid;
  uint32_t cdw2, cdw3;
  uint64_t metadata;
  uint64_t prp1, prp2;
  uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
static_assert(sizeof(Command) == 64);

// Completion queue entry, section 3.3.3.2.
struct Completion {
  uint32_t result;  // DW0
  uint32_t reserved;
  uint16_t sq_head;
  uint16_t sq_id;
  uint16_t id;
  uint16_t status;  // bit 0: phase
};
static_assert(sizeof(Completion) == 16);

// Its last dword, which the controller writes at once: what belongs together is read together.
struct CompletionEnd {
  uint16_t id;
  uint16_t status;
};
static_assert(offsetof(Completion, id) + sizeof(CompletionEnd) == sizeof(Completion));

// Completion::status without the phase: SC in bits 0 to 7, SCT in 8 to 10, DNR in bit 14.
using Status = uint16_t;
inline Status StatusOf(uint16_t field) {
  return static_cast<Status>(field >> 1);
}
inline constexpr Status kStatusCode = 0x7ff;  // SCT and SC: a code without its type means nothing
inline constexpr Status kDoNotRetry = 0x4000;

// Generic status, type 0.
inline constexpr Status kInvalidOpcode = 0x001;
inline constexpr Status kLbaOutOfRange = 0x080;
inline constexpr Status kCapacityExceeded = 0x081;

// Identify, section 5.17: CNS, and byte offsets in the 4096 that come.
inline constexpr uint32_t kIdentifyBytes = 4096;
inline constexpr uint32_t kCnsNamespace = 0;
inline constexpr uint32_t kCnsController = 1;
inline constexpr uint32_t kCnsActiveNamespaces = 2;
namespace controller {
inline constexpr size_t kMdts = 77;   // u8: 2^n pages of CAP.MPSMIN; 0: any
inline constexpr size_t kOacs = 256;  // u16
inline constexpr size_t kOncs = 520;  // u16
inline constexpr size_t kVwc = 525;   // u8
inline constexpr uint16_t kOacsDoorbellBuffers = 1 << 8;
inline constexpr uint16_t kOncsDatasetManagement = 1 << 2;
inline constexpr uint16_t kOncsWriteZeroes = 1 << 3;
inline constexpr uint8_t kVwcPresent = 1;
}  // namespace controller
namespace ns {
inline constexpr size_t kSize = 0;             // NSZE, u64 blocks
inline constexpr size_t kFeatures = 24;        // NSFEAT, u8
inline constexpr size_t kFormatInUse = 26;     // FLBAS, u8: bits 0 to 3, and 5 to 6 above them
inline constexpr size_t kBoundary = 46;        // NOIOB, u16 blocks
inline constexpr size_t kPreferredWrite = 64;  // NPWG, u16 blocks less one, if NSFEAT bit 4
inline constexpr size_t kOptimalWrite = 72;    // NOWS, likewise
inline constexpr uint8_t kHasPreferredSizes = 1 << 4;
inline constexpr size_t kFormat0 = 128;  // LBAF0, u32 each: MS, then LBADS in bits 16 to 23
}  // namespace ns

// A field of such a structure.
template <typename T>
T Field(std::span<const std::byte> data, size_t offset) {
  T value;
  std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

// Features, section 5.27.1.
inline constexpr uint32_t kFeatureWriteCache = 0x06;
inline constexpr uint32_t kFeatureQueueCount = 0x07;
inline constexpr uint32_t kFeatureAsyncEvents = 0x0b;

// Command Dword 11 and 12 of I/O commands.
inline constexpr uint32_t kForceUnitAccess = 1U << 30;  // CDW12 of write, write zeroes
inline constexpr uint32_t kDeallocate = 1U << 25;       // CDW12 of write zeroes
inline constexpr uint32_t kDsmDeallocate = 1U << 2;     // CDW11 of dataset management
inline constexpr uint32_t kMaxBlocks = 65536;           // NLB is 16 bits, less one

// Dataset management's range.
struct DsmRange {
  uint32_t attributes;
  uint32_t blocks;
  uint64_t start;
};
static_assert(sizeof(DsmRange) == 16);

// CDW11 when queues are created.
inline constexpr uint32_t kQueueContiguous = 1;
inline constexpr uint32_t kQueueInterrupts = 2;

}  // namespace ringside::nvme
