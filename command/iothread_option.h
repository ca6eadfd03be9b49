// The --iothread option: "id=NAME,poll=POLICY,max=TIME,grow=N,shrink=N,weight=N,price=X,cpu-max=N%,
// signal=WHEN,cpu=CPUS".
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "poll/io_threads.h"

namespace ringside {

absl::StatusOr<IoThreadConfig> ParseIoThread(const std::string& text);

}  // namespace ringside
