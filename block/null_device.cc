#include "block/null_device.h"

#include "base/status.h"
#include "block/block_resize.h"
#include "block/delayed_null_channel.h"
#include "block/fifo.h"

namespace ringside {
namespace {

// Completes at the end of the turn, where other channels start their work.
class NullChannel final : public BlockChannel {
 public:
  explicit NullChannel(IoThread& io_thread) : io_thread_(io_thread) {}

  void Submit(BlockRequest& request) override {
    requests_.Push(request);
    io_thread_.AtHandOver(completer_);
  }

 private:
  void CompleteAll() {
    // What `done` submits is for the next run, which it queues.
    requests_.TakeEach([](BlockRequest& request) {
      request.result = 0;
      request.done(request);
    });
  }

  IoThread& io_thread_;
  Fifo<BlockRequest> requests_;
  HookTo<NullChannel, &NullChannel::CompleteAll> completer_{*this};
};

struct NullFunctions {
  static BackendDescription Describe(const NullConfig&) { return {.name = "null"}; }
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const NullConfig& config,
                                                           const BlockContext&) {
    return NullDevice::Create(config);
  }
};

}  // namespace

BlockBackend::BlockBackend(NullConfig config)
    : config_(config), calls_(&kBackendCalls<NullConfig, NullFunctions>) {}

absl::StatusOr<std::unique_ptr<NullDevice>> NullDevice::Create(const NullConfig& config) {
  if (config.size == 0 || config.size % 512 != 0) {
    return BadInput("a null disk of %d bytes is out of range: give a multiple of 512", config.size);
  }
  if (config.latency_ns < 0 || config.latency_ns > kMaxLatencyNs) {
    return BadInput("a null disk's latency of %d ns is out of range: give 0 to 1 s",
                    config.latency_ns);
  }
  return std::unique_ptr<NullDevice>(new NullDevice(config));
}

absl::Status NullDevice::Resize(std::optional<uint64_t> size) {
  RINGSIDE_RETURN_IF_ERROR(CheckGrown(info_, size.value_or(info_.size)));
  if (size) info_.size.Set(*size);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlockChannel>> NullDevice::Open(IoThread& io_thread) {
  if (latency_ns_ > 0) return std::make_unique<DelayedNullChannel>(io_thread, latency_ns_);
  return std::make_unique<NullChannel>(io_thread);
}

}  // namespace ringside
