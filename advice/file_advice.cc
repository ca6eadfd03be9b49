#include "advice/file_advice.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/size.h"

namespace ringside {
namespace {

constexpr uint64_t kManyPieces = 10'000;

// Of a file on a file system that is known.
struct File {
  const std::string& path;
  const FileFacts& facts;
  const Mount& mount;

  bool IsOn(std::initializer_list<std::string_view> types) const {
    return std::ranges::find(types, mount.type) != types.end();
  }
  bool IsInMemory() const { return IsOn({"tmpfs", "ramfs"}); }
};

std::string Remount(const File& file, const char* options) {
  return absl::StrFormat("mount -o remount,%s %s", options, Quoted(file.mount.point));
}

void FileSystem(const File& file, Findings& findings) {
  if (file.mount.type.empty()) {
    findings.push_back({Verdict::kUnknown, "file-system",
                        "which file system the file is on cannot be told from here", ""});
  } else if (file.IsInMemory()) {
    findings.push_back(
        {Verdict::kUnsafe, "file-system",
         absl::StrFormat("the file is in memory (%s on %s): it is gone when the host "
                         "is, whatever the guest flushes",
                         file.mount.type, file.mount.point),
         ""});
  } else if (absl::StartsWith(file.mount.type, "fuse") ||
             file.IsOn({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs"})) {
    findings.push_back(
        {Verdict::kUnknown, "file-system",
         absl::StrFormat("the file is served by others (%s from %s): how fast and how "
                         "safe that is cannot be told from here",
                         file.mount.type, file.mount.source),
         ""});
  } else {
    findings.push_back({Verdict::kGood, "file-system",
                        absl::StrFormat("a file on %s, mounted on %s from %s", file.mount.type,
                                        file.mount.point, file.mount.source),
                        ""});
  }
}

// Spec: Documentation/admin-guide/ext4.rst.
void MountOptions(const File& file, Findings& findings) {
  const Mount& mount = file.mount;
  if (mount.Has("nobarrier") || mount.Has("barrier=0")) {
    findings.push_back(
        {Verdict::kUnsafe, "barriers",
         absl::StrFormat("%s is mounted without barriers: flushes do not reach the "
                         "disk's write cache, and a power cut loses what guests have "
                         "flushed",
                         mount.point),
         Remount(file, "barrier=1")});
  }
  if (mount.Has("data=journal")) {
    findings.push_back(
        {Verdict::kSlow, "journal",
         absl::StrFormat("%s journals data, so each write is done twice and O_DIRECT "
                         "is not direct",
                         mount.point),
         ""});
  }
  if (mount.Has("sync")) {
    findings.push_back(
        {Verdict::kSlow, "sync",
         absl::StrFormat("%s is mounted with sync: each write is a flush", mount.point),
         Remount(file, "async")});
  }
}

void OnErrors(const File& file, Findings& findings) {
  const Mount& mount = file.mount;
  if (mount.Has("errors=continue")) {
    findings.push_back(
        {Verdict::kUnsafe, "errors",
         absl::StrFormat("%s goes on writing once it has found itself damaged", mount.point),
         Remount(file, "errors=remount-ro")});
  } else if (mount.Has("errors=panic")) {
    findings.push_back({Verdict::kNote, "errors",
                        absl::StrFormat("%s ends the host, with all its guests, once it has found "
                                        "itself damaged",
                                        mount.point),
                        Remount(file, "errors=remount-ro")});
  } else if (file.IsOn({"ext2", "ext3", "ext4"}) && !mount.Has("errors=remount-ro")) {
    findings.push_back(
        {Verdict::kUnknown, "errors",
         absl::StrFormat("what %s does once it has found itself damaged is in its "
                         "superblock",
                         mount.point),
         absl::StrFormat("tune2fs -l %s | grep 'Errors behavior'", Quoted(mount.source))});
  }
}

void CopyOnWrite(const File& file, Findings& findings) {
  if (file.mount.type == "btrfs" && file.facts.no_copy_on_write == false) {
    findings.push_back(
        {Verdict::kSlow, "copy-on-write",
         "btrfs writes each block to a new place and keeps a checksum of it, which a guest that "
         "changes its buffer during a write makes wrong; with the attribute C, which a file gets "
         "while it is empty, it writes in place and has no checksums",
         absl::StrFormat("touch NEW && chattr +C NEW && cp --reflink=never %s NEW",
                         Quoted(file.path))});
  }
  if (file.facts.is_shared == true) {
    findings.push_back({Verdict::kSlow, "shared",
                        "parts of the file are shared with others (reflinks, snapshots): the first "
                        "write to each copies it",
                        absl::StrFormat("cp --reflink=never %s NEW", Quoted(file.path))});
  }
  if (file.facts.is_compressed == true) {
    findings.push_back({Verdict::kSlow, "compressed", "the file system compresses the file", ""});
  }
  if (file.facts.is_encrypted) {
    findings.push_back({Verdict::kNote, "encrypted",
                        "the file system encrypts the file; without inline encryption it takes no "
                        "O_DIRECT",
                        ""});
  }
}

void Pieces(const File& file, Findings& findings) {
  if (file.facts.pieces.value_or(0) < kManyPieces) return;
  findings.push_back({Verdict::kSlow, "pieces",
                      absl::StrFormat("the file is in %d pieces, which the kernel has to look up",
                                      *file.facts.pieces),
                      absl::StrFormat("e4defrag %s  # ext4; else copy it", Quoted(file.path))});
}

void Space(const File& file, Findings& findings) {
  const uint64_t size = file.facts.size;
  const uint64_t missing = size - std::min(file.facts.allocated, size);
  if (file.IsInMemory()) return;
  if (missing == 0) {
    findings.push_back({Verdict::kGood, "space", "all of the file has its space", ""});
    return;
  }
  const std::string have =
      absl::StrFormat("%s of %s has no space yet", FormatSize(missing), FormatSize(size));
  if (!file.facts.free) {
    findings.push_back(
        {Verdict::kUnknown, "space", have + ", and how much is left cannot be told from here", ""});
  } else if (missing > *file.facts.free) {
    findings.push_back({Verdict::kUnsafe, "space",
                        absl::StrFormat("%s, and the file system has %s left: once it is full the "
                                        "guest's writes fail. Make room; a disk with werror=stop "
                                        "keeps them until there is some",
                                        have, FormatSize(*file.facts.free)),
                        ""});
  } else {
    findings.push_back({Verdict::kSlow, "space",
                        have + ": the first write to each part has to find it, and fails if the "
                               "file system is full by then",
                        absl::StrFormat("fallocate --length %d %s", size, Quoted(file.path))});
  }
}

}  // namespace

std::string Quoted(const std::string& text) {
  return "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'";
}

Findings FileAdvice(const DiskFacts& facts) {
  const File file = {facts.path, *facts.file, facts.file->mount};
  Findings findings;
  for (const auto& check : {FileSystem, MountOptions, OnErrors, CopyOnWrite, Pieces, Space}) {
    check(file, findings);
  }
  return findings;
}

}  // namespace ringside
