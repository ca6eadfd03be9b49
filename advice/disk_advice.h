// What is slow or unsafe about how a disk is set up on this host, in plain words and with the
// command that mends it: for `ringside doctor --disk`.
//
//   absl::StatusOr<DiskFacts> facts = ReadDiskFacts("root.img");
//   if (facts.ok()) {
//     for (const Finding& finding : DiskAdvice(*facts, {})) ...
//   }
//
// Threads: any; these are functions of facts alone. What the facts leave open is called unknown.
#pragma once

#include "advice/disk_facts.h"
#include "advice/finding.h"
#include "advice/placement_advice.h"

namespace ringside {

Findings DiskAdvice(const DiskFacts& facts, const Placement& placement);

// The device that does the disk's work. It has no address if none is known.
const PciFacts& DeviceOf(const DiskFacts& facts);

}  // namespace ringside
