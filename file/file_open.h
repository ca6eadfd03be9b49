// Opens and locks a disk's file, and finds out what it and its file system can do.
//
// Threads: any; used at start only.
// Errors: as in file_device.h.
// Spec: statx(2), open(2) under O_EXCL and O_DIRECT.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "file/file_target.h"

namespace ringside {

struct OpenedFile {
  std::unique_ptr<FileTarget> target;
  BlockInfo info;
  CacheMode cache;
};

// `opened`: the file, where somebody has opened it already; else it is opened by its path.
absl::StatusOr<OpenedFile> OpenFile(const FileConfig& config, Logger logger, UniqueFd opened = {});

// Of an open file, in bytes.
absl::StatusOr<uint64_t> ReadFileSize(int fd, bool is_block_device);

inline bool IsDirect(CacheMode mode) {
  return mode == CacheMode::kNone || mode == CacheMode::kDirectsync;
}

}  // namespace ringside
