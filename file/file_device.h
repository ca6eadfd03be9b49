// A disk in a file or on a block device of the host, as it is: no format is ever guessed from what
// it contains.
//
// Threads: Create and the destructor on any one thread; all else as in block_device.h.
// Ownership: the device outlives its channels. A file is locked for as long as its device lives:
// against all others if it is writable, against writers if not.
// Errors: what the user can mend is InvalidArgument, NotFound, PermissionDenied or
// FailedPrecondition, in one line that names the file and the remedy.
// Durability: a device never makes writes durable that did not ask for it. Where info().write_back
// is false its user starts with a cache in write-through mode, that is, sets `durable` on all
// writes, discards and zeroes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/log.h"
#include "block/block_backend.h"

namespace ringside {

// As written on the command line: "none", "io_uring" and so on.
const char* CacheModeName(CacheMode mode);
const char* EngineName(Engine engine);

struct FileCounters;
struct FileTarget;
class WorkerPool;

class FileDevice final : public BlockDevice {
 public:
  // `logger` hears what was chosen where the user left a choice and did not get the first.
  // `opened`: the file, where somebody has opened it already, with the access that the
  // configuration asks for; the path is its name then.
  static absl::StatusOr<std::unique_ptr<FileDevice>> Create(const FileConfig& config, Logger logger,
                                                            UniqueFd opened = {});
  ~FileDevice() override;

  const BlockInfo& info() const override { return info_; }
  // The engine is that of the newest channel.
  BlockStatistics Statistics() const override;

  // Without O_DIRECT.
  std::atomic<int>* flush_error() override;
  // A regular file is made longer by a hole. The size of a block device is its owner's to change.
  absl::Status Resize(std::optional<uint64_t> size) override;
  // FailedPrecondition where the engine asked for is not to be had. A channel is not destroyed from
  // within `done`.
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;
  const CounterPool<FileCounters>& counters() const { return *counters_; }

 private:
  FileDevice(const FileConfig& config, Logger logger);
  absl::StatusOr<std::unique_ptr<BlockChannel>> OpenEngine(Engine engine, IoThread& io_thread);
  absl::StatusOr<std::unique_ptr<BlockChannel>> MakeChannel(Engine engine, IoThread& io_thread,
                                                            FileCounters& counters);

  const FileConfig config_;
  const Logger logger_;
  CacheMode cache_ = CacheMode::kWriteback;
  BlockInfo info_;
  std::unique_ptr<FileTarget> target_;
  std::unique_ptr<CounterPool<FileCounters>> counters_;
  std::unique_ptr<WorkerPool> workers_;
  std::atomic<Engine> engine_{Engine::kAuto};  // before the first channel
  std::atomic<bool> said_engine_{false};
};

}  // namespace ringside
