#include "advice/file_facts.h"

#include <algorithm>
#include <cstddef>
#include <fcntl.h>
#include <fstream>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include "absl/strings/str_split.h"
#include "base/fd.h"
#include "base/number_list.h"

namespace ringside {
namespace {

constexpr size_t kExtentsAtOnce = 256;
constexpr int kMostLooks = 64;  // for a shared extent: 16,384 extents

// A blank in a name is written "\040", and so on.
std::string Unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Spec: proc(5): id, parent, device, root, point, options, any number of fields, "-", type, source,
// options of the file system.
std::optional<Mount> ParseMount(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  const auto dash = std::ranges::find(words, "-");
  if (words.size() < 6 || words.end() - dash < 4) return std::nullopt;
  const auto id = ParseNumber<uint64_t>(words[0]);
  if (!id) return std::nullopt;
  return Mount{.id = *id,
               .device = words[2],
               .point = Unescaped(words[4]),
               .type = dash[1],
               .source = Unescaped(dash[2]),
               .options = words[5] + "," + dash[3]};
}

void ReadFlags(int fd, FileFacts& facts) {
  int flags = 0;
  if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return;
  facts.no_copy_on_write = (flags & FS_NOCOW_FL) != 0;
  facts.is_compressed = (flags & FS_COMPR_FL) != 0;
}

// The kernel's fiemap, which ends in an array without a length, with room for some extents.
struct ExtentMap {
  uint64_t start = 0;
  uint64_t length = 0;
  uint32_t flags = 0;
  uint32_t mapped = 0;  // how many it has told of, or would
  uint32_t room = 0;
  uint32_t reserved = 0;
  fiemap_extent extents[kExtentsAtOnce];
};
static_assert(offsetof(ExtentMap, extents) == sizeof(fiemap));

// How many extents from `start` on it has told of; 0: none, or it does not tell.
size_t MapExtents(int fd, uint64_t start, uint32_t room, ExtentMap& map) {
  map.start = start;
  map.length = FIEMAP_MAX_OFFSET - start;
  map.flags = 0;
  map.room = room;
  return ioctl(fd, FS_IOC_FIEMAP, &map) == 0 ? map.mapped : 0;
}

void ReadExtents(int fd, FileFacts& facts) {
  ExtentMap map;
  const size_t pieces = MapExtents(fd, 0, 0, map);
  if (pieces == 0) return;
  facts.pieces = pieces;
  uint64_t start = 0;
  for (int look = 0; look < kMostLooks; ++look) {
    const size_t found = MapExtents(fd, start, kExtentsAtOnce, map);
    for (size_t i = 0; i < found; ++i) {
      if ((map.extents[i].fe_flags & FIEMAP_EXTENT_SHARED) != 0) {
        facts.is_shared = true;
        return;
      }
    }
    if (found < kExtentsAtOnce) {
      facts.is_shared = false;
      return;
    }
    start = map.extents[found - 1].fe_logical + map.extents[found - 1].fe_length;
  }
}

}  // namespace

bool Mount::Has(std::string_view option) const {
  const std::vector<std::string> all = absl::StrSplit(options, ',');
  return std::ranges::find(all, option) != all.end();
}

std::vector<Mount> ParseMounts(const std::string& text) {
  std::vector<Mount> mounts;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (auto mount = ParseMount(line)) mounts.push_back(*std::move(mount));
  }
  return mounts;
}

std::vector<Mount> ReadMounts(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/self/mountinfo");
  std::stringstream text;
  text << file.rdbuf();
  return ParseMounts(text.str());
}

std::optional<FileFacts> ReadFileFacts(const std::filesystem::path& root, const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct statx info = {};
  if (!fd.valid() ||
      statx(fd.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &info) != 0) {
    return std::nullopt;
  }
  FileFacts facts = {.device = makedev(info.stx_dev_major, info.stx_dev_minor),
                     .size = info.stx_size,
                     .allocated = info.stx_blocks * 512};
  facts.is_encrypted = (info.stx_attributes & STATX_ATTR_ENCRYPTED) != 0;
  if ((info.stx_mask & STATX_MNT_ID) != 0) {
    const std::vector<Mount> mounts = ReadMounts(root);
    const auto mount = std::ranges::find(mounts, info.stx_mnt_id, &Mount::id);
    if (mount != mounts.end()) facts.mount = *mount;
  }
  struct statvfs system;
  if (fstatvfs(fd.get(), &system) == 0) facts.free = uint64_t{system.f_bavail} * system.f_frsize;
  ReadFlags(fd.get(), facts);
  ReadExtents(fd.get(), facts);
  return facts;
}

}  // namespace ringside
