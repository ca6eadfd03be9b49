// A file into which the writes and flushes of a disk are recorded (faults/record_format.h), for
// tools/powercut.
//
// Whoever has a request writes its entry at once, through the page cache: what was recorded before
// a process is killed is there. At its limit, or when the file cannot be written, the record ends;
// the disk goes on, and the log says so once.
//
// Threads: any; entries of several stand one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sync.h"
#include "block/block_device.h"
#include "faults/record_format.h"

namespace ringside {

class RecordFile {
 public:
  // Room for the header, an entry and the end.
  static constexpr uint64_t kLeastLimit = 4096;

  // The file is made, or emptied if it is a record already, and locked.
  // InvalidArgument or FailedPrecondition: it is something else, or in use.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Create(const std::string& path, uint64_t limit,
                                                            const BlockInfo& info, Logger logger);
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Before the request goes to the disk. Its number.
  uint64_t Submitted(const BlockRequest& request);
  // Before whoever submitted it knows. False: the record has ended.
  bool Completed(uint64_t number, const BlockRequest& request, int result);

  uint64_t bytes() const;
  bool has_ended() const;

 private:
  RecordFile(UniqueFd file, std::string path, uint64_t limit, Logger logger);
  RecordEntry EntryOf(RecordEntry::Kind kind, uint64_t number, const BlockRequest& request) const;
  void Append(const RecordEntry& entry, std::span<const Segment> data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What of the entry is in the file is what stands below `bytes_`.
  bool Write(const void* head, size_t head_bytes, std::span<const Segment> data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndHere(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd file_;
  const std::string path_;
  const uint64_t limit_;
  const Logger logger_;
  const int64_t start_ns_;
  mutable Mutex mutex_;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ringside
