// Machines whose memory comes from a handler of page faults: good ones, ones that go, and ones that
// do not answer.
#include "vmm/memory_handler.h"

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/userfault.h"
#include "tests/support/races.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/saving_machine.h"
#include "tests/support/vmm/test_memory_handler.h"
#include "vmm/machine.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using testing::CheckedLoad;
using ::testing::HasSubstr;
using testing::TestMemoryHandler;
using Conduct = TestMemoryHandler::Conduct;
using Then = TestMemoryHandler::Then;

class MemoryHandlerTest : public testing::SavingMachine {
 protected:
  void SetUp() override {
    SavingMachine::SetUp();
    if (IsSkipped()) return;
    const absl::Status status = Userfault::Create().status();
    if (!status.ok()) GTEST_SKIP() << status.message();
  }
  std::string Socket() const { return directory_ / "handler"; }
  // Saves a machine that has been at work, and has `config` go on from there by the handler.
  void Save(MachineConfig& config) {
    auto machine = Begin(config);
    ExpectProgress(*machine);
    SaveAndEnd(std::move(machine), Place(1));
    GoOnFrom(Place(1), config);
    config.restore_handler = Socket();
  }
  // Of one that reads for as long as it lives.
  MachineConfig SavedReader() {
    MachineConfig config = Config("rw=randread qd=8 runtime=60s wait=irq");
    config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
    Save(config);
    return config;
  }
  std::string MemoryFile() const { return MemoryPath(Place(1)); }
  static absl::StatusOr<std::unique_ptr<Machine>> CreateWithin(absl::Duration patience,
                                                               const MachineConfig& config) {
    MachineHooks hooks;
    hooks.handler_patience = patience;
    return Machine::Internals::Create(config, hooks);
  }
};

class HandledUnderLoad : public MemoryHandlerTest,
                         public ::testing::WithParamInterface<CheckedLoad> {
 protected:
  static constexpr uint64_t kPages = 60;  // about as many as the guest below needs at all

  // A guest that works on without an end, on a disk that several restores may write.
  MachineConfig SavedWorker() {
    MachineConfig config = ConfigOf(GetParam(), "600s");
    absl::StrReplaceAll({{"verify=1 ", ""}}, &config.command_line);
    Save(config);
    return config;
  }
};

// What was saved is verified by the guest that goes on. Nobody looks for the memory's file but the
// handler.
TEST_P(HandledUnderLoad, TheGuestGoesOnWithAllOfItsData) {
  MachineConfig config = ConfigOf(GetParam(), "300ms");
  Save(config);
  fs::rename(MemoryFile(), Place(2));
  const TestMemoryHandler handler(Socket(), Place(2));
  const auto machine = Begin(config);
  EndWell(*machine);
  EXPECT_GT(handler.pages(), 50u);
}

INSTANTIATE_TEST_SUITE_P(, HandledUnderLoad,
                         ::testing::Values(CheckedLoad{Engine::kIoUring, "poll", 1},
                                           CheckedLoad{Engine::kIoUring, "irq", 2},
                                           CheckedLoad{Engine::kNative, "irq", 1},
                                           CheckedLoad{Engine::kThreads, "irq", 1}),
                         [](const auto& info) { return NameOf(info.param); });

// As Firecracker's src/vmm/src/persist.rs writes it.
TEST_F(MemoryHandlerTest, TheMessageIsFirecrackers) {
  const MachineConfig config = SavedReader();
  const TestMemoryHandler handler(Socket(), MemoryFile());
  const auto machine = Make(config);
  const auto pieces = nlohmann::json::parse(handler.message());
  ASSERT_EQ(pieces.size(), 2u);
  const auto address = [&](int piece) {
    return std::to_string(pieces[piece]["base_host_virt_addr"].get<uint64_t>());
  };
  EXPECT_EQ(handler.message(),
            "[{\"base_host_virt_addr\":" + address(0) +
                ",\"size\":67108864,\"offset\":0,\"page_size\":4096,\"page_size_kib\":4096},"
                "{\"base_host_virt_addr\":" +
                address(1) +
                ",\"size\":4096,\"offset\":67108864,\"page_size\":4096,\"page_size_kib\":4096}]");
  EXPECT_EQ(fs::file_size(MemoryFile()), 67108864u + 4096u) << "which the pieces are all of";
}

