// What operations need to know of an open file, and what they count.
//
// Threads: FileTarget is shared by all channels of a device; FileCounters are written by the thread
// of the one channel that has them, and read by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "file/file_device.h"

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
  GrowingSize size = 0;
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

struct FileCounters : ChannelCounters {
  // By BlockOp; taken and not recalled, not necessarily done.
  std::array<Named, 5> requests = {Named(*this, "reads"), Named(*this, "writes"),
                                   Named(*this, "flushes"), Named(*this, "discards"),
                                   Named(*this, "zeroes")};
  Named bytes_read{*this, "bytes_read"};
  Named bytes_written{*this, "bytes_written"};
  Named errors{*this, "errors"};    // requests that failed
  Named bounced{*this, "bounced"};  // requests copied because O_DIRECT refuses their memory
  // Submitted again: from where they had stopped, and after EINTR or EAGAIN.
  Named short_transfers{*this, "short_transfers"};
  Named retries{*this, "retries"};
  // Requests done by the I/O thread itself, without the engine.
  Named served_inline{*this, "served_inline"};
  // System calls of its own to submit; a ring's are the I/O thread's.
  Named submit_calls{*this, "submit_calls"};
};

}  // namespace ringside
