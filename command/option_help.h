// What options take, as text for a terminal and for docs/options.md.
#pragma once

#include <string>

namespace ringside {

// The keys of the flags that take some, for the end of `ringside run --help`.
std::string KeysHelp();
// All of docs/options.md.
std::string OptionsMarkdown();

}  // namespace ringside
