// The names of a machine's devices: those that its configuration gives, or "disk0", "net0" and so on by
// their places in it.
//
// Threads: none.
#pragma once

#include <cstddef>
#include <string>

#include "ringside/config.h"

namespace ringside {

// Of the entropy device, which each machine has.
inline constexpr char kRngId[] = "rng";

std::string DiskId(const DiskConfig& config, size_t index);
std::string NetworkId(const NetConfig& config, size_t index);
std::string VsockId(const VsockConfig& config);
std::string AssignedId(const AssignedConfig& config, size_t index);

}  // namespace ringside
