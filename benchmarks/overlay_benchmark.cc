// An overlay beside a raw file: what it costs to have the one instead of the other, on the disk
// that this was built on, from Submit to done on a thread that polls.
//
//   overlay_benchmark --benchmark_filter=allocated/read/depth:32
//
//   allocated/...    blocks that the overlay has; a raw file with cache=none
//   base/read/...    blocks that it has not, through the page cache; a raw file, cache=writeback
//   first/write/...  each block for the first time; a sparse raw file with cache=none
//
// Requests of 4 KiB in an order of chance, each block once. A case is kRounds rounds of both in
// turns; `ratio` is the median of the overlay's I/Os per second to the raw file's, `raw` and
// `overlay` are the medians of these.
#include <algorithm>
#include <array>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <memory>
#include <numeric>
#include <random>
#include <unistd.h>
#include <vector>

#include "base/clock.h"
#include "block/block_backend.h"
#include "nvme/nvme_controllers.h"
#include "overlay/overlay_device.h"
#include "poll/io_thread.h"

namespace ringside {
namespace {

constexpr size_t kRounds = 9;
constexpr uint64_t kBlocks = 16384;
constexpr uint64_t kBytes = kBlocks * kOverlayBlock;

struct Case {
  const char* name;
  BlockOp op;
  CacheMode cache;  // of the raw file
  bool is_base;     // the overlay has none of the blocks and is only read
  bool is_first;    // both are made anew for each round
};

constexpr Case kCases[] = {
    {"allocated/read", BlockOp::kRead, CacheMode::kNone, false, false},
    {"allocated/write", BlockOp::kWrite, CacheMode::kNone, false, false},
    {"base/read", BlockOp::kRead, CacheMode::kWriteback, true, false},
    {"first/write", BlockOp::kWrite, CacheMode::kNone, false, true},
};

// Keeps `depth` requests in flight until each block has had one.
class Pump {
 public:
  Pump(IoThread& io_thread, BlockDevice& device, size_t depth) : io_thread_(io_thread) {
    io_thread.RunAndWait([&] {
      auto opened = device.Open(io_thread);
      if (opened.ok()) channel_ = *std::move(opened);
    });
    for (size_t i = 0; i < depth; ++i) requests_.push_back(std::make_unique<Request>());
  }
  ~Pump() {
    io_thread_.RunAndWait([&] { channel_.reset(); });
  }

  // I/Os per second, 0 if one failed.
  double Run(BlockOp op, const std::vector<uint32_t>& order) {
    Event over;
    order_ = &order;
    over_ = &over;
    next_ = 0;
    left_ = order.size();
    failed_ = channel_ == nullptr;
    if (failed_) return 0;
    const int64_t begin = MonotonicNs();
    io_thread_.RunAndWait([&] {
      for (const auto& request : requests_) Begin(*request, op);
    });
    over.Wait();
    const double seconds = static_cast<double>(MonotonicNs() - begin) / 1e9;
    return failed_ ? 0 : static_cast<double>(order.size()) / seconds;
  }

 private:
  struct Request : BlockRequest {
    alignas(4096) std::array<std::byte, kOverlayBlock> memory = {};
    Segment segment = {};
    Pump* pump = nullptr;
  };
  void Begin(Request& request, BlockOp what) {
    if (next_ == order_->size()) return;
    request.op = what;
    request.offset = (*order_)[next_++] * kOverlayBlock;
    request.segment = {.host = request.memory.data(), .length = kOverlayBlock, .region = 0};
    request.segments = {&request.segment, 1};
    request.pump = this;
    request.done = [](BlockRequest& done) {
      auto& self = static_cast<Request&>(done);
      self.pump->Ended(self);
    };
    channel_->Submit(request);
  }
  void Ended(Request& request) {
    failed_ = failed_ || request.result != 0;
    if (--left_ == 0) return over_->Notify();
    Begin(request, request.op);
  }

