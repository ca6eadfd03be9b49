// Overlays under random requests, restarted, killed and with their power cut, beside a model in
// memory of what a guest may read then. With --gtest_repeat=N each run has another seed.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>

#include "block/block_backend.h"
#include "faults/fault_plan.h"
#include "nvme/nvme_controllers.h"
#include "overlay/overlay_device.h"
#include "tests/overlay/crash_model.h"
#include "tests/overlay/overlay_rig.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::CrashModel;
using testing::CrashRecord;
using testing::kModelSector;
using testing::kNever;
using testing::RunOn;
using testing::Stamp;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kBaseSize = 40 * kMiB + 512;
constexpr uint64_t kSize = 64 * kMiB + 2560;
constexpr Stamp kOfBase = Stamp{1} << 62;

// Where requests go: at the start, around a boundary of map pages, around the end of the base, at
// the end of the disk.
struct Region {
  uint64_t from;
  uint64_t to;
};
constexpr std::array<Region, 4> kRegions = {{{0, 48 * kKiB},
                                             {32 * kMiB - 12 * kKiB, 32 * kMiB + 12 * kKiB},
                                             {kBaseSize - 10 * kKiB, kBaseSize + 10 * kKiB},
                                             {kSize - 10 * kKiB, kSize}}};

struct Setting {
  const char* name;
  size_t threads;
  bool has_backup;  // so that dirty bits and intents are kept
  bool over_overlay;
  const char* directory;
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name;
}

