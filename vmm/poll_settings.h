// How the settings of an I/O thread's polling are written, for people and for programs: the keys
// that its kind looks at, and no others.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "poll/policy.h"

namespace ringside {

// As --iothread takes them: "poll=fixed,max=20us".
std::string PollText(const PollConfig& poll);
// {"kind":"fixed","max_ns":20000}
nlohmann::ordered_json PollJson(const PollConfig& poll);

}  // namespace ringside
