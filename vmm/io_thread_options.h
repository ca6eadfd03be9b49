// The options of an I/O thread: `--iothread` and "iothreads".
#pragma once

#include "ringside/config.h"
#include "vmm/option_table.h"

namespace ringside {

const OptionTable<IoThreadConfig>& IoThreadOptions();

// `prefix`: of the keys in messages, "iothreads[0]." or "I/O thread 'a': ".
absl::Status CheckIoThread(const std::string& prefix, const IoThreadConfig& config);
// Of a thread by its id: "I/O thread 'a': ".
absl::Status CheckIoThread(const IoThreadConfig& config);
absl::Status CheckPoll(const std::string& io_thread, const PollConfig& poll);

}  // namespace ringside