std::string ReadWhole(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// What is in the file, and holes where it has some.
void CopySparse(const std::string& from, const std::string& to) {
  const UniqueFd source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd copy(open(to.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  struct stat info;
  ASSERT_EQ(fstat(source.get(), &info), 0);
  ASSERT_EQ(ftruncate(copy.get(), info.st_size), 0);
  off_t at = 0;
  while ((at = lseek(source.get(), at, SEEK_DATA)) >= 0) {
    const off_t end = lseek(source.get(), at, SEEK_HOLE);
    std::string bytes(static_cast<size_t>(end - at), '\0');
    ASSERT_EQ(pread(source.get(), bytes.data(), bytes.size(), at), end - at);
    ASSERT_EQ(pwrite(copy.get(), bytes.data(), bytes.size(), at), end - at);
    at = end;
  }
}

class Sectors {
 public:
  explicit Sectors(uint64_t bytes) : words_(bytes / sizeof(Stamp)) {}
  Sectors& Fill(Stamp stamp) {
    std::ranges::fill(words_, stamp);
    return *this;
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  uint64_t bytes() const { return words_.size() * sizeof(Stamp); }
  // Nothing where a sector is of several.
  std::optional<Stamp> At(uint64_t index) const {
    const auto first = words_.begin() + static_cast<ptrdiff_t>(index * 64);
    if (!std::all_of(first, first + 64, [&](Stamp each) { return each == *first; })) return {};
    return *first;
  }

 private:
  std::vector<Stamp> words_;
};

class CrashTest : public ::testing::TestWithParam<Setting> {
 protected:
  using IoThreads = std::deque<std::unique_ptr<IoThread>>;
  // A device with a channel on each thread.
  class Open {
   public:
    Open(const OverlayConfig& config, const IoThreads& io_threads) {
      NvmeControllers controllers{Logger()};
      auto device = BlockBackend(config).Open({.log = Logger(), .nvme = controllers});
      EXPECT_TRUE(device.ok()) << device.status();
      if (!device.ok()) return;
      device_ = *std::move(device);
      for (const auto& io_thread : io_threads) {
        Side& side = sides_.emplace_back();
        side.thread = io_thread.get();
        RunOn(*side.thread, [&] { side.channel = *device_->Open(*side.thread); });
      }
    }
    ~Open() {
      for (Side& side : sides_) RunOn(*side.thread, [&] { side.channel.reset(); });
    }
    bool ok() const { return device_ != nullptr; }
    void Begin(BlockRequest& request, size_t side) {
      sides_[side].thread->Begin(
          [channel = sides_[side].channel.get(), &request] { channel->Submit(request); });
    }
    int Run(BlockOp op, uint64_t offset, Sectors& memory) {
      Asked request(op, offset, memory);
      Begin(request, 0);
      request.done_event.WaitOrAbort();
      return request.result;
    }

   private:
    struct Side {
      IoThread* thread;
      std::unique_ptr<BlockChannel> channel;
    };
    struct Asked : BlockRequest {
      Asked(BlockOp what, uint64_t where, Sectors& memory)
          : BlockRequest{.op = what, .offset = where},
            segment{.host = memory.data(),
                    .length = static_cast<uint32_t>(memory.bytes()),
                    .region = 0} {
        segments = {&segment, 1};
        done = [](BlockRequest& self) { static_cast<Asked&>(self).done_event.Notify(); };
      }
      Segment segment;
      testing::BoundedEvent done_event;
    };
    std::unique_ptr<BlockDevice> device_;
    std::deque<Side> sides_;
  };

  // A guest's request, with what the model is to know of it.
  struct Request : BlockRequest {
    std::unique_ptr<Sectors> memory;
    Segment segment = {};
    CrashModel::Change change;
    CrashTest* test = nullptr;
    testing::BoundedEvent done_event;
  };

  void SetUp() override {
    static uint64_t runs = 0;
    random_ = ++runs;
    directory_ = MakeDirectory(GetParam().directory);
    // Of what a power cut leaves nothing needs to be flushed anywhere.
    crashed_ = MakeDirectory("/dev/shm");
    for (size_t i = 0; i < GetParam().threads; ++i) {
      io_threads_.push_back(*IoThread::Start("crash-test", Waiter()));
    }
    one_thread_.push_back(*IoThread::Start("check", Waiter()));
    const UniqueFd base(open(Path("base").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(ftruncate(base.get(), kBaseSize), 0);
    std::map<uint64_t, Stamp> content;
    for (const Region& region : kRegions) {
      for (uint64_t at = region.from; at < region.to; at += kModelSector) {
        const uint64_t sector = at / kModelSector;
        content[sector] = at < kBaseSize ? kOfBase | sector : 0;
        if (at >= kBaseSize) continue;
        Sectors bytes(kModelSector);
        bytes.Fill(content[sector]);
        ASSERT_EQ(pwrite(base.get(), bytes.data(), kModelSector, static_cast<off_t>(at)), 512);
      }
    }
    model_.Start(content);
  }
  void TearDown() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::remove_all(crashed_);
  }
  static std::string MakeDirectory(const std::string& where) {
    std::string name = where + "/ringside-crash-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }

  // To end a context of Linux AIO takes the kernel 30 ms.
  static IoThread::Waiter Waiter() {
    return testing::UringStatus().ok() ? IoThread::Waiter::kUring : IoThread::Waiter::kEpoll;
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  uint64_t Random(uint64_t below) { return NextRandom(random_) % below; }

  OverlayConfig Config(const std::string& overlay) {
    BlockBackend base =
        FileConfig{.path = Path("base"), .read_only = true, .cache = CacheMode::kWriteback};
    if (GetParam().over_overlay) {
      base = OverlayConfig{.base = base, .path = Path("middle"), .read_only = true};
    }
    return {.base = base, .path = overlay, .size = kSize};
  }
  void MakeMiddle() {
    Open middle({.base = FileConfig{.path = Path("base"), .read_only = true},
                 .path = Path("middle"),
                 .size = kSize},
                one_thread_);
    std::map<uint64_t, Stamp> content = model_.content();
    for (auto& [sector, stamp] : content) {
      if (sector % 24 >= 11) continue;
      stamp = (Stamp{1} << 61) | sector;
      Sectors memory(kModelSector);
      ASSERT_EQ(middle.Run(BlockOp::kWrite, sector * kModelSector, memory.Fill(stamp)), 0);
    }
    model_.Start(content);
  }
  uint64_t RecordLength() {
    struct stat info;
    return stat(Path("record").c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }

  void Pick(Request& request);
  void RunBatch(Open& open);
  void Note(const Request& request);
  std::map<uint64_t, Stamp> ReadAll(Open& open);
  void Check(const std::map<uint64_t, Stamp>& content, uint64_t place, const std::string& what);
  void CheckDirty(const std::string& overlay, const std::map<uint64_t, Stamp>& content);
  void BeginBackup();
  void Crash(const CrashRecord& record, uint64_t place, uint64_t random, const std::string& to);

  std::string directory_;
  std::string crashed_;
  IoThreads io_threads_;
  IoThreads one_thread_;
  uint64_t random_ = 1;
  CrashModel model_;
  std::map<uint64_t, Stamp> at_backup_;
  std::atomic<uint64_t> clock_{1};
  Stamp last_stamp_ = 0;
};

void CrashTest::Pick(Request& request) {
  const Region& region = kRegions[Random(kRegions.size())];
  const uint64_t sectors = (region.to - region.from) / kModelSector;
  const uint64_t first = Random(sectors);
  uint64_t count = 1 + Random(Random(4) == 0 ? 40 : 9);
  count = std::min(count, sectors - first);
  request.offset = region.from + first * kModelSector;
  const uint64_t kind = Random(20);
  request.op = kind < 11   ? BlockOp::kWrite
               : kind < 13 ? BlockOp::kDiscard
               : kind < 15 ? BlockOp::kWriteZeroes
               : kind < 18 ? BlockOp::kFlush
                           : BlockOp::kRead;
  request.durable = request.op != BlockOp::kRead && request.op != BlockOp::kFlush && Random(8) == 0;
  request.unmap = Random(2) == 0;
  request.change = {.durable = request.durable};
  if (request.op == BlockOp::kWrite || request.op == BlockOp::kRead) {
    request.memory = std::make_unique<Sectors>(count * kModelSector);
    if (request.op == BlockOp::kWrite) {
      request.change.stamp = ++last_stamp_;
      request.memory->Fill(last_stamp_);
    }
    request.segment = {.host = request.memory->data(),
                       .length = static_cast<uint32_t>(request.memory->bytes()),
                       .region = 0};
    request.segments = {&request.segment, 1};
  } else if (request.op != BlockOp::kFlush) {
    request.length = count * kModelSector;
  }
  request.test = this;
  request.done = [](BlockRequest& done) {
    auto& self = static_cast<Request&>(done);
    self.PutBack();
    self.change.place_at_end = self.test->RecordLength();
    self.change.end = self.test->clock_.fetch_add(1);
    self.done_event.Notify();
  };
}

// Some requests at once.
void CrashTest::RunBatch(Open& open) {
  std::deque<Request> requests;
  const uint64_t count = 1 + Random(6);
  for (uint64_t i = 0; i < count; ++i) {
    Request& request = requests.emplace_back();
    Pick(request);
    request.change.place_at_begin = RecordLength();
    request.change.begin = clock_.fetch_add(1);
    open.Begin(request, Random(GetParam().threads));
  }
  for (Request& request : requests) request.done_event.WaitOrAbort();
  for (const Request& request : requests) Note(request);
  // Reads after all, as they may see any of these.
  for (const Request& request : requests) {
    if (request.op != BlockOp::kRead) continue;
    for (uint64_t i = 0; i < request.memory->bytes() / kModelSector; ++i) {
      const uint64_t sector = request.offset / kModelSector + i;
      ASSERT_TRUE(
          model_.MayRead(sector, request.memory->At(i), request.change.begin, request.change.end))
          << "sector " << sector;
    }
  }
}

void CrashTest::Note(const Request& request) {
  ASSERT_EQ(request.result, 0) << static_cast<int>(request.op) << " at " << request.offset;
  if (request.op == BlockOp::kFlush) {
    model_.Add(CrashModel::Flush{request.change.begin, request.change.place_at_end});
  } else if (request.op != BlockOp::kRead) {
    const uint64_t bytes = request.op == BlockOp::kWrite ? request.memory->bytes() : request.length;
    const uint64_t first = request.offset / kModelSector;
    model_.Add(first, first + bytes / kModelSector, request.change);
  }
}

std::map<uint64_t, Stamp> CrashTest::ReadAll(Open& open) {
  std::map<uint64_t, Stamp> content;
  for (const Region& region : kRegions) {
    Sectors memory(region.to - region.from);
    EXPECT_EQ(open.Run(BlockOp::kRead, region.from, memory), 0);
    for (uint64_t i = 0; i < memory.bytes() / kModelSector; ++i) {
      const auto stamp = memory.At(i);
      const uint64_t sector = region.from / kModelSector + i;
      EXPECT_TRUE(stamp.has_value()) << "sector " << sector << " is torn";
      content[sector] = stamp.value_or(kNever);
    }
  }
  return content;
}

void CrashTest::Check(const std::map<uint64_t, Stamp>& content, uint64_t place,
                      const std::string& what) {
  for (const auto& [sector, stamp] : content) {
    ASSERT_TRUE(model_.MayBe(sector, stamp, place))
        << what << ": sector " << sector << " holds " << std::hex << stamp;
  }
}

// No block that differs from the backup is left out of the next one.
void CrashTest::CheckDirty(const std::string& overlay, const std::map<uint64_t, Stamp>& content) {
  if (!GetParam().has_backup) return;
  auto file = OverlayFile::Open(overlay, OverlayAccess::kRead);
  ASSERT_TRUE(file.ok()) << file.status();
  auto loaded = file->Load();
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->corrupt_pages, 0u);
  for (const auto& [sector, stamp] : content) {
    if (stamp == at_backup_.at(sector)) continue;
    ASSERT_TRUE(loaded->map->IsDirty(sector * kModelSector / kOverlayBlock)) << sector;
  }
}

void CrashTest::BeginBackup() {
  if (!GetParam().has_backup) return;
  auto file = OverlayFile::Open(Path("overlay"), OverlayAccess::kWrite);
  ASSERT_TRUE(file.ok()) << file.status();
  OverlayHeader header = file->header();
  ++header.period;
  ASSERT_TRUE(file->WriteHeader(header).ok());
  at_backup_ = model_.content();
}

void CrashTest::Crash(const CrashRecord& record, uint64_t place, uint64_t random,
                      const std::string& to) {
  CopySparse(Path("before"), to);
  const UniqueFd file(open(to.c_str(), O_RDWR | O_CLOEXEC));
  record.Replay(place, random, file.get());
}

TEST_P(CrashTest, WhatWasFlushedIsThereWhateverHappens) {
  constexpr int kRounds = 12;
  constexpr int kBatches = 25;
  constexpr size_t kPlaces = 60;
  if (GetParam().over_overlay) MakeMiddle();
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const std::string what = absl::StrFormat("round %d", round);
    if (round % 3 == 1) BeginBackup();
    if (at_backup_.empty()) at_backup_ = model_.content();
    {
      OverlayConfig config = Config(Path("overlay"));
      config.record = {.path = Path("record")};
      std::filesystem::remove(Path("record"));
      Open open(config, io_threads_);
      ASSERT_TRUE(open.ok()) << what;
      CopySparse(Path("overlay"), Path("before"));
      for (int i = 0; i < kBatches && !HasFailure(); ++i) RunBatch(open);
      Check(ReadAll(open), kNever, what);
    }
    const CrashRecord record(ReadWhole(Path("record")));
    for (size_t i = 0; i < kPlaces && !HasFailure(); ++i) {
      const uint64_t place = record.places()[Random(record.places().size())];
      const uint64_t random = i % 4 < 2 ? i % 4 : Random(UINT64_MAX);
      Crash(record, place, random, crashed_ + "/overlay");
      std::map<uint64_t, Stamp> content;
      {
        Open open(Config(crashed_ + "/overlay"), one_thread_);
        ASSERT_TRUE(open.ok()) << what;
        content = ReadAll(open);
      }
      const std::string where = absl::StrFormat("%s, cut at %d, random %d", what, place, random);
      Check(content, place, where);
      CheckDirty(crashed_ + "/overlay", content);
    }
    // It goes on after one of them, or as it was closed.
    const bool crashes = round % 2 == 0;
    if (crashes) {
      Crash(record, record.places()[Random(record.places().size())], Random(UINT64_MAX),
            Path("overlay"));
    }
    Open open(Config(Path("overlay")), one_thread_);
    ASSERT_TRUE(open.ok()) << what;
    const std::map<uint64_t, Stamp> content = ReadAll(open);
    if (!crashes) Check(content, kNever, what + ", closed");
    model_.Start(content);
  }
}

INSTANTIATE_TEST_SUITE_P(With, CrashTest,
                         ::testing::Values(Setting{"OneThread", 1, false, false, "/dev/shm"},
                                           Setting{"TwoThreads", 2, false, false, "/dev/shm"},
                                           Setting{"Backups", 2, true, false, "/dev/shm"},
                                           Setting{"OverlayOnOverlay", 2, true, true, "/dev/shm"},
                                           Setting{"Disk", 2, true, false, "."}),
                         [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace ringside
