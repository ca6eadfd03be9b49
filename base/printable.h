// Text of others (names of files, processes and devices, what a server says) as it may be shown: in
// one line, and with nothing in it that a terminal would obey.
#pragma once

#include <string>
#include <string_view>

namespace ringside {

// Control characters, bytes that are no UTF-8, and characters that turn the direction of writing
// become "\xNN" for each of their bytes; all else stays. What is printable already stays the same.
std::string Printable(std::string_view text);

}  // namespace ringside
