#include "file/file_device.h"

#include <array>
#include <cerrno>
#include <unistd.h>

#include "base/status.h"
#include "block/block_resize.h"
#include "file/aio_channel.h"
#include "file/file_open.h"
#include "file/thread_channel.h"
#include "file/uring_channel.h"
#include "file/worker_pool.h"

namespace ringside {

const char* CacheModeName(CacheMode mode) {
  constexpr std::array kNames = {"none", "writeback", "writethrough", "directsync", "unsafe"};
  return kNames[static_cast<size_t>(mode)];
}

const char* EngineName(Engine engine) {
  constexpr std::array kNames = {"auto", "io_uring", "native", "threads"};
  return kNames[static_cast<size_t>(engine)];
}

namespace {

struct FileFunctions {
  static BackendDescription Describe(const FileConfig& config) {
    return {
        .name = config.path, .files = {config.path}, .needs_uring = config.aio == Engine::kIoUring};
  }
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const FileConfig& config,
                                                           const BlockContext& context) {
    return FileDevice::Create(config, context.log);
  }
};

}  // namespace

BlockBackend::BlockBackend(FileConfig config)
    : config_(std::move(config)), calls_(&kBackendCalls<FileConfig, FileFunctions>) {}

FileDevice::FileDevice(const FileConfig& config, Logger logger)
    : config_(config), logger_(logger), counters_(std::make_unique<CounterPool<FileCounters>>()) {}

FileDevice::~FileDevice() = default;

absl::StatusOr<std::unique_ptr<FileDevice>> FileDevice::Create(const FileConfig& config,
                                                               Logger logger,
                                                               UniqueFd opened_before) {
  RINGSIDE_ASSIGN_OR_RETURN(OpenedFile opened, OpenFile(config, logger, std::move(opened_before)));
  std::unique_ptr<FileDevice> device(new FileDevice(config, logger));
  device->cache_ = opened.cache;
  device->info_ = opened.info;
  device->target_ = std::move(opened.target);
  device->workers_ = std::make_unique<WorkerPool>(device->target_->fd.get());
  return device;
}

std::atomic<int>* FileDevice::flush_error() {
  return target_->direct ? nullptr : &target_->flush_error;
}

absl::Status FileDevice::Resize(std::optional<uint64_t> size) {
  const bool is_block_device = info_.host_device != 0;
  if (size && is_block_device) {
    return BadInput(
        "it is a block device: make that larger by its own means, such as lvextend, and leave the "
        "size out");
  }
  if (size && info_.read_only) return BadInput("it is read-only: leave the size out");
  const int fd = target_->fd.get();
  RINGSIDE_ASSIGN_OR_RETURN(const uint64_t now, ReadFileSize(fd, is_block_device));
  RINGSIDE_RETURN_IF_ERROR(CheckGrown(info_, size.value_or(now)));
  // Somebody else may have made it longer than that.
  if (size && *size > now && ftruncate(fd, static_cast<off_t>(*size)) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot make it %d bytes long", *size));
  }
  // First what requests meet behind the other's check.
  target_->size.Set(size.value_or(now));
  info_.size.Set(size.value_or(now));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlockChannel>> FileDevice::Open(IoThread& io_thread) {
  if (config_.aio != Engine::kAuto) return OpenEngine(config_.aio, io_thread);
  if (io_thread.uring() != nullptr) return OpenEngine(Engine::kIoUring, io_thread);
  if (target_->direct) {
    auto channel = OpenEngine(Engine::kNative, io_thread);
    if (channel.ok() || !absl::IsFailedPrecondition(channel.status())) return channel;
    logger_.Log(Severity::kInfo, "%s", Message(channel.status()));
  }
  return OpenEngine(Engine::kThreads, io_thread);
}

absl::StatusOr<std::unique_ptr<BlockChannel>> FileDevice::OpenEngine(Engine engine,
                                                                     IoThread& io_thread) {
  if (engine == Engine::kIoUring && io_thread.uring() == nullptr) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "disk '%s': aio=io_uring needs io_uring, which this host does not allow; use aio=native or "
        "aio=threads",
        config_.path));
  }
  if (config_.aio == Engine::kAuto && engine != Engine::kIoUring && !said_engine_.exchange(true)) {
    logger_.Log(Severity::kInfo, "disk '%s': no io_uring here; using aio=%s", config_.path,
                EngineName(engine));
  }
  FileCounters& counters = counters_->Take();
  engine_.store(engine, std::memory_order_relaxed);
  auto channel = MakeChannel(engine, io_thread, counters);
  if (!channel.ok()) counters.taken.store(false, std::memory_order_release);
  return channel;
}

absl::StatusOr<std::unique_ptr<BlockChannel>> FileDevice::MakeChannel(Engine engine,
                                                                      IoThread& io_thread,
                                                                      FileCounters& counters) {
  switch (engine) {
    case Engine::kIoUring:
      return UringChannel::Create(io_thread, *target_, counters);
    case Engine::kNative: {
      auto channel = AioChannel::Create(io_thread, *target_, counters, *workers_);
      if (channel.ok()) return channel;
      return Of(absl::StrFormat("disk '%s'", config_.path), channel.status());
    }
    case Engine::kAuto:
    case Engine::kThreads:
      break;
  }
  RINGSIDE_RETURN_IF_ERROR(workers_->Start());
  return std::make_unique<ThreadChannel>(io_thread, *target_, counters, *workers_);
}

BlockStatistics FileDevice::Statistics() const {
  const Engine engine = engine_.load(std::memory_order_relaxed);
  return {.engine = engine == Engine::kAuto ? "" : EngineName(engine),
          .cache = CacheModeName(cache_),
          .counters = counters_->Sums()};
}

}  // namespace ringside
