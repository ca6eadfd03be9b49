// JSON as tables, for people at a terminal.
#pragma once

#include <string>

#include "vmm/option_type.h"

namespace ringside {

// A list of objects has a column for each member that is no list or object; an object a line for
// each member, what is inside it behind that. What a terminal would obey is replaced.
std::string JsonTable(const Json& json);

}  // namespace ringside
