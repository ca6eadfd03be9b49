// The options of a guest's vsock: `--vsock` and "vsock".
#pragma once

#include "ringside/config.h"
#include "vmm/option_table.h"

namespace ringside {

const OptionTable<VsockConfig>& VsockOptions();

}  // namespace ringside
