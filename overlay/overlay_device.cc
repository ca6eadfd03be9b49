#include "overlay/overlay_device.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <iterator>
#include <utility>

#include "base/memory_file.h"
#include "base/status.h"
#include "block/block_resize.h"
#include "block/file_lock.h"
#include "faults/record_device.h"
#include "file/file_device.h"
#include "overlay/overlay_channel.h"

namespace ringside {
namespace {

// The overlay's file, which is open already; it is opened once.
struct OpenedConfig {
  FileConfig file;
  std::shared_ptr<UniqueFd> fd;

  BackendDescription Describe() const { return {.name = file.path, .files = {file.path}}; }
  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const {
    return FileDevice::Create(file, context.log, std::move(*fd));
  }
};

// Of the image below. An overlay that is only read is most often a base that others share as well.
std::optional<CacheMode> CacheOf(const BlockBackend& backend) {
  if (const auto* overlay = backend.As<OverlayConfig>()) return CacheOf(overlay->base);
  const auto* file = backend.As<FileConfig>();
  return file == nullptr ? std::nullopt : file->cache;
}

absl::StatusOr<std::unique_ptr<BlockDevice>> OpenData(const OverlayConfig& config, UniqueFd fd,
                                                      const BlockContext& context) {
  std::optional<CacheMode> cache = config.in_memory ? CacheMode::kUnsafe : config.cache;
  if (!cache && config.read_only) cache = CacheOf(config.base);
  OpenedConfig opened = {.file = {.path = config.in_memory ? "memory" : config.path,
                                  .read_only = config.read_only,
                                  .cache = cache,
                                  .aio = config.aio,
                                  .inline_io = config.inline_io},
                         .fd = std::make_shared<UniqueFd>(std::move(fd))};
  BlockBackend backend = std::move(opened);
  if (!config.record.path.empty()) {
    backend = RecordConfig{.backend = std::move(backend), .options = config.record};
  }
  return backend.Open(context);
}

// A base must stay as it is, whoever may have it open without asking for locks.
absl::Status RefuseWritersOf(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.valid()) return ErrnoError(errno, absl::StrFormat("cannot open base '%s'", path));
  return RefuseWriters(file.get(), absl::StrFormat("base '%s'", path));
}

// What can be known of a base, which is open.
absl::StatusOr<BaseIdentity> IdentityOf(const BlockBackend& backend, const BlockDevice& base) {
  if (backend.As<OverlayConfig>() != nullptr) {
    return static_cast<const OverlayDevice&>(base).identity();
  }
  if (const FileConfig* file = backend.As<FileConfig>()) {
    RINGSIDE_RETURN_IF_ERROR(RefuseWritersOf(file->path));
    return RawBaseIdentity(file->path, base.info().size);
  }
  return BaseIdentity{.kind = BaseKind::kRaw, .size = base.info().size};
}

absl::StatusOr<UniqueFd> Copy(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoError(errno, "cannot copy a descriptor");
  return copy;
}

std::string NameOf(const OverlayConfig& config) {
  return config.in_memory ? "an overlay in memory" : absl::StrFormat("overlay '%s'", config.path);
}

std::string HintOf(const BlockBackend& base) {
  return base.Describe().name;
}

absl::Status CheckLoaded(const OverlayConfig& config, OverlayFile& file,
                         const OverlayFile::Loaded& loaded, Logger logger) {
  if (loaded.torn_pages != 0) {
    logger.Log(Severity::kInfo,
               "%s: %d pages of its map were being written when it was last used; "
               "what was flushed is there",
               file.name(), loaded.torn_pages);
  }
  if (loaded.corrupt_pages == 0) return absl::OkStatus();
  if (config.read_only) {
    logger.Log(Severity::kWarning, "%s is damaged: %d MiB of it cannot be read", file.name(),
               loaded.corrupt_pages * kBytesPerMapPage >> 20);
    return absl::OkStatus();
  }
  OverlayHeader header = file.header();
  header.flags |= OverlayHeader::kCorrupt;
  RINGSIDE_RETURN_IF_ERROR(file.WriteHeader(header));
  return absl::DataLossError(absl::StrFormat(
      "%s is damaged: %d pages of its map are not what was written; read what is left of it with "
      "readonly=on",
      file.name(), loaded.corrupt_pages));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OverlayDevice>> OverlayDevice::Create(const OverlayConfig& config,
                                                                     const BlockContext& context) {
  RINGSIDE_ASSIGN_OR_RETURN(Parts parts, OpenParts(config, context));
  return std::unique_ptr<OverlayDevice>(new OverlayDevice(config, std::move(parts), context.log));
}

absl::StatusOr<OverlayDevice::Parts> OverlayDevice::OpenParts(const OverlayConfig& config,
                                                              const BlockContext& context) {
  if (config.in_memory == !config.path.empty()) {
    return BadInput("an overlay has either a path or is in memory: give one of these");
  }
  Parts parts;
  RINGSIDE_ASSIGN_OR_RETURN(parts.base, config.base.Open(context));
  if (!config.base.Describe().takes_any_memory) {
    return BadInput(
        "%s: '%s' cannot be its base, as it reads into a guest's memory only: give a "
        "file",
        NameOf(config), config.base.Describe().name);
  }
  if (!parts.base->info().read_only) {
    return BadInput("%s: its base '%s' would be open for writing: bases are only read",
                    NameOf(config), config.base.Describe().name);
  }
  RINGSIDE_ASSIGN_OR_RETURN(const BaseIdentity base, IdentityOf(config.base, *parts.base));
  if (!config.in_memory) {
    RINGSIDE_RETURN_IF_ERROR(OpenFileOf(config, base, context.log, parts));
    RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, Copy(parts.file->fd()));
    RINGSIDE_RETURN_IF_ERROR(Limit(config, fd, parts));
    RINGSIDE_ASSIGN_OR_RETURN(parts.data, OpenData(config, std::move(fd), context));
    return parts;
  }
  const uint64_t size = config.size == 0 ? base.size : config.size;
  RINGSIDE_ASSIGN_OR_RETURN(parts.header, NewOverlayHeader(size, base, HintOf(config.base)));
  parts.found = ContentOf(parts.header);
  parts.header.data_offset = 0;
  RINGSIDE_ASSIGN_OR_RETURN(parts.map, BlockMap::Create(parts.header));
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd memory,
                            CreateMemoryFile("ringside-overlay", parts.header.capacity));
  RINGSIDE_RETURN_IF_ERROR(Limit(config, memory, parts));
  RINGSIDE_ASSIGN_OR_RETURN(parts.data, OpenData(config, std::move(memory), context));
  return parts;
}

