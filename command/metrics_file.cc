#include "command/metrics_file.h"

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/bad_input_errno.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/thread.h"
#include "command/line_writer.h"
#include "vmm/metrics.h"

namespace ringside {
namespace {

constexpr std::string_view kBeginning = "# HELP ringside_";

bool HoldsMetrics(const std::string& path) {
  std::string bytes(kBeginning.size(), '\0');
  std::ifstream(path).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes == kBeginning;
}

// Whoever reads the file finds the old text or the new one, and no part of one.
absl::Status Replace(const std::string& path, std::string_view text) {
  const std::string beside = absl::StrFormat("%s.%d.tmp", path, getpid());
  const UniqueFd fd(
      open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) return ErrnoError(errno, absl::StrFormat("open '%s'", beside));
  absl::Status status;
  if (const int error = WriteAll(fd.get(), text); error != 0) status = ErrnoError(error, "write");
  if (status.ok() && rename(beside.c_str(), path.c_str()) != 0) {
    status = ErrnoError(errno, absl::StrFormat("rename '%s'", beside));
  }
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace

struct MetricsFile::Shared {
  const std::string path;
  const std::string name;  // of the machine
  const absl::Duration interval;
  const Logger log;
  Mutex mutex;
  std::condition_variable_any changed;
  Machine* machine ABSL_GUARDED_BY(mutex) = nullptr;  // null: it is over
  std::string last ABSL_GUARDED_BY(mutex);            // then what is written last
  Event written;                                      // and that has been
};

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path,
                                                               absl::Duration interval,
                                                               Logger log) {
  struct stat found;
  if (stat(path.c_str(), &found) == 0 && (!S_ISREG(found.st_mode) || !HoldsMetrics(path))) {
    return BadInput("--metrics '%s' holds something else, which would be lost; give another file",
                    path);
  }
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return BadInputErrno(errno, absl::StrFormat("--metrics cannot write to '%s'", folder));
  }
  // Not by make_shared: a struct with a mutex is made in its place.
  return std::unique_ptr<MetricsFile>(new MetricsFile(std::shared_ptr<Shared>(
      new Shared{.path = path, .name = file.stem().string(), .interval = interval, .log = log})));
}

MetricsFile::MetricsFile(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

MetricsFile::~MetricsFile() {
  End();
}

absl::Status MetricsFile::Begin(Machine& machine) {
  {
    const MutexLock lock(shared_->mutex);
    shared_->machine = &machine;
  }
  RINGSIDE_ASSIGN_OR_RETURN(thread_, StartThread("metrics", [shared = shared_] { Loop(shared); }));
  return absl::OkStatus();
}

void MetricsFile::Loop(const std::shared_ptr<Shared>& shared) {
  bool has_failed = false, is_over = false;
  while (!is_over) {
    const Deadline next = DeadlineIn(shared->interval);
    std::string text;
    {
      const MutexLock lock(shared->mutex);
      is_over = shared->machine == nullptr;
      text = is_over ? std::move(shared->last) : MetricsText(*shared->machine, shared->name);
    }
    const absl::Status status = Replace(shared->path, text);
    if (!status.ok() && !std::exchange(has_failed, true)) {
      shared->log.Log(Severity::kWarning, "the metrics were not written to '%s': %s", shared->path,
                      Message(status));
    }
    const MutexLock lock(shared->mutex);
    while (!is_over && shared->machine != nullptr &&
           shared->changed.wait_until(shared->mutex, next) != std::cv_status::timeout) {
    }
  }
  shared->written.Notify();
}

void MetricsFile::End() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(shared_->mutex);
    shared_->last = MetricsText(*shared_->machine, shared_->name);
    shared_->machine = nullptr;
    shared_->changed.notify_all();
  }
  if (shared_->written.WaitFor(kEndPatience)) return thread_.join();
  shared_->log.Log(Severity::kWarning,
                   "the storage of '%s' does not take the last metrics; they are given up",
                   shared_->path);
  thread_.detach();
}

}  // namespace ringside
