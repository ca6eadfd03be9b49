// Lists of numbers inside an option, where commas are taken: "0-2+5".
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace ringside {

// Numbers up to 65535, in the order given. Nothing if it is no such list.
std::optional<std::vector<int>> ParseNumberList(std::string_view text);

}  // namespace ringside
