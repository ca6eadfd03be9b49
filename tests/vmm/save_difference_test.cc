// Machines of which only what has changed is saved, while their guests are at work; and what is
// merged of that.
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <sys/wait.h>
#include <utility>

#include "base/pages.h"
#include "ringside/snapshot_merge.h"
#include "tests/support/huge_pages.h"
#include "tests/support/races.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/saving_machine.h"
#include "vmm/machine_state.h"
#include "vmm/snapshot_writer.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using testing::CheckedLoad;
using ::testing::HasSubstr;

class SaveDifference : public testing::SavingMachine {
 protected:
  static constexpr int kMerged = 100;
  static constexpr SaveOptions kDifference = {.difference = true};
  static constexpr SaveOptions kTrack = {.track = true};

  static SavedMachine StateOf(const std::string& place) {
    const absl::StatusOr<Snapshot> snapshot = OpenAnySnapshot(place);
    EXPECT_TRUE(snapshot.ok()) << snapshot.status();
    return snapshot.ok() ? snapshot->state : SavedMachine();
  }
  // Those of these numbers.
  std::vector<std::string> Places(int first, int last) const {
    std::vector<std::string> places;
    for (int number = first; number <= last; ++number) places.push_back(Place(number));
    return places;
  }
  // Pauses, saves into that place, and lets it go on. False: it is over.
  bool SaveNext(Machine& machine, int number, const SaveOptions& options) const {
    if (!machine.Pause().ok()) return false;
    EXPECT_EQ(machine.Save(Place(number), options), absl::OkStatus());
    machine.Resume();
    return true;
  }
  // Saves differences from `number` on, the last of them with all of the memory beside it, and ends
  // the machine. Returns that last one's number.
  int SaveChain(std::unique_ptr<Machine> machine, int number, int count) {
    for (; count > 1 && SaveNext(*machine, number, kDifference); ++number, --count) {
      testing::Delay(static_cast<int>(random_() % 20'000));
    }
    EXPECT_TRUE(machine->Pause().ok());
    EXPECT_EQ(machine->Save(Place(number), kDifference), absl::OkStatus());
    EXPECT_EQ(machine->Save(Place(kWhole)), absl::OkStatus());
    return number;
  }
  // What is merged of all up to this one is what the machine's memory was.
  void ExpectMerged(int last) {
    std::vector<std::string> places = Places(0, last);
    std::ranges::shuffle(places, random_);
    ASSERT_EQ(MergeSnapshots(places, Place(kMerged)), absl::OkStatus());
    const SavedMachine merged = StateOf(Place(kMerged)), whole = StateOf(Place(kWhole));
    EXPECT_FALSE(merged.difference.has_value());
    EXPECT_EQ(merged.memory.crc, whole.memory.crc);
    EXPECT_EQ(merged.memory.regions, whole.memory.regions);
    EXPECT_EQ(merged.memory.identity, StateOf(Place(last)).memory.identity);
  }

  // From what is merged, with a disk as its guest has left it.
  void ExpectGoesOn(MachineConfig config) {
    GoOnFrom(Place(kMerged), config);
    const auto machine = Begin(config);
    for (int i = 0; i < 100; ++i) ExpectProgress(*machine);
    EXPECT_FALSE(IsOver(*machine)) << machine->Wait().detail;
    EXPECT_THAT(console_.Output(), ::testing::Not(HasSubstr("FAIL")));
  }

  static constexpr int kWhole = 99;
  std::mt19937 random_{1};
};

class SaveDifferenceUnderLoad : public SaveDifference,
                                public ::testing::WithParamInterface<CheckedLoad> {};

TEST_P(SaveDifferenceUnderLoad, AChainOfTenIsTheMemoryAsItWas) {
  MachineConfig config = ConfigOf(GetParam(), "60s");
  auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(SaveNext(*machine, 0, kTrack));
  const int last = SaveChain(std::move(machine), 1, 10);
  EXPECT_EQ(last, 10);
  ExpectMerged(last);
  const PageRuns pages = StateOf(Place(last)).difference->pages;
  EXPECT_GT(PagesOf(pages), 0U);
  EXPECT_LT(PagesOf(pages), config.memory / kPageSize / 4) << "it is no difference";
  ExpectGoesOn(config);
}

// KVM notes small pages there, too.
TEST_F(SaveDifference, OfHugePages) {
  const testing::SetAsideHugePages pool(kGuestHugePages);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  MachineConfig config = ConfigOf({Engine::kIoUring, "irq", 1}, "60s");
  config.huge_pages = HugePages::k2M;
  auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(SaveNext(*machine, 0, kTrack));
  const int last = SaveChain(std::move(machine), 1, 3);
  ExpectMerged(last);
  EXPECT_LT(PagesOf(StateOf(Place(last)).difference->pages), config.memory / kPageSize / 4)
      << "it is no difference";
  config.restore_memory = RestoreMemory::kCopied;
  ExpectGoesOn(config);
}

// The first is what the machine has of its own, which nobody has noted.
TEST_P(SaveDifferenceUnderLoad, OfOneThatIsACopy) {
  MachineConfig config = ConfigOf(GetParam(), "60s");
  auto machine = Begin(config);
  ExpectProgress(*machine);
  SaveAndEnd(std::move(machine), Place(0));
  GoOnFrom(Place(0), config);
  machine = Begin(config);
  ExpectProgress(*machine);
  const int last = SaveChain(std::move(machine), 1, 4);
  ExpectMerged(last);
  ExpectGoesOn(config);
}

INSTANTIATE_TEST_SUITE_P(, SaveDifferenceUnderLoad,
                         ::testing::Values(CheckedLoad{Engine::kIoUring, "poll", 1},
                                           CheckedLoad{Engine::kIoUring, "irq", 2},
                                           CheckedLoad{Engine::kThreads, "irq", 1}),
                         [](const auto& info) { return NameOf(info.param); });

// Of which the guest uses the lower; what lies above 4 GiB is in the file behind that.
TEST_F(SaveDifference, OfMemoryInTwoSlots) {
  MachineConfig config = ConfigOf({Engine::kIoUring, "irq", 1}, "60s");
  config.memory = (uint64_t{3} << 30) + 64 * kMiB;
  auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(SaveNext(*machine, 0, kTrack));
  ASSERT_TRUE(machine->Pause().ok());
  // As a device would write there.
  const GuestMemory& memory = machine->internals().memory();
  std::byte* const high = memory.At(uint64_t{4} << 30, 64 * kMiB) + 5 * kPageSize - 4;
  memory.Writes(high, 8);
  std::memset(high, 7, 8);
  machine->Resume();
  const int last = SaveChain(std::move(machine), 1, 2);
  ExpectMerged(last);
  constexpr uint64_t kFirstHigh = (uint64_t{3} << 30) / kPageSize;
  const PageRun highest = StateOf(Place(1)).difference->pages.back();
  EXPECT_EQ(highest.first, kFirstHigh + 4);
  EXPECT_EQ(highest.count, 2U);
}

TEST_F(SaveDifference, NeedsSomethingToBeADifferenceTo) {
  auto machine = Begin(Config("rw=randread runtime=60s"));
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  const auto refused = [&] {
    const absl::Status status = machine->Save(Place(50), kDifference);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("save all of the machine with track=on first"));
    EXPECT_FALSE(fs::exists(Place(50)));
  };
  refused();
  ASSERT_EQ(machine->Save(Place(0), kTrack), absl::OkStatus());
  ASSERT_EQ(machine->Save(Place(1), kDifference), absl::OkStatus());
  EXPECT_EQ(PagesOf(StateOf(Place(1)).difference->pages), 0U) << "it has not run meanwhile";
  ASSERT_EQ(machine->Save(Place(2)), absl::OkStatus());
  refused();
  ASSERT_EQ(MergeSnapshots(Places(0, 1), Place(kMerged)), absl::OkStatus());
  EXPECT_EQ(StateOf(Place(kMerged)).memory.crc, StateOf(Place(0)).memory.crc);
}

// What was noted is still there.
TEST_F(SaveDifference, OneThatFailsIsMadeUpForByTheNext) {
  auto machine = Begin(ConfigOf({Engine::kIoUring, "irq", 1}, "60s"));
  ExpectProgress(*machine);
  ASSERT_TRUE(SaveNext(*machine, 0, kTrack));
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  EXPECT_FALSE(machine->Save(Place(0), kDifference).ok()) << "a snapshot is there";
  // Once it is about to get that name.
  const auto be_in_the_way = [&](auto, auto) { fs::create_directory(Place(1) + "/memory"); };
  EXPECT_FALSE(machine->Save(Place(1), kDifference, be_in_the_way).ok());
  fs::remove_all(Place(1));
  machine->Resume();
  ExpectMerged(SaveChain(std::move(machine), 1, 1));
}

// A working machine's snapshot, and three differences.
class MergeTest : public SaveDifference {
 protected:
  void SetUp() override {
    SaveDifference::SetUp();
    if (IsSkipped()) return;
    auto machine = Begin(ConfigOf({Engine::kIoUring, "irq", 1}, "60s"));
    ExpectProgress(*machine);
    ASSERT_TRUE(SaveNext(*machine, 0, kTrack));
    for (const int number : {1, 2, 3}) {
      ExpectProgress(*machine);
      ASSERT_TRUE(SaveNext(*machine, number, kDifference));
    }
  }
  std::string Refusal(const std::vector<std::string>& places) const {
    const absl::Status status = MergeSnapshots(places, Place(kMerged));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(fs::exists(Place(kMerged)));
    return std::string(status.message());
  }
};

TEST_F(MergeTest, WhatDoesNotBelongTogetherIsRefused) {
  EXPECT_THAT(Refusal(Places(1, 3)), HasSubstr("all of these are differences"));
  EXPECT_THAT(
      Refusal({Place(0), Place(1), Place(3)}),
      HasSubstr("none of the others is a difference to '" + Place(1) + "', such as '" + Place(3)));
  EXPECT_THAT(Refusal({Place(0), Place(1), Place(1)}), HasSubstr("each once"));
  EXPECT_THAT(Refusal({Place(0), Place(0)}), HasSubstr("each once"));
  MachineConfig config = Config("");
  for (const int number : {1, 3}) {
    GoOnFrom(Place(number), config);
    EXPECT_THAT(Machine::Create(config).status(),
                IsBadInput("only what has changed since another snapshot", "snapshot merge"));
  }
}

TEST_F(MergeTest, OnesOfOnesThatAreMergedFollowOnIt) {
  ASSERT_EQ(MergeSnapshots(Places(0, 3), Place(kMerged)), absl::OkStatus());
  ASSERT_EQ(MergeSnapshots(Places(0, 2), Place(60)), absl::OkStatus());
  ASSERT_EQ(MergeSnapshots({Place(60), Place(3)}, Place(61)), absl::OkStatus());
  EXPECT_EQ(StateOf(Place(61)).memory.crc, StateOf(Place(kMerged)).memory.crc);
  ASSERT_EQ(MergeSnapshots({Place(61)}, Place(62)), absl::OkStatus()) << "a copy";
}

TEST_F(MergeTest, WhatIsDamagedIsNotMerged) {
  const std::string memory = Read(Place(2) + "/memory");
  ASSERT_GT(memory.size(), 2 * kPageSize);
  std::string damaged = memory;
  damaged[damaged.size() - kPageSize - 1] ^= 1;
  Write(Place(2) + "/memory", damaged);
  EXPECT_THAT(Refusal(Places(0, 3)), HasSubstr("has another content than was saved"));
  Write(Place(2) + "/memory", memory.substr(kPageSize));
  EXPECT_THAT(Refusal(Places(0, 3)), HasSubstr("bytes instead of"));
  Write(Place(2) + "/memory", memory);
  const std::string state = Read(Place(2) + "/state");
  for (size_t bit = state.size() * 8 - 3; bit < state.size() * 8; bit -= 997) {
    std::string changed = state;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    Write(Place(2) + "/state", changed);
    EXPECT_THAT(Refusal(Places(0, 3)), HasSubstr("state")) << bit;
  }
  Write(Place(2) + "/state", state);
  ASSERT_EQ(MergeSnapshots(Places(0, 3), Place(kMerged)), absl::OkStatus());
  EXPECT_EQ(MergeSnapshots(Places(0, 3), Place(kMerged)).code(),
            absl::StatusCode::kFailedPrecondition)
      << "it is there already";
}

// Snapshots of 64 pages that are written as a machine's are; what each has stands in an array, too.
class MergePagesTest : public SaveDifference {
 protected:
  static constexpr uint64_t kPages = 64;
  using Content = std::array<uint8_t, kPages>;  // a page has bytes of one value

