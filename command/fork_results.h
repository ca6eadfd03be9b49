// What became of forks (command/forks_command.h): lines of JSON that a worker process writes for
// the command, and what the command says of all of them.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "vmm/option_type.h"

namespace ringside {

struct ForkResult {
  uint32_t number = 0;  // from 1 on
  pid_t process = 0;
  // From before it was made; none: it did not get there.
  std::optional<int64_t> up_ns, ended_ns;  // its vCPUs run; it, or its command, was over
  int code = 0;                            // of its command, or what `ringside run` would exit with
  std::string error;                       // one line; empty: none
};

std::string LineOf(const ForkResult& result);  // with its end
// None: it is not such a line.
std::optional<ForkResult> ReadForkLine(std::string_view line);

class ForkResults {
 public:
  // Of forks 1 to `forks`.
  explicit ForkResults(uint32_t forks) : results_(forks) {}

  void Take(const ForkResult& result);
  // Those from `first` to `last` that are not over are lost with their process, for that reason.
  void Lost(uint32_t first, uint32_t last, pid_t process, const std::string& why);

  uint32_t up() const { return up_; }
  uint32_t over() const { return over_; }  // ended or failed
  // 0, or that of the first by number that has another.
  int exit_code() const;
  // Of those that failed one line each, and one for all beyond some.
  std::vector<std::string> Errors() const;
  // How many there were, and how long they took.
  std::string Summary(uint32_t processes) const;
  Json ToJson() const;
  std::string Table() const;  // a line for each

 private:
  std::vector<ForkResult> results_;
  uint32_t up_ = 0, over_ = 0;
};

}  // namespace ringside
