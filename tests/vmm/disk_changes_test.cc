// Disks that grow, and whose backends are exchanged, while guests use them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/stat.h>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"
#include "tests/support/block/failing_filter.h"
#include "tests/support/block/shared_view.h"
#include "tests/support/races.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/pausing_machine.h"
#include "tests/support/vmm/recording_events.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using testing::Failing;
using ::testing::HasSubstr;
using testing::SharedConfig;
using testing::SpinUntil;
using testing::TempFile;

#ifdef RINGSIDE_TSAN
constexpr const char* kLoad = "rw=randrw verify=1 size=1M qd=1,16 wait=irq runtime=50ms";
#else
constexpr const char* kLoad = "rw=randrw verify=1 size=1M qd=1,16 wait=irq runtime=200ms";
#endif
constexpr int kRounds = 15;  // of each call
constexpr const char* kEndless = "rw=randread qd=4 runtime=60s wait=irq";

class DiskChangesTest : public testing::PausingMachine {
 protected:
  static DiskStatistics Disk(Machine& machine) { return machine.Statistics().disks[0]; }
  uint64_t FileSize() const {
    struct stat info = {};
    fstat(image_.fd(), &info);
    return static_cast<uint64_t>(info.st_size);
  }
  static std::string Text(const absl::Status& status) { return std::string(Message(status)); }
  // The machine's image as storage that several backends can be.
  std::shared_ptr<BlockDevice> Shared() const {
    return *FileDevice::Create({.path = image_.path()}, Logger());
  }
};

TEST_F(DiskChangesTest, AFileGrowsAndTheGuestUsesIt) {
  // Beyond what the file has at first.
  MachineConfig config = Config("rw=randrw verify=1 size=32M bs=64k qd=16 runtime=50ms");
  const auto machine = Make(config);
  EXPECT_EQ(Disk(*machine).size, 16 * kMiB);
  const absl::StatusOr<uint64_t> size = machine->ResizeDisk("disk0", 32 * kMiB);
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(*size, 32 * kMiB);
  EXPECT_EQ(FileSize(), 32 * kMiB);
  EXPECT_EQ(Disk(*machine).size, 32 * kMiB);
  ASSERT_TRUE(machine->Start().ok());
  EndWell(*machine);
}

TEST_F(DiskChangesTest, ItIsToldByANewGeneration) {
  const auto machine = Begin(Config(kEndless));
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  const auto generation = [&] {
    return machine->internals().SaveDevices()->functions[0].pci.transport.config_generation;
  };
  const uint8_t before = generation();
  ASSERT_TRUE(machine->ResizeDisk("disk0", 16 * kMiB).ok());
  EXPECT_EQ(generation(), before) << "nothing has changed";
  ASSERT_TRUE(machine->ResizeDisk("disk0", 17 * kMiB).ok());
  EXPECT_NE(generation(), before);
  machine->Resume();
  ExpectProgress(*machine);
}

TEST_F(DiskChangesTest, WhatOthersMadeLongerIsLookedAtAgain) {
  const auto machine = Begin(Config(kEndless));
  ASSERT_EQ(ftruncate(image_.fd(), 20 * kMiB), 0);
  EXPECT_EQ(*machine->ResizeDisk("disk0"), 20 * kMiB);
  ASSERT_EQ(ftruncate(image_.fd(), 18 * kMiB), 0);
  EXPECT_THAT(
      machine->ResizeDisk("disk0").status(),
      IsBadInput("disk0 was not resized: it has 20971520 bytes, and 18874368", "larger only"));
  EXPECT_EQ(Disk(*machine).size, 20 * kMiB);
  ExpectProgress(*machine);
}

TEST_F(DiskChangesTest, WhatCannotBeIsRefusedInWords) {
  MachineConfig config = Config(kEndless);
  config.disks.push_back({.backend = NullConfig{.size = kMiB}, .id = "nothing"});
  const TempFile readable(kMiB);
  config.disks.push_back({.backend = FileConfig{.path = readable.path(), .read_only = true}});
  const auto machine = Begin(config);
  EXPECT_THAT(machine->ResizeDisk("disk0", kMiB).status(), IsBadInput("disk0", "larger only"));
  EXPECT_THAT(machine->ResizeDisk("disk0", 17 * kMiB + 100).status(),
              IsBadInput("disk0", "whole blocks"));
  EXPECT_THAT(machine->ResizeDisk("disk2", 2 * kMiB).status(), IsBadInput("disk2", "read-only"));
  EXPECT_EQ(FileSize(), 16 * kMiB);
  EXPECT_EQ(machine->ResizeDisk("nothink").status(),
            absl::NotFoundError("there is no disk 'nothink': did you mean 'nothing'?"));
  EXPECT_TRUE(absl::IsNotFound(machine->ResizeDisk("rng").status()));
  EXPECT_EQ(*machine->ResizeDisk("nothing", 2 * kMiB), 2 * kMiB);
  EXPECT_EQ(machine->Statistics().disks[1].size, 2 * kMiB);
  ExpectProgress(*machine);
}