  void WriteSnapshot(int number, const Content& content, std::optional<SavedDifference> difference,
                     const SnapshotIdentity& identity) {
    const PageRuns all = {{0, kPages}};
    std::string memory;
    for (const PageRun& run : difference.has_value() ? difference->pages : all) {
      for (uint64_t page = run.first; page < run.end(); ++page) {
        memory.append(kPageSize, static_cast<char>(content[page]));
      }
    }
    const auto memory_of = *GuestMemory::Create(
        std::array{GuestMemory::Range{0, std::max<uint64_t>(memory.size(), kPageSize)}});
    MemoryRegion region = memory_of->regions().front();
    region.size = memory.size();
    std::ranges::copy(std::as_bytes(std::span(memory)), region.host);
    SavedMachine state = template_;
    state.memory = {.identity = identity, .size = kPages * kPageSize, .regions = 1};
    state.difference = std::move(difference);
    const auto writer = *SnapshotWriter::In(Place(number));
    MemoryImage image = FileImage(state);
    ASSERT_EQ(
        WriteMemoryImage(
            std::span(&region, memory.empty() ? 0 : 1), true, writer->memory(),
            writer->memory_path(), [](uint64_t, uint64_t) { return absl::OkStatus(); }, image),
        absl::OkStatus());
    state.memory.crc = image.crc;
    ASSERT_EQ(writer->Commit(EncodeMachine(state)), absl::OkStatus());
  }
  void SetUp() override {
    SaveDifference::SetUp();
    if (IsSkipped()) return;
    SaveAndEnd(Begin(Config("end=spin")), Place(50));
    template_ = StateOf(Place(50));
  }
  SavedMachine template_;
};

TEST_F(MergePagesTest, EachPageIsThatOfTheLastWhoHasIt) {
  for (int round = 0; round < 25; ++round) {
    Content content;
    for (uint8_t& page : content) page = static_cast<uint8_t>(random_() % 3);
    SnapshotIdentity identity = {1};
    WriteSnapshot(0, content, std::nullopt, identity);
    const int last = 1 + static_cast<int>(random_() % 5);
    for (int number = 1; number <= last; ++number) {
      PageRuns pages;
      const uint64_t of = 1 + random_() % 6, share = random_() % 4;
      for (uint64_t page = 0; page < kPages; ++page) {
        if ((page / of + random_() % 2) % 3 >= share) continue;
        Append(pages, page);
        content[page] = static_cast<uint8_t>(random_() % 4);
      }
      const SnapshotIdentity base = std::exchange(identity, {static_cast<uint8_t>(number + 1)});
      WriteSnapshot(number, content, SavedDifference{base, pages}, identity);
    }
    ASSERT_EQ(MergeSnapshots(Places(0, last), Place(kMerged)), absl::OkStatus());
    const std::string merged = Read(Place(kMerged) + "/memory");
    ASSERT_EQ(merged.size(), (kPages + 1) * kPageSize);
    for (uint64_t page = 0; page < kPages; ++page) {
      ASSERT_EQ(merged.substr(page * kPageSize, kPageSize),
                std::string(kPageSize, static_cast<char>(content[page])))
          << round << ", page " << page;
    }
    for (int number = 0; number <= last; ++number) fs::remove_all(Place(number));
    fs::remove_all(Place(kMerged));
  }
}

// Whenever that is, there is a whole snapshot or none, and the next merge does it.
TEST_F(MergeTest, AKilledOneLeavesNothingInTheWay) {
  int kills = 0;
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(MergeSnapshots(Places(0, 3), Place(kMerged)).ok() ? 0 : 1);
    testing::Delay(static_cast<int>(random_() % 30'000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) ++kills;
    const absl::StatusOr<Snapshot> merged = OpenSnapshot(Place(kMerged));
    if (!merged.ok()) {
      EXPECT_EQ(merged.status().code(), absl::StatusCode::kNotFound) << merged.status();
      continue;
    }
    EXPECT_EQ(VerifyMemoryImage(merged->state.memory, merged->memory, "merged",
                                [](uint64_t, uint64_t) {}),
              absl::OkStatus());
    fs::remove_all(Place(kMerged));
  }
  EXPECT_GT(kills, 3);
  ASSERT_EQ(MergeSnapshots(Places(0, 3), Place(kMerged)), absl::OkStatus());
}

// A memory alone, such as one for a handler, is no leaving of a merge that was killed; one beside
// the state that it was to get is.
TEST_F(MergeTest, WhatIsNotOursIsLeftAlone) {
  fs::create_directory(Place(kMerged));
  fs::copy_file(Place(0) + "/memory", Place(kMerged) + "/memory");
  const auto merge = [&] { return MergeSnapshots(Places(0, 3), Place(kMerged)); };
  EXPECT_THAT(merge().message(), HasSubstr("/memory': File exists"));
  fs::copy_file(Place(1) + "/state", Place(kMerged) + "/state.partial");
  EXPECT_THAT(merge().message(), HasSubstr("save into a directory that has no snapshot yet"));
  EXPECT_EQ(Read(Place(kMerged) + "/memory"), Read(Place(0) + "/memory"));
  fs::remove(Place(kMerged) + "/state.partial");
  fs::copy_file(Place(0) + "/state", Place(kMerged) + "/state.partial");
  EXPECT_EQ(merge(), absl::OkStatus());
}

TEST_F(MergeTest, OneWritesADirectoryAtATime) {
  {
    const auto writer = *SnapshotWriter::In(Place(70));
    EXPECT_THAT(SnapshotWriter::In(Place(70)).status().message(),
                HasSubstr("another save or merge is writing there"));
    fs::rename(Place(70), Place(71));
    ASSERT_EQ(MergeSnapshots(Places(0, 1), Place(70)), absl::OkStatus());
  }
  EXPECT_TRUE(OpenSnapshot(Place(70)).ok()) << "what is in the moved directory was cleared up";
  EXPECT_TRUE(fs::is_empty(Place(71)));
}

TEST_F(MergeTest, WhatBecomesShorterMeanwhileIsNotMerged) {
  int merged = 0;
  const absl::Status status =
      MergeSnapshots(Places(0, 3), Place(kMerged), {.verifying = {}, .merging = [&](auto, auto) {
                                                      if (merged++ == 0)
                                                        fs::resize_file(Place(1) + "/memory", 0);
                                                    }});
  EXPECT_THAT(status.message(), HasSubstr("has 0 bytes instead of"));
  EXPECT_FALSE(fs::exists(Place(kMerged)));
  EXPECT_THAT(MergeSnapshots({}, Place(kMerged)), IsBadInput("nothing to merge", "give snapshots"));
}

}  // namespace
}  // namespace ringside
