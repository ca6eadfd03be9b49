// The header of an overlay's file: made, sealed, chosen of its two slots, and checked. What a file
// says is treated as an enemy's.
//
// Threads: any.
// Errors: InvalidArgument or FailedPrecondition in one line, with `name`, which is the overlay's in
// messages: "overlay 'vm1.cow'".
#pragma once

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "overlay/overlay_format.h"

namespace ringside {

// Bits that this version knows of.
inline constexpr uint64_t kKnownIncompatible = 0;
inline constexpr uint64_t kKnownAutoclear = 0;

absl::StatusOr<OverlayId> NewOverlayId();
// "6f1c...": 32 digits.
std::string OverlayIdText(const OverlayId& id);

// Of an empty overlay, with ids of its own. `capacity` 0: what is usual for the size. The size and
// the capacity are multiples of 512, up to kMostOverlayBytes.
absl::StatusOr<OverlayHeader> NewOverlayHeader(uint64_t size, const BaseIdentity& base,
                                               const std::string& base_hint, uint64_t capacity = 0);

// Sets its checksum: last, before it is written.
void SealHeader(OverlayHeader& header);

struct ChosenHeader {
  OverlayHeader header;
  unsigned slot = 0;  // that it is in
};
// The slot that counts, with its content checked.
absl::StatusOr<ChosenHeader> ChooseHeader(const std::array<OverlayHeader, 2>& slots,
                                          const std::string& name);

// As far as can be told: of a block device that is its size.
bool IsSameBase(const BaseIdentity& a, const BaseIdentity& b);
// FailedPrecondition: the overlay was made on another base, or that has been changed. Says what
// differs.
absl::Status CheckBase(const OverlayHeader& header, const BaseIdentity& base,
                       const std::string& name);

}  // namespace ringside
