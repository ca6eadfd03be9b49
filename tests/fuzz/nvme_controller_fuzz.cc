// libFuzzer: any bytes as what an NVMe controller is, that a vfio-user server offers, from CAP to
// the last field of Identify, and what becomes of its commands; while a driver opens it, uses it
// and ends. Every request has an answer in time; and a controller that only is small or large,
// and was not refused, has executed them.
//
// The input: the controller's shape, then how many bytes of Identify are others, then faults. What
// is missing is as it should be, so that this target needs no seeds.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "nvme/nvme_device.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/directories.h"
#include "tests/support/nvme/dma_memory.h"
#include "tests/support/vfio/vfio_user_server.h"
#include "vfio/vfio_user_device.h"

namespace ringside {
namespace {

using testing::NvmeModel;
using testing::NvmeModelConfig;
using testing::NvmeModelFault;
using testing::Pieces;
using testing::TestDisk;
using testing::TestRequest;

// Of a command, and of opening. What is waited for takes a few of them.
constexpr absl::Duration kTimeout = absl::Milliseconds(40);
constexpr absl::Duration kOpenLimit = absl::Milliseconds(400);
constexpr absl::Duration kTooLong = absl::Seconds(15);

class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }
  uint8_t Byte() {
    if (left_.empty()) return 0;
    const uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  uint16_t Word() { return static_cast<uint16_t>(Byte() | Byte() << 8); }

 private:
  std::span<const uint8_t> left_;
};

// 0 is what it mostly is; else one of the extremes, or what the next byte says.
template <typename T>
void Change(Input& input, T& value, std::initializer_list<T> extremes) {
  const size_t which = input.Byte();
  if (which == 0) return;
  if (which <= extremes.size()) {
    value = extremes.begin()[which - 1];
  } else {
    value = static_cast<T>(input.Byte());
  }
}

NvmeModelConfig TakeConfig(Input& input) {
  NvmeModelConfig config;
  config.iova_ranges = testing::kAllIova;
  config.takes_any_queue = config.deletes_busy = true;
  config.vectors = 3;
  config.queues = 2;
  config.timeout = 1;
  Change<uint32_t>(input, config.queue_entries, {1, 2, 3, 65536});
  config.queue_entries = std::max(config.queue_entries, 1U);  // CAP.MQES is one less
  Change<uint8_t>(input, config.doorbell_stride, {1, 4, 10});
  config.doorbell_stride %= 11;
  Change<uint8_t>(input, config.mdts, {0, 1, 255});
  Change<uint8_t>(input, config.min_page, {1, 15});
  config.min_page %= 16;
  Change<uint8_t>(input, config.timeout, {0, 255});
  Change<uint16_t>(input, config.vectors, {1, 2, 64});
  config.vectors = std::clamp<uint16_t>(config.vectors, 1, 64);
  Change<uint16_t>(input, config.queues, {1, 64});
  config.queues = std::clamp<uint16_t>(config.queues, 1, 64);
  const uint8_t flags = input.Byte();
  config.write_cache = (flags & 1) == 0;
  config.shadow_doorbells = (flags & 2) != 0;
  config.deallocate = (flags & 4) == 0;
  config.write_zeroes = (flags & 8) == 0;
  config.function_reset = (flags & 16) == 0;
  testing::NvmeModelNamespace& space = config.namespaces.front();
  space.blocks = 2048;
  if ((flags & 32) != 0) space.block_size = 4096;
  Change<uint16_t>(input, space.boundary, {1, 3, 8, 65535});
  return config;
}

struct Patches {
  bool any = false;
};

Patches AddPatches(Input& input, NvmeModelConfig& config) {
  Patches patches;
  for (int left = input.Byte() % 8; left > 0; --left) {
    const uint8_t where = input.Byte();
    config.patches.push_back({.of_controller = (where & 1) != 0,
                              .offset = static_cast<uint16_t>(input.Word() % 512),
                              .value = input.Byte()});
    patches.any = true;
  }
  return patches;
}

bool AddFaults(Input& input, NvmeModel& model) {
  bool any = false;
  for (int left = 4; left > 0 && !input.empty(); --left) {
    const uint8_t what = input.Byte();
    model.Add({.kind = static_cast<NvmeModelFault::Kind>(what % 9),
               .admin = (what & 0x40) != 0,
               .skip = input.Byte() % 8U,
               .times = 1U + input.Byte() % 4,
               .delay_ns = 1'000'000,
               .id_xor = input.Word()});
    any = true;
  }
  return any;
}

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  __builtin_trap();
}

void Use(TestDisk& disk, const testing::DmaMemory& memory, bool must_succeed) {
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> list;
  const auto add = [&](BlockOp op, uint64_t offset, Pieces pieces) {
    list.push_back(
        requests.emplace_back(std::make_unique<TestRequest>(op, offset, std::move(pieces))).get());
  };
  for (uint32_t i = 0; i < 6; ++i) add(BlockOp::kWrite, i * 4096, {{memory.At(i * 4096, 4096)}});
  add(BlockOp::kRead, 4096, {{memory.At(1 << 20, 256 << 10)}});
  add(BlockOp::kWrite, 8192, {{memory.At(2 << 20, 100), memory.At(3 << 20, 3996)}});
  add(BlockOp::kFlush, 0, {});
  disk.Run(list);  // aborts if one is never answered
  for (const auto& request : requests) {
    if (must_succeed && request->result != 0) Fail("a sound controller's request failed");
  }
  disk.Run(list, /*cancel=*/true);
}

void Run(Input& input, const std::string& path) {
  NvmeModelConfig config = TakeConfig(input);
  const Patches patches = AddPatches(input, config);
  NvmeModel model(config);
  const bool faults = AddFaults(input, model);
  const testing::VfioUserServer server(path, model);
  testing::DmaMemory memory;
  auto device = OpenVfioUserDevice(path);
  if (!device.ok()) return;
  auto controller = CreateNvmeController(*std::move(device),
                                         {.timeout = kTimeout, .open_limit = kOpenLimit}, Logger());
  if (!controller.ok()) return;
  auto opened = NvmeDevice::Create(*std::move(controller), {});
  const MemoryRegion region = memory.region();
  if (!opened.ok() || !(*opened)->MapMemory({&region, 1}).ok()) return;
  TestDisk disk(*std::move(opened), IoThread::Waiter::kEpoll);
  if (disk.status().ok()) Use(disk, memory, !patches.any && !faults);
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  static const ringside::testing::TempDirectory directory;
  static const size_t warm = [] {  // what is made at first use stays
    Input nothing(nullptr, 0);
    Run(nothing, directory / "socket");
    return ringside::testing::CountEntries("/proc/self/fd");
  }();
  const size_t before = std::max(warm, ringside::testing::CountEntries("/proc/self/fd"));
  const absl::Time start = absl::Now();
  Input input(data, size);
  Run(input, directory / "socket");
  if (absl::Now() - start > kTooLong) Fail("it took too long");
  if (ringside::testing::CountEntries("/proc/self/fd") > before) {
    Fail("descriptors are left behind");
  }
  return 0;
}
