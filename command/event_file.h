// The file of `ringside run --events`: a line of JSON for each event, as vmm/event_json.h has it.
// What an earlier run left there is replaced by the first.
//
// A thread of its own writes, so a reader who does not read, or a storage that hangs, holds up
// nothing but the command's last second. An event that could not be written whole is not there at
// all: the next one's `sequence` shows the gap, and the log says so once.
//
// Threads: Happened on one of the machine's, the rest on the command's. Ownership: as EventSink;
// what the log leads to outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/log.h"
#include "command/line_writer.h"
#include "ringside/event.h"

namespace ringside {

class EventFile final : public EventSink {
 public:
  // InvalidArgument as TraceFile::Open.
  static absl::StatusOr<std::unique_ptr<EventFile>> Open(const std::string& path, Logger log);

  const std::string& path() const { return path_; }
  void Happened(const MachineEvent& event) override;
  // After the last event: waits until all are written, for LineWriter::kPatience at most, and logs
  // how many could not be.
  void Finish();

 private:
  // The writer's, which may be left behind with it.
  struct Output {
    explicit Output(UniqueFd descriptor) : fd(std::move(descriptor)) {}
    void WriteAll(std::string_view lines);
    // Returns 0 or an errno; then none of the line is there, where that can be had.
    int WriteLine(std::string_view line) const;

    const UniqueFd fd;
    bool begun = false;
    std::atomic<int> error{0};      // of the first line that could not be written
    std::atomic<uint64_t> lost{0};  // lines
  };

  EventFile(std::string path, Logger log, std::shared_ptr<Output> output);
  void LogError();

  const std::string path_;
  const Logger log_;
  const std::shared_ptr<Output> output_;
  bool is_error_logged_ = false;
  LineWriter writer_;
};

}  // namespace ringside
