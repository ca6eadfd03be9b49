// The options of a network: `--net` and "networks".
#pragma once

#include <string>

#include "ringside/config.h"
#include "vmm/option_table.h"

namespace ringside {

const OptionTable<NetConfig>& NetOptions();

// The fields of `--net`'s text, in front of which "user" may stand.
absl::StatusOr<Json> ParseNetText(const std::string& text);
absl::Status ReadNet(const OptionPlace& place, const Json& fields, NetConfig& network);
// Each option's range, and that they go together.
absl::Status CheckNet(const OptionPlace& place, const NetConfig& network);

}  // namespace ringside
