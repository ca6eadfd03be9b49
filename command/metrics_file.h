// `ringside run --metrics FILE`: the metrics of a machine in a file that is replaced each interval,
// for what reads such files, as node_exporter's textfile collector does.
//
// Threads: whoever runs the machine calls; a thread of its own writes, so that storage that hangs
// holds neither the machine nor, for long, its end.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "ringside/machine.h"

namespace ringside {

class MetricsFile {
 public:
  static constexpr absl::Duration kEndPatience = absl::Seconds(2);

  // InvalidArgument if it cannot be there, or is there and holds anything but metrics. What the log
  // leads to outlives the process's threads.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path,
                                                           absl::Duration interval, Logger log);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Writes at once, and each interval until End. The first error is logged; it goes on, as storage
  // may come back.
  absl::Status Begin(Machine& machine);
  // Writes once more, and waits for that, kEndPatience at most. Then nothing looks at the machine.
  void End();

 private:
  struct Shared;

  explicit MetricsFile(std::shared_ptr<Shared> shared);
  static void Loop(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;  // with the thread, which End may leave behind
  std::thread thread_;
};

}  // namespace ringside
