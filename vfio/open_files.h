// Who has a file open, as far as /proc tells.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>

namespace ringside {

// The first process found with `path` open. The search is bounded, and sees other users' processes
// only with their rights, so that none means little. `proc` is another one in tests.
std::optional<pid_t> ProcessWithOpen(const std::string& path,
                                     const std::filesystem::path& proc = "/proc");

}  // namespace ringside