absl::Status OverlayDevice::Limit(const OverlayConfig& config, const UniqueFd& data, Parts& parts) {
  if (config.limit == 0) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(parts.counted, Copy(data.get()));
  return absl::OkStatus();
}

absl::Status OverlayDevice::OpenFileOf(const OverlayConfig& config, const BaseIdentity& base,
                                       Logger logger, Parts& parts) {
  if (!config.read_only && OverlayFile::IsMissing(config.path)) {
    const uint64_t size = config.size == 0 ? base.size : config.size;
    RINGSIDE_ASSIGN_OR_RETURN(parts.header, NewOverlayHeader(size, base, HintOf(config.base)));
    parts.found = ContentOf(parts.header);
    RINGSIDE_ASSIGN_OR_RETURN(parts.file, OverlayFile::Create(config.path, parts.header));
    RINGSIDE_ASSIGN_OR_RETURN(parts.map, BlockMap::Create(parts.header));
    return absl::OkStatus();
  }
  const OverlayAccess access = config.read_only ? OverlayAccess::kRead : OverlayAccess::kWrite;
  RINGSIDE_ASSIGN_OR_RETURN(parts.file, OverlayFile::Open(config.path, access));
  OverlayFile& file = *parts.file;
  parts.found = ContentOf(file.header());
  RINGSIDE_RETURN_IF_ERROR(CheckBase(file.header(), base, file.name()));
  if (config.size != 0 && config.size != file.header().size) {
    return BadInput("%s has %d bytes, and size=%d is another size: leave that out", file.name(),
                    file.header().size, config.size);
  }
  RINGSIDE_ASSIGN_OR_RETURN(OverlayFile::Loaded loaded, file.Load());
  RINGSIDE_RETURN_IF_ERROR(CheckLoaded(config, file, loaded, logger));
  if (!config.read_only) RINGSIDE_RETURN_IF_ERROR(file.BeginUse());
  parts.map = std::move(loaded.map);
  parts.header = file.header();
  return absl::OkStatus();
}

OverlayDevice::OverlayDevice(const OverlayConfig& config, Parts parts, Logger logger)
    : name_(NameOf(config)),
      logger_(logger),
      read_only_(config.read_only),
      base_(std::move(parts.base)),
      data_(std::move(parts.data)),
      file_(std::move(parts.file)),
      header_(parts.header),
      found_{parts.found},
      info_(data_->info()),
      state_(std::move(parts.map), parts.header, config.limit, file_.has_value()) {
  std::ranges::copy(base_->Found(), std::back_inserter(found_));
  info_.size = header_.size;
  info_.logical_block = std::max(info_.logical_block, base_->info().logical_block);
  info_.physical_block = std::max(info_.physical_block, static_cast<uint32_t>(kOverlayBlock));
  info_.discard_alignment = std::max(info_.discard_alignment, static_cast<uint32_t>(kOverlayBlock));
  info_.can_discard = !read_only_;
  state_.counted = std::move(parts.counted);
  if (file_.has_value()) {
    state_.has_new_name = file_->is_new();
    state_.path = file_->path();
  }
}

