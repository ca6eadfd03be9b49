// What only an NVMe controller has to know of the specification; the rest is in block/nvme_spec.h.
//
// Source: NVM Express Base Specification 2.0.
#pragma once

#include "block/nvme_spec.h"

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
