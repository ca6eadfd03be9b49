// Options of the form "key=value,key=value", as the fields of a JSON object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringside {

// A separator that is written twice stands for itself.
std::vector<std::string> SplitAtSingle(const std::string& text, char separator);
// Every value is text, and a comma in one is written twice. InvalidArgument, in one line that
// begins with `option`, for a part that is not key=value, and for a key that is given twice. `hint`
// is what follows such a part: "a file is given as path=" comes before it once more.
absl::StatusOr<nlohmann::ordered_json> ParseKeyValues(const std::string& option,
                                                      const std::string& text,
                                                      const std::string& hint);

}  // namespace ringside
