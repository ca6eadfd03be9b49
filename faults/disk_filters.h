// The filters that a disk's configuration asks for, around its backend.
#pragma once

#include "ringside/config.h"

namespace ringside {

// What the disk is opened by: its backend as it is, if it asks for none.
BlockBackend WithFilters(const DiskConfig& disk);

}  // namespace ringside
