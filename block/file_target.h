// What operations need to know of an open file, and what they count.
//
// Threads: FileTarget is shared by all channels of a device; FileCounters are written by the thread
// of the one channel that has them, and read by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/counter.h"
#include "base/fd.h"
#include "base/sync.h"
#include "block/file_device.h"

namespace ringside {

// Which reads and writes the I/O thread may do itself, as they cannot wait for a storage.
enum class InlineIo : uint8_t {
  kNever,
  kCached,  // reads, with RWF_NOWAIT, of what the page cache has
  kMemory,  // all: the file system has no storage
};

struct FileTarget {
  // Gives the lock back.
  ~FileTarget();

  UniqueFd fd;
  uint64_t size = 0;
  bool read_only = false;
  bool direct = false;          // O_DIRECT is on
  bool ignore_flushes = false;  // cache=unsafe
  InlineIo inline_io = InlineIo::kNever;
  // What O_DIRECT asks for; 1 without it. Powers of two.
  uint32_t memory_alignment = 1;
  uint32_t offset_alignment = 1;  // of lengths too

  // What is learned on the way, by whoever comes across it first. Relaxed: no other data hangs on
  // them, and not to have seen one yet costs a system call that fails.
  std::atomic<bool> has_punch_hole{true};
  std::atomic<bool> has_zero_range{true};
  std::atomic<bool> has_nowait{true};
  // Steps of fallocate under way: a write would wait for them, on tmpfs some 50 ms a GiB.
  std::atomic<int> allocating{0};
  // The error of a flush that failed in the page cache: the kernel has forgotten which pages did
  // not reach the disk and would call the next flush a success.
  std::atomic<int> flush_error{0};
};

struct FileCounters {
  // Release when a channel gives them back, acquire when the next one gets them: it goes on
  // counting where the other stopped.
  std::atomic<bool> taken{false};
  std::array<Counter, 5> requests;  // by BlockOp
  Counter bytes_read;
  Counter bytes_written;
  Counter errors;
  Counter bounced;
  Counter short_transfers;
  Counter retries;
  Counter served_inline;
  Counter submit_calls;
};

// The counters of all channels a device has had. They outlive the channels, and serve the next
// ones: a guest resets its disk as often as it likes.
class FileCountersList {
 public:
  // Until their `taken` is false again.
  FileCounters& Take(Engine engine);
  std::vector<FileStatistics> Read() const;

 private:
  struct Entry {
    explicit Entry(Engine of) : engine(of) {}
    const Engine engine;
    FileCounters counters;
  };
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
