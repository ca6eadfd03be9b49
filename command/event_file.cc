#include "command/event_file.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "base/status.h"
#include "command/trace_file.h"
#include "vmm/event_json.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

constexpr TraceFormat kFormat = {.option = "--events", .beginning = R"({"event":")"};

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Open(const std::string& path, Logger log) {
  RINGSIDE_ASSIGN_OR_RETURN(TraceFile file, TraceFile::Open(kFormat, path));
  return std::unique_ptr<EventFile>(
      new EventFile(path, log, std::make_shared<Output>(std::move(file).Take())));
}

EventFile::EventFile(std::string path, Logger log, std::shared_ptr<Output> output)
    : path_(std::move(path)),
      log_(log),
      output_(std::move(output)),
      writer_([output = output_](std::string_view lines) { output->WriteAll(lines); },
              // A line that says so would be no event.
              [output = output_](uint64_t dropped) {
                output->lost.fetch_add(dropped, std::memory_order_relaxed);
                return std::string();
              }) {}

void EventFile::Happened(const MachineEvent& event) {
  LogError();
  writer_.Write(JsonLine(EventJson(event)));
}

void EventFile::Finish() {
  const bool is_written = writer_.Flush();
  LogError();
  if (!is_written) {
    log_.Log(Severity::kWarning, "--events '%s' has not taken the last events: is it read?", path_);
  }
  if (const uint64_t lost = output_->lost.load(std::memory_order_relaxed); lost > 0) {
    log_.Log(Severity::kWarning, "--events '%s' lacks %d events", path_, lost);
  }
}

// Relaxed, here and where they are set: the error and the count are all there is to see.
void EventFile::LogError() {
  const int error = output_->error.load(std::memory_order_relaxed);
  if (error == 0 || std::exchange(is_error_logged_, true)) return;
  log_.Log(Severity::kWarning, "%s; events are lost until it can be written again",
           Message(ErrnoError(error, absl::StrFormat("--events cannot write '%s'", path_))));
}

void EventFile::Output::WriteAll(std::string_view lines) {
  if (!std::exchange(begun, true)) {
    fcntl(fd.get(), F_SETFL, 0);  // whoever reads a pipe may take time
    [[maybe_unused]] const int cut = ftruncate(fd.get(), 0);
  }
  while (!lines.empty()) {
    const size_t length = lines.find('\n') + 1;
    if (const int failed = WriteLine(lines.substr(0, length)); failed != 0) {
      int none = 0;
      error.compare_exchange_strong(none, failed, std::memory_order_relaxed);
      lost.fetch_add(1, std::memory_order_relaxed);
    }
    lines.remove_prefix(length);
  }
}

int EventFile::Output::WriteLine(std::string_view line) const {
  const off_t begin = lseek(fd.get(), 0, SEEK_CUR);
  while (!line.empty()) {
    const ssize_t written = write(fd.get(), line.data(), line.size());
    if (written >= 0) {
      line.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      const int reason = errno;
      if (begin >= 0 && ftruncate(fd.get(), begin) == 0) lseek(fd.get(), begin, SEEK_SET);
      return reason;
    }
  }
  return 0;
}

}  // namespace ringside
