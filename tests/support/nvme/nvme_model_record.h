// What an NvmeModel tells its test.
//
// Threads: under the model's lock.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/support/nvme/nvme_model.h"

namespace ringside::testing {

struct NvmeModelRecord {
  template <typename... Args>
  void Violate(const absl::FormatSpec<Args...>& format, const Args&... args) {
    // A driver that goes on and on is to fail, not to fill the memory.
    if (violations.size() < 1000) violations.push_back(absl::StrFormat(format, args...));
  }

  std::vector<std::string> violations;
  std::vector<NvmeModelExecuted> log;
  NvmeModelCounters counters;
};

}  // namespace ringside::testing