  IoThread& io_thread_;
  std::unique_ptr<BlockChannel> channel_;
  std::vector<std::unique_ptr<Request>> requests_;
  const std::vector<uint32_t>* order_ = nullptr;
  Event* over_ = nullptr;
  size_t next_ = 0;
  size_t left_ = 0;
  bool failed_ = false;
};

class Files {
 public:
  Files() {
    for (const std::string& path : {raw_, base_}) {
      unlink(path.c_str());
      const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      const std::vector<char> chunk(1 << 20, 'r');
      for (uint64_t at = 0; at < kBytes; at += chunk.size()) {
        if (pwrite(file.get(), chunk.data(), chunk.size(), static_cast<off_t>(at)) < 0) return;
      }
      fsync(file.get());
    }
    unlink(overlay_.c_str());
  }
  ~Files() {
    for (const std::string& path : {raw_, base_, overlay_}) unlink(path.c_str());
  }
  void MakeSparse() const {
    unlink(overlay_.c_str());
    unlink(raw_.c_str());
    const UniqueFd file(open(raw_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (ftruncate(file.get(), kBytes) != 0) unlink(raw_.c_str());
  }
  BlockBackend Raw(CacheMode cache) const {
    return FileConfig{.path = raw_, .cache = cache, .aio = Engine::kIoUring};
  }
  BlockBackend Overlay() const {
    return OverlayConfig{.base = FileConfig{.path = base_,
                                            .read_only = true,
                                            .cache = CacheMode::kWriteback,
                                            .aio = Engine::kIoUring},
                         .path = overlay_,
                         .cache = CacheMode::kNone,
                         .aio = Engine::kIoUring};
  }

 private:
  const std::string directory_ = RINGSIDE_BENCHMARK_DIRECTORY;
  const std::string raw_ = directory_ + "/overlay-benchmark.raw";
  const std::string base_ = directory_ + "/overlay-benchmark.base";
  const std::string overlay_ = directory_ + "/overlay-benchmark.cow";
};

absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockBackend& backend) {
  NvmeControllers controllers{Logger()};
  return backend.Open({.log = Logger(), .nvme = controllers});
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void BesideRaw(benchmark::State& state, const Case& parameters, size_t depth) {
  const auto io_thread =
      IoThread::Start("benchmark", IoThread::Waiter::kUring, {.poll = {.kind = PollKind::kAlways}});
  if (!io_thread.ok()) return state.SkipWithError("there is no io_uring");
  const Files files;
  std::vector<uint32_t> order(kBlocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::unique_ptr<BlockDevice> devices[2];
  const auto open = [&] {
    auto raw = Open(files.Raw(parameters.cache));
    auto overlay = Open(files.Overlay());
    if (!raw.ok() || !overlay.ok()) return false;
    devices[0] = *std::move(raw);
    devices[1] = *std::move(overlay);
    return true;
  };
  if (!open()) return state.SkipWithError("the disks cannot be opened");
  if (!parameters.is_base && !parameters.is_first) {
    Pump(**io_thread, *devices[1], 32).Run(BlockOp::kWrite, order);
  }
  for (auto _ : state) {
    std::vector<double> rates[2], ratios;
    for (size_t round = 0; round < kRounds; ++round) {
      if (parameters.is_first) {
        for (auto& device : devices) device.reset();
        files.MakeSparse();
        if (!open()) return state.SkipWithError("the disks cannot be opened");
      }
      for (const size_t which : {round % 2, 1 - round % 2}) {
        const double rate = Pump(**io_thread, *devices[which], depth).Run(parameters.op, order);
        if (rate == 0) return state.SkipWithError("a request failed");
        rates[which].push_back(rate);
      }
      ratios.push_back(rates[1].back() / rates[0].back());
    }
    state.counters["ratio"] = Median(ratios);
    state.counters["raw"] = Median(rates[0]);
    state.counters["overlay"] = Median(rates[1]);
    state.SetIterationTime(1 / Median(rates[1]));
  }
  for (auto& device : devices) device.reset();
}

bool RegisterAll() {
  for (const Case& each : kCases) {
    for (const size_t depth : {1, 32}) {
      benchmark::RegisterBenchmark(absl::StrFormat("%s/depth:%d", each.name, depth).c_str(),
                                   BesideRaw, each, depth)
          ->UseManualTime()
          ->Iterations(1);
    }
  }
  return true;
}
[[maybe_unused]] const bool registered = RegisterAll();

}  // namespace
}  // namespace ringside
