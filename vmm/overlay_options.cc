#include "vmm/overlay_options.h"

#include <algorithm>

#include "block/block_backend.h"
#include "overlay/overlay_format.h"
#include "vmm/backend_options.h"

namespace ringside {
namespace {

constexpr char kInMemory[] = "memory";

// The image below all overlays; null if it is none.
FileConfig* ImageOf(BlockBackend& base) {
  BlockBackend* at = &base;
  while (auto* overlay = at->As<OverlayConfig>()) at = &overlay->base;
  return at->As<FileConfig>();
}

// A base is read through the page cache, where all who share it find it.
FileConfig Image(std::string path) {
  return {.path = std::move(path), .read_only = true, .cache = CacheMode::kWriteback};
}

struct CacheOfBase {
  template <typename Disk>
  auto& operator()(Disk& disk) const {
    auto& base = disk.backend.template As<OverlayConfig>()->base;
    FileConfig* const image = ImageOf(const_cast<BlockBackend&>(base));
    // Where an embedder has something else there, nobody sets it.
    static std::optional<CacheMode> none;
    return image == nullptr ? none : image->cache;
  }
};

}  // namespace

// The paths of a chain, the image first.
template <>
struct OptionValue<BlockBackend> {
  static Json Get(const BlockBackend& base) {
    std::vector<std::string> paths;
    const BlockBackend* at = &base;
    for (; at->As<OverlayConfig>() != nullptr; at = &at->As<OverlayConfig>()->base) {
      paths.push_back(at->As<OverlayConfig>()->path);
    }
    const std::string lowest = at->Describe().name;
    if (!lowest.empty()) paths.push_back(lowest);
    std::ranges::reverse(paths);
    return paths;
  }
  static void Set(const Json& paths, BlockBackend& base) {
    FileConfig image = Image(paths.at(0).get<std::string>());
    image.cache = ImageOf(base)->cache;
    base = image;
    for (size_t i = 1; i < paths.size(); ++i) {
      base = OverlayConfig{.base = base, .path = paths.at(i).get<std::string>(), .read_only = true};
    }
  }
};

// Its path, or the word for none.
template <>
struct OptionValue<OverlayConfig> {
  static Json Get(const OverlayConfig& overlay) {
    return overlay.in_memory ? kInMemory : overlay.path;
  }
  static void Set(const Json& path, OverlayConfig& overlay) {
    overlay.in_memory = path == kInMemory;
    overlay.path = overlay.in_memory ? "" : path.get<std::string>();
  }
};

DiskConfig MakeOverlay() {
  return {.backend = OverlayConfig{.base = Image("")}};
}

std::vector<Option<DiskConfig>> OverlayOptions() {
  return {
      {{.name = "base",
        .type = Plain(OptionKind::kPaths),
        .doc = "what it stands on, which is only read: a raw image or a block device, and "
               "behind that the overlays that stand on it, if any. A path that has a + in it "
               "has it twice",
        .is_required = true},
       InBackend<&OverlayConfig::base>()},
      {{.name = "overlay",
        .type = Plain(OptionKind::kPath),
        .doc = "the file that has what is written, and is made if it is not there; memory: it "
               "is in memory, and gone with the machine (./memory is a file)",
        .is_required = true},
       [](auto& disk) -> auto& { return *disk.backend.template As<OverlayConfig>(); }},
      {{.name = "size",
        .type = Size(512, kMostOverlayBytes, 512),
        .doc = "how large the guest sees a new overlay",
        .unset = "as its base"},
       InBackend<&OverlayConfig::size>()},
      {{.name = "limit",
        .type = Size(kOverlayBlock, UINT64_MAX, 1),
        .doc = "how much the overlay may hold: a write beyond finds no space",
        .unset = "none"},
       InBackend<&OverlayConfig::limit>()},
      ReadOnly(InBackend<&OverlayConfig::read_only>()),
      {{.name = "cache",
        .type = Plain(OptionKind::kChoice),
        .doc = "of the overlay's file, as of a disk of type file; auto: of one that is only "
               "read, base-cache",
        .unset_name = "auto"},
       InBackend<&OverlayConfig::cache>()},
      {{.name = "base-cache",
        .type = Plain(OptionKind::kChoice),
        .doc = "of what it stands on: writeback shares it, in the host's page cache, with all "
               "who read it",
        .unset_name = "auto"},
       CacheOfBase()},
      {{.name = "aio",
        .type = Plain(OptionKind::kChoice),
        .doc = "how the host is asked for the overlay's file, as of a disk of type file"},
       InBackend<&OverlayConfig::aio>()},
      {{.name = "inline", .type = Plain(OptionKind::kSwitch), .doc = "as of a disk of type file"},
       InBackend<&OverlayConfig::inline_io>()}};
}

}  // namespace ringside
