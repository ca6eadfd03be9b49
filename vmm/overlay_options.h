// The options of an overlay: where its file is, and what it stands on.
#pragma once

#include <vector>

#include "ringside/config.h"
#include "vmm/option_table.h"

namespace ringside {

// As it is by default, but for the paths.
DiskConfig MakeOverlay();
std::vector<Option<DiskConfig>> OverlayOptions();

}  // namespace ringside
