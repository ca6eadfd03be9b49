// What is slow or unsafe about block devices: how their queues are set, and what they stand on.
//
// Threads: any; these are functions of facts alone.
#pragma once

#include "advice/block_facts.h"
#include "advice/finding.h"

namespace ringside {

// Of the device and of all that it stands on. `is_disk`: the guest gets the device itself, not a
// file on it.
Findings BlockAdvice(const BlockFacts& facts, bool is_disk);

}  // namespace ringside