// With moves, pauses and devices made anew at the same time.
TEST_F(DiskChangesTest, ABackendIsExchangedUnderLoad) {
  const auto storage = Shared();
  MachineConfig config = Config(kLoad);
  config.disks[0].backend = SharedConfig{.storage = storage};
  config.io_threads = {{.id = "a"}, {.id = "b"}};
  const auto machine = Begin(config);
  int swaps = 0;
  // For some time, and then the guest comes to its end by itself.
  const auto often = [&](auto call) {
    return std::thread([&machine, call] {
      std::mt19937 random(1);
      for (int round = 0; round < kRounds && !IsOver(*machine); ++round) {
        call(random);
        testing::Delay(static_cast<int>(random() % 1'000'000));
      }
    });
  };
  std::vector<std::thread> callers;
  callers.push_back(often([&](std::mt19937&) {
    const absl::Status status = machine->SwapDisk("disk0", SharedConfig{.storage = storage});
    EXPECT_TRUE(status.ok()) << status;
    ++swaps;
  }));
  callers.push_back(often([&](std::mt19937& random) {
    (void)machine->MoveQueue("disk0", 0, random() % 2 == 0 ? "a" : "b");
  }));
  callers.push_back(often([&](std::mt19937& random) {
    if (!machine->Pause().ok()) return;
    if (random() % 8 == 0) {
      const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
      EXPECT_TRUE(!state.ok() || machine->internals().RestoreDevices(*state).ok());
    }
    machine->Resume();
  }));
  for (std::thread& caller : callers) caller.join();
  EndWell(*machine);
  EXPECT_GT(swaps, 0);
}

TEST_F(DiskChangesTest, TheFileBeforeIsClosedAndTheNewOneIsTheDisk) {
  const TempFile other(20 * kMiB, ".");
  const auto machine = Begin(Config(kEndless));
  ExpectProgress(*machine);
  const absl::Status busy = machine->SwapDisk("disk0", FileConfig{.path = image_.path()});
  EXPECT_THAT(Text(busy), HasSubstr("disk0 keeps the backend that it has: disk '" + image_.path() +
                                    "' is in use"));
  ASSERT_TRUE(machine->SwapDisk("disk0", FileConfig{.path = other.path()}).ok());
  ExpectProgress(*machine);
  EXPECT_EQ(Disk(*machine).path, other.path());
  EXPECT_EQ(Disk(*machine).size, 20 * kMiB);
  EXPECT_TRUE(FileDevice::Create({.path = image_.path()}, Logger()).ok()) << "its lock is free";
  EXPECT_FALSE(FileDevice::Create({.path = other.path()}, Logger()).ok());
  machine->Stop();
  machine->Wait();
}

TEST_F(DiskChangesTest, WhatCannotStandForItIsRefused) {
  MachineConfig config = Config(kEndless);
  const auto machine = Begin(config);
  const TempFile same(16 * kMiB, "."), small(8 * kMiB, ".");
  const auto swap = [&](const BlockBackend& backend) {
    return machine->SwapDisk("disk0", backend);
  };
  EXPECT_THAT(swap(FileConfig{.path = small.path()}), IsBadInput("8388608 bytes", "as large"));
  EXPECT_THAT(swap(FileConfig{.path = same.path(), .read_only = true}),
              IsBadInput("disk0", "read-only"));
  EXPECT_TRUE(absl::IsNotFound(swap(FileConfig{.path = "/nowhere/image"})));
  EXPECT_THAT(machine->SwapDisk("disk", FileConfig{.path = same.path()}).message(),
              HasSubstr("did you mean 'disk0'?"));
  ExpectProgress(*machine);
  EXPECT_EQ(Disk(*machine).path, image_.path());
  EXPECT_TRUE(FileDevice::Create({.path = same.path()}, Logger()).ok())
      << "what was refused is shut";
}

// In flight for longer than the caller waits.
TEST_F(DiskChangesTest, SlowStorageIsWaitedForWithPatience) {
  MachineConfig config = Config(kEndless);
  config.disks[0].backend = NullConfig{.size = 16 * kMiB, .latency_ns = 500'000'000};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  const absl::Status status =
      machine->SwapDisk("disk0", NullConfig{.size = 16 * kMiB}, absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(Text(status), ContainsRegex("has not answered [1-4] requests"));
  ExpectProgress(*machine);
  EXPECT_TRUE(machine->SwapDisk("disk0", NullConfig{.size = 16 * kMiB}).ok());
  const uint64_t before = Requests(*machine);
  EXPECT_TRUE(SpinUntil([&] { return Requests(*machine) > before + 100; }));
}

TEST_F(DiskChangesTest, WhatWasKeptGoesToTheNewOne) {
  const auto failing = std::make_shared<Failing>();
  failing->every = 100;
  const auto storage = Shared();
  MachineConfig config = Config(kLoad);
  config.disks[0].backend =
      testing::FailingConfig{.backend = SharedConfig{.storage = storage}, .how = failing};
  config.disks[0].rerror = config.disks[0].werror = ErrorAction::kStop;
  const auto machine = Begin(config);
  ASSERT_TRUE(SpinUntil([&] { return machine->paused(); }));
  EXPECT_GT(Disk(*machine).queues[0].kept, 0u);
  const absl::Status status = machine->SwapDisk("disk0", SharedConfig{.storage = storage});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(machine->paused());
  machine->Resume();
  EndWell(*machine);
  EXPECT_EQ(Disk(*machine).queues[0].kept, 0u);
}

}  // namespace
}  // namespace ringside
