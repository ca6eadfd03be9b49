// What only an NVMe controller has to know of the specification; the rest is in nvme/nvme_spec.h.
//
// Source: NVM Express Base Specification 2.0.
#pragma once

#include "nvme/nvme_spec.h"

namespace ringside::nvme {

// Status, section 3.3.3.2.1, by type: generic, command specific, media and data integrity.
inline constexpr Status kSuccess = 0x000;
inline constexpr Status kInvalidField = 0x002;
inline constexpr Status kDataTransferError = 0x004;
inline constexpr Status kInternalError = 0x006;
inline constexpr Status kAbortRequested = 0x007;
inline constexpr Status kAbortedSqDeletion = 0x008;
inline constexpr Status kInvalidNamespace = 0x00b;
inline constexpr Status kPrpOffsetInvalid = 0x013;
inline constexpr Status kInvalidQueueId = 0x101;
inline constexpr Status kInvalidQueueSize = 0x102;
inline constexpr Status kInvalidVector = 0x108;
inline constexpr Status kWriteFault = 0x280;
inline constexpr Status kUnrecoveredRead = 0x281;

// Byte offsets in what Identify Controller gives, section 5.17.2.1.
namespace controller {
inline constexpr size_t kSerial = 4;     // 20 characters
inline constexpr size_t kModel = 24;     // 40 characters
inline constexpr size_t kFirmware = 64;  // 8 characters
inline constexpr size_t kAerl = 259;     // u8, less one
inline constexpr size_t kAcl = 258;      // u8, less one
inline constexpr size_t kNn = 516;       // u32
}  // namespace controller

}  // namespace ringside::nvme

namespace ringside::testing {

// Status codes, figures of section 3.3.3.2.1.
inline constexpr nvme::Status kIdConflict = 0x003;
inline constexpr nvme::Status kSequenceError = 0x00c;
inline constexpr nvme::Status kCompletionQueueInvalid = 0x100;
inline constexpr nvme::Status kEventLimitExceeded = 0x105;
inline constexpr nvme::Status kInvalidLogPage = 0x109;
inline constexpr nvme::Status kInvalidQueueDeletion = 0x10c;

inline constexpr uint32_t kAllNamespaces = 0xffffffff;

// Log pages, section 5.16.1.
inline constexpr uint32_t kLogErrors = 1;
inline constexpr uint32_t kLogHealth = 2;
inline constexpr uint32_t kLogChangedNamespaces = 4;

// Types of asynchronous events, section 5.2.
inline constexpr uint32_t kEventError = 0;
inline constexpr uint32_t kEventHealth = 1;
inline constexpr uint32_t kEventNotice = 2;

}  // namespace ringside::testing