OverlayDevice::~OverlayDevice() {
  if (!file_.has_value() || read_only_) return;
  const absl::Status status = EndUse();
  if (!status.ok()) {
    logger_.Log(Severity::kError, "%s; what was written since the last flush is lost",
                Message(status));
  }
}

absl::Status OverlayDevice::EndUse() {
  // The kernel has dropped pages, and calls the next flush a success: the map may not say of their
  // blocks that they are here. As it is, the file is one that nobody has closed.
  if (const std::atomic<int>* const error = flush_error(); error != nullptr && *error != 0) {
    return ErrnoError(-*error, "a flush has failed of " + file_->name());
  }
  const MutexLock lock(state_.mutex);
  std::optional<OverlayId> unchanged;
  if (!state_.is_changed.load(std::memory_order_relaxed)) unchanged = found_.front().generation;
  return file_->EndUse(*state_.map, unchanged);
}

// One that was not written to is as it was found, once it is closed, and would be what nobody
// knows.
std::optional<ContentId> OverlayDevice::KeepFound() {
  state_.Change();
  return ContentOf(header_);
}

BlockStatistics OverlayDevice::Statistics() const {
  BlockStatistics statistics = data_->Statistics();
  for (BlockCounter& counter : counters_.Sums()) statistics.counters.push_back(std::move(counter));
  statistics.counters.push_back(
      {"overlay_allocated_bytes", state_.map->here_blocks() * kOverlayBlock});
  statistics.counters.push_back(
      {"overlay_zeroed_bytes", state_.map->zero_blocks() * kOverlayBlock});
  return statistics;
}

absl::Status OverlayDevice::MapMemory(std::span<const MemoryRegion> regions) {
  RINGSIDE_RETURN_IF_ERROR(base_->MapMemory(regions));
  return data_->MapMemory(regions);
}

void OverlayDevice::EndSoon() {
  base_->EndSoon();
  data_->EndSoon();
}

// The file first: a header never says more than there is.
absl::Status OverlayDevice::Resize(std::optional<uint64_t> size) {
  RINGSIDE_RETURN_IF_ERROR(CheckGrown(info_, size.value_or(info_.size)));
  if (!size || *size == info_.size) return absl::OkStatus();
  if (read_only_) return BadInput("it is read-only: leave the size out");
  if (*size > header_.capacity) {
    return BadInput(
        "it has room for %d bytes, and %d are more: make a larger one with 'ringside "
        "image create --size' and flatten it into that",
        header_.capacity, *size);
  }
  if (file_.has_value()) {
    const MutexLock lock(file_mutex_);
    RINGSIDE_RETURN_IF_ERROR(data_->Resize(OverlayFileBytes(header_.data_offset, *size)));
    state_.Change();
    OverlayHeader next = file_->header();
    next.size = *size;
    if (const absl::Status status = file_->WriteHeader(next); !status.ok()) {
      // The kernel may have told it of pages that the guest's next flush is for, and tells once.
      std::atomic<int>* const error = flush_error();
      if (error != nullptr && file_->has_failed_to_flush()) *error = -EIO;
      return status;
    }
  }
  info_.size.Set(*size);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlockChannel>> OverlayDevice::Open(IoThread& io_thread) {
  RINGSIDE_ASSIGN_OR_RETURN(auto data, data_->Open(io_thread));
  RINGSIDE_ASSIGN_OR_RETURN(auto base, base_->Open(io_thread));
  return std::make_unique<OverlayChannel>(io_thread, std::move(data), std::move(base), info_,
                                          state_, counters_.Take());
}

namespace {

struct OverlayFunctions {
  static BackendDescription Describe(const OverlayConfig& config) {
    BackendDescription description = config.base.Describe();
    if (config.in_memory) {
      description.name = absl::StrFormat("memory over %s", description.name);
    } else {
      description.name = config.path;
      description.files.insert(description.files.begin(), config.path);
    }
    if (!config.record.path.empty()) description.files.push_back(config.record.path);
    description.needs_uring = description.needs_uring || config.aio == Engine::kIoUring;
    return description;
  }
  static absl::Status Announce(const OverlayConfig& config, const std::string& disk,
                               const BlockContext& context) {
    return config.base.Announce(disk, context);
  }
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const OverlayConfig& config,
                                                           const BlockContext& context) {
    return OverlayDevice::Create(config, context);
  }
};

}  // namespace

BlockBackend::BlockBackend(OverlayConfig config)
    : config_(std::move(config)), calls_(&kBackendCalls<OverlayConfig, OverlayFunctions>) {}

}  // namespace ringside
