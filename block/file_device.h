// A disk in a file or on a block device of the host, as it is: no format is ever guessed from what
// it contains.
//
// Threads: Create and the destructor on any one thread; all else as in block_device.h. statistics()
// may be called from any thread.
// Ownership: the device outlives its channels. A file is locked for as long as its device lives:
// against all others if it is writable, against writers if not.
// Errors: what the user can mend is InvalidArgument, NotFound, PermissionDenied or
// FailedPrecondition, in one line that names the file and the remedy.
// Durability: a device never makes writes durable that did not ask for it. Where info().write_back
// is false its user starts with a cache in write-through mode, that is, sets `durable` on all
// writes, discards and zeroes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "block/block_device.h"

namespace ringside {

// With QEMU's meanings: whether the host's page cache is in use, and what a write promises.
enum class CacheMode {
  kNone,          // O_DIRECT, write-back
  kWriteback,     // page cache, write-back
  kWritethrough,  // page cache, every write durable
  kDirectsync,    // O_DIRECT, every write durable
  kUnsafe,        // page cache, and flushes are not passed on
};

enum class Engine {
  kAuto,     // io_uring, else native with O_DIRECT, else threads
  kIoUring,  // the I/O thread's ring
  kNative,   // Linux AIO
  kThreads,  // worker threads of the device
};

struct FileConfig {
  std::string path;
  bool read_only = false;
  std::optional<CacheMode> cache;  // unset: none where the file takes O_DIRECT, else writeback
  Engine aio = Engine::kAuto;
  // Whether the I/O thread itself reads and writes what cannot block it. Else all goes to the
  // engine.
  bool inline_io = true;
};

// As written on the command line: "none", "io_uring" and so on.
const char* CacheModeName(CacheMode mode);
const char* EngineName(Engine engine);

// What channels have done.
struct FileStatistics {
  Engine engine = Engine::kAuto;
  // By BlockOp; taken and not recalled, not necessarily done.
  std::array<uint64_t, 5> requests = {};
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t errors = 0;           // requests that failed
  uint64_t bounced = 0;          // requests copied because O_DIRECT refuses their memory
  uint64_t short_transfers = 0;  // submitted again from where they had stopped
  uint64_t retries = 0;          // submitted again after EINTR or EAGAIN
  uint64_t served_inline = 0;    // requests done by the I/O thread itself, without the engine
  uint64_t submit_calls = 0;     // system calls of its own to submit; a ring's are the I/O thread's
};

struct FileCounters;
struct FileTarget;
class FileChannel;
class FileCountersList;
class WorkerPool;

class FileDevice final : public BlockDevice {
 public:
  // `logger` hears what was chosen where the user left a choice and did not get the first.
  static absl::StatusOr<std::unique_ptr<FileDevice>> Create(const FileConfig& config,
                                                            Logger logger);
  ~FileDevice() override;

  const BlockInfo& info() const override { return info_; }
  CacheMode cache_mode() const { return cache_; }

  // FailedPrecondition where the engine asked for is not to be had. A channel is not destroyed from
  // within `done`.
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

  // Of all channels there have been; those of one engine, one after the other, in one entry.
  std::vector<FileStatistics> statistics() const;

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
  std::unique_ptr<FileCountersList> counters_;
  std::unique_ptr<WorkerPool> workers_;
  std::atomic<bool> said_engine_{false};
};

}  // namespace ringside
