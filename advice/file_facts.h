// What a file's own file system says of it, and where that is mounted.
//
// Threads: any. Errors: a question that the file system does not answer leaves its member as it is.
// Spec: statx(2), ioctl_fs_ioc_fiemap (Documentation/filesystems/fiemap.rst), proc(5).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace ringside {

struct Mount {
  uint64_t id = 0;
  std::string device;   // "254:0"
  std::string point;    // "/srv"
  std::string type;     // "ext4"
  std::string source;   // "/dev/vda1"
  std::string options;  // the mount's and the file system's, with commas
  bool Has(std::string_view option) const;
};

// The text of /proc/self/mountinfo, as far as it is one.
std::vector<Mount> ParseMounts(const std::string& text);
std::vector<Mount> ReadMounts(const std::filesystem::path& root);

struct FileFacts {
  Mount mount;        // empty: not known
  dev_t device = 0;   // that the file system says it is on
  uint64_t size = 0;  // bytes, as the next two
  uint64_t allocated = 0;
  std::optional<uint64_t> free;  // in the file system, for this user
  bool is_encrypted = false;     // file by file (fscrypt)
  std::optional<bool> no_copy_on_write;
  std::optional<bool> is_compressed;
  std::optional<uint64_t> pieces;  // extents
  std::optional<bool> is_shared;   // another file has some of its extents
};

// Nothing: there is no such file, or it may not be read.
std::optional<FileFacts> ReadFileFacts(const std::filesystem::path& root, const std::string& path);

}  // namespace ringside
