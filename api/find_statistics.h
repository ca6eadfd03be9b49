// What is known of a machine's part, by its id.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/nearest.h"
#include "base/status.h"

namespace ringside {

// NotFound names the nearest. `what`: "disk".
template <typename Statistics>
absl::StatusOr<Statistics> FindStatistics(const std::vector<Statistics>& all, const std::string& id,
                                          const char* what) {
  std::vector<std::string> ids;
  for (const Statistics& one : all) {
    if (one.id == id) return one;
    ids.push_back(one.id);
  }
  if (ids.empty()) {
    return absl::NotFoundError(absl::StrFormat("there is no %s '%s': there are none", what, id));
  }
  return absl::NotFoundError(
      absl::StrFormat("there is no %s '%s': did you mean '%s'?", what, id, Nearest(id, ids)));
}

}  // namespace ringside
