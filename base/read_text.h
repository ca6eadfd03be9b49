// Texts that others have written, of which no more is read than they may have.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace ringside {

// From where the descriptor stands to the end, up to `most` bytes and one more: who gets that one
// knows that it is too long. Nothing, and errno, if it cannot be read.
std::optional<std::string> ReadText(int fd, size_t most);

}  // namespace ringside
