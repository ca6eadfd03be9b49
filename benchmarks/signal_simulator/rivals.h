// The policies that the product's is compared with; docs/signalling.md has where each comes from.
#pragma once

#include <memory>

#include "benchmarks/signal_simulator/signaller.h"

namespace ringside {

// Raises when what the held completions have waited for, at a price, has cost as much as an
// interrupt. The price falls with how many requests the guest has under way.
std::unique_ptr<Signaller> MakePriced(const SignallerSettings& settings);

// Holds as long as the guest has something at hand and gets on with it; a fixed silence ends that.
std::unique_ptr<Signaller> MakeBusy(const SignallerSettings& settings);

// Busy, and no longer than a cap that is chosen from a ladder by how fast the guest got on with it.
std::unique_ptr<Signaller> MakeLadder(const SignallerSettings& settings);

}  // namespace ringside
