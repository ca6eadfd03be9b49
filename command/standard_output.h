// What a command says on stdout.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace ringside {

// Once this returns it is written, not only buffered. Errors: as ErrnoError of base/status.h.
absl::Status WriteToStdout(std::string_view text);

}  // namespace ringside