// Each region has its own piece of the file.
TEST_F(MemoryHandlerTest, RegionsFollowOneAnotherInTheFile) {
  constexpr uint64_t kSize = 1 << 16;
  const std::array<GuestMemory::Range, 2> ranges = {{{0, kSize}, {uint64_t{4} << 30, kSize}}};
  const auto saved = *GuestMemory::Create(ranges);
  for (uint64_t at = 0; at < kSize; at += sizeof(uint64_t)) {
    const uint64_t other = ~at;
    std::memcpy(saved->At(at, sizeof at), &at, sizeof at);
    std::memcpy(saved->At(ranges[1].guest_address + at, sizeof at), &other, sizeof at);
  }
  const UniqueFd file(open(Place(1).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  MemoryImage image = *NewMemoryImage(saved->regions());
  ASSERT_EQ(WriteMemoryImage(
                saved->regions(), true, file, Place(1),
                [](uint64_t, uint64_t) { return absl::OkStatus(); }, image),
            absl::OkStatus());
  const TestMemoryHandler server(Socket(), Place(1));
  const auto memory = *GuestMemory::OnDemand(ranges);
  const auto handler = MemoryHandler::Connect(
      *memory, {Socket(), Place(1), image, testing::kWaitLimit, [] { ADD_FAILURE(); }});
  ASSERT_TRUE(handler.ok()) << handler.status();
  ASSERT_EQ((*handler)->Begin(), absl::OkStatus());
  (*handler)->IsMade();
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(std::memcmp(memory->regions()[i].host, saved->regions()[i].host, kSize), 0) << i;
  }
  EXPECT_EQ(server.pages(), 2 * kSize / 4096 + 1);
}

// The more it has given, the further the machine has come; all of what may fault is met.
TEST_P(HandledUnderLoad, AHandlerThatGoesEndsItsMachineAlone) {
  const MachineConfig config = SavedWorker();
  TestConsole other_console;
  fs::copy_file(image_.path(), Place(2));
  MachineConfig mapped = config;
  mapped.restore_handler.clear();
  mapped.console = other_console.config();
  mapped.disks[0].backend = FileConfig{.path = Place(2)};
  const auto other = Begin(mapped);
  int ended = 0;
  for (uint64_t pages = 0; pages < kPages; pages = pages * 3 / 2 + 1) {
    TestMemoryHandler handler(Socket(), MemoryFile(), {.pages = pages, .then = Then::kClose});
    const auto machine = Machine::Create(config);
    absl::Status status = machine.status();
    if (machine.ok()) {
      ASSERT_TRUE((*machine)->Start().ok());
      testing::Delay(5'000'000);
      handler.Close();  // if it has not
      const MachineEnd& end = (*machine)->Wait();
      EXPECT_EQ(end.kind, EndKind::kFailure) << pages;
      status = absl::FailedPreconditionError(end.detail);
      ++ended;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << pages;
    EXPECT_THAT(status.message(), HasSubstr("has closed its connection under the machine"));
    EXPECT_THAT(status.message(), HasSubstr(Socket()));
  }
  EXPECT_GT(ended, 2);
  EXPECT_FALSE(IsOver(*other));
}

// A process that listens, as the kernel notes it, and does nothing more until it is killed.
class Listener {
 public:
  explicit Listener(int fd) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const UniqueFd told(ends[0]), tells(ends[1]);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // of a test that is aborted nothing is left
      if (listen(fd, 1) != 0 || write(tells.get(), "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char listens = 0;
    if (read(told.get(), &listens, 1) != 1) std::abort();
  }
  ~Listener() { Kill(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(std::exchange(process_, -1), nullptr, 0);
  }

 private:
  pid_t process_ = -1;
};

// As handlers do that need nothing more of it, and have it collected as garbage some time.
TEST_F(MemoryHandlerTest, AHandlerThatHangsUpServesOnUntilItsProcessEnds) {
  const MachineConfig config = SavedReader();
  std::optional<Listener> process;
  Conduct conduct = {.hangs_up = true};
  conduct.listen = [&](int fd) { process.emplace(fd); };
  const TestMemoryHandler handler(Socket(), MemoryFile(), conduct);
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  process->Kill();
  const MachineEnd& end = machine->Wait();
  EXPECT_EQ(end.kind, EndKind::kFailure);
  EXPECT_THAT(end.detail, HasSubstr("has ended under the machine"));
}

// Wherever the machine needs a page to be made, it gives up.
TEST_F(MemoryHandlerTest, AMachineWhoseHandlerDoesNotAnswerIsNotMade) {
  const MachineConfig config = SavedReader();
  int refused = 0;
  for (uint64_t pages = 0;; ++pages) {
    ASSERT_LT(pages, 1000u);
    const TestMemoryHandler handler(Socket(), MemoryFile(), {.pages = pages});
    const auto machine = CreateWithin(absl::Milliseconds(50), config);
    if (machine.ok()) break;
    ++refused;
    EXPECT_EQ(machine.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(machine.status().message(), HasSubstr("has not given within 50ms"));
  }
  EXPECT_GT(refused, 2);
}

// At any time: it is not paused, and ends.
TEST_P(HandledUnderLoad, AMachineWhoseHandlerDoesNotAnswerIsStopped) {
  const MachineConfig config = SavedWorker();
  int stopped = 0;
  for (uint64_t pages = 1; pages < kPages; pages = pages * 3 / 2 + 1) {
    const TestMemoryHandler handler(Socket(), MemoryFile(), {.pages = pages});
    const auto machine = CreateWithin(absl::Seconds(1), config);
    if (!machine.ok()) continue;
    ASSERT_TRUE((*machine)->Start().ok());
    testing::Delay(5'000'000);
    (void)(*machine)->Pause(absl::Milliseconds(10));
    (*machine)->Stop();
    EXPECT_EQ((*machine)->Wait().kind, EndKind::kStopped) << pages;
    ++stopped;
  }
  EXPECT_GT(stopped, 2);
}

TEST_F(MemoryHandlerTest, ASaveThatWaitsForAHandlerEndsWithItsMachine) {
  const MachineConfig config = SavedReader();
  const TestMemoryHandler handler(Socket(), MemoryFile(), {.pages = 500});
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->Pause().ok());
  std::jthread stopper([&] {
    EXPECT_TRUE(handler.AwaitRefusal());
    machine->Stop();
  });
  const absl::Status status = machine->Save(Place(2));
  EXPECT_THAT(status.message(), HasSubstr("has not given all that was asked for"));
  EXPECT_FALSE(fs::exists(Place(2)));
  stopper.join();
  EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
}

TEST_F(MemoryHandlerTest, AMachineIsSavedAndForkedAsEver) {
  MachineConfig config = ConfigOf({Engine::kThreads, "irq", 1}, "100ms");
  Save(config);
  {
    const TestMemoryHandler handler(Socket(), MemoryFile());
    auto machine = Begin(config);
    ASSERT_TRUE(machine->Pause().ok());
    const auto made = machine->MakeTemplate();
    ASSERT_TRUE(made.ok()) << made.status();
    MachineConfig forked = config;
    forked.restore_handler.clear();
    forked.restore.clear();
    forked.from = *made;
    fs::copy_file(image_.path(), Place(3));
    forked.disks[0].backend = FileConfig{.path = Place(3)};
    EXPECT_EQ(Machine::Create(forked).status(), absl::OkStatus());
    SaveAndEnd(std::move(machine), Place(2));
  }
  config.restore_handler.clear();
  GoOnFrom(Place(2), config);
  EndWell(*Begin(config));
}

TEST_F(MemoryHandlerTest, WhatAHandlerIsNotIsSaid) {
  const MachineConfig config = SavedReader();
  EXPECT_THAT(Machine::Create(config).status().message(), HasSubstr("start the handler first"));
  SaveAndEnd(Begin(GuestConfig(console_, "end=spin")), Place(2));
  {
    const TestMemoryHandler handler(Socket(), MemoryPath(Place(2)));
    EXPECT_THAT(Machine::Create(config).status(), IsBadInput(Socket(), "another snapshot"));
  }
  {
    const TestMemoryHandler handler(Socket(), MemoryFile(), {.fill = 'x'});
    EXPECT_THAT(Machine::Create(config).status(), IsBadInput(Socket(), "is not one"));
  }
  const TestMemoryHandler handler(Socket(), MemoryFile(), {.talks = true});
  ExpectProgress(*Begin(config));
}

TEST_F(MemoryHandlerTest, AHandlerIsForTheMemoryOfADirectory) {
  MachineConfig config = SavedReader();
  config.restore_memory = RestoreMemory::kCopied;
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput(Socket(), "leave one of them out"));
  config.restore_memory = RestoreMemory::kAuto;
  config.from = *MachineTemplate::Load(config.restore);
  config.restore.clear();
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput(Socket(), "a template has memory"));
  config.from = nullptr;
  config.kernel = GuestElf();
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput(Socket(), "none to restore"));
}

}  // namespace
}  // namespace ringside
