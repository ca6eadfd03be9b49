// The files of a saved machine, damaged, exchanged, of other machines and of other hosts.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/vmm/saving_machine.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SavedFileTest : public testing::SavingMachine {
 protected:
  void SetUp() override {
    SavingMachine::SetUp();
    if (IsSkipped()) return;
    config_ = Config("rw=randread runtime=60s");
    config_.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
    auto machine = Begin(config_);
    ExpectProgress(*machine);
    SaveAndEnd(std::move(machine), Place(1));
    GoOnFrom(Place(1), config_);
    state_ = Read(Place(1) + "/state");
  }
  absl::Status Restore() const { return Machine::Create(config_).status(); }
  static absl::Status Decode(std::string_view bytes) {
    return DecodeMachine(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()))
        .status();
  }

  MachineConfig config_;
  std::string state_;
};

TEST_F(SavedFileTest, EveryChangedBitIsFound) {
  ASSERT_EQ(Decode(state_), absl::OkStatus());
  // Those of headers, one of each byte elsewhere: they are all under the same checksums.
  for (size_t at = 0; at < state_.size(); ++at) {
    for (int bit = 0; bit < (at < 256 ? 8 : 1); ++bit) {
      const auto mask = static_cast<char>(1 << (at < 256 ? bit : static_cast<int>(at % 8)));
      state_[at] = static_cast<char>(state_[at] ^ mask);
      ASSERT_FALSE(Decode(state_).ok()) << "byte " << at << ", bit " << bit;
      state_[at] = static_cast<char>(state_[at] ^ mask);
    }
  }
}

TEST_F(SavedFileTest, EveryTruncationAndAddendumIsFound) {
  for (size_t size = 0; size < state_.size(); ++size) {
    ASSERT_FALSE(Decode(state_.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(Decode(state_ + '\0').ok());
  EXPECT_FALSE(Decode(state_ + state_).ok());
}

TEST_F(SavedFileTest, WhatIsWrongIsRefusedByName) {
  Write(Place(1) + "/state", state_.substr(0, 100));
  EXPECT_THAT(Restore().message(), HasSubstr("/state': the state is damaged"));
  Write(Place(1) + "/state", state_);
  ASSERT_EQ(Restore(), absl::OkStatus());

  const std::string memory = Place(1) + "/memory";
  const auto size = fs::file_size(memory);
  fs::resize_file(memory, size - 1);
  EXPECT_THAT(Restore().message(), HasSubstr("has 67112959 bytes instead of 67112960"));
  fs::resize_file(memory, size - 4096);
  fs::resize_file(memory, size);
  EXPECT_THAT(Restore().message(), HasSubstr("is not one, or is damaged"));
  fs::remove(memory);
  EXPECT_EQ(Restore().code(), absl::StatusCode::kNotFound);
}

// What this very KVM has made is not compared with what it offers, which takes its time.
TEST_F(SavedFileTest, AStateOfAnotherHostIsComparedWithThisOne) {
  constexpr uint32_t kMemoryEncryption = 1 << 13;  // CPUID 0x7.0 ECX, which no KVM offers
  SavedMachine state = OpenSnapshot(Place(1))->state;
  ASSERT_TRUE(state.host.kvm.known());
  for (kvm_cpuid_entry2& leaf : state.vcpus.front().cpuid) {
    if (leaf.function == 7 && leaf.index == 0) leaf.ecx |= kMemoryEncryption;
  }
  const auto restore = [&] {
    const std::vector<uint8_t> bytes = EncodeMachine(state);
    Write(Place(1) + "/state", std::string(bytes.begin(), bytes.end()));
    return Restore();
  };
  EXPECT_EQ(restore(), absl::OkStatus());
  state.host.kvm.device_inode += 1;
  EXPECT_THAT(restore().message(), HasSubstr("which this host's KVM does not offer"));
  state.host.kvm = {};
  EXPECT_THAT(restore().message(), HasSubstr("which this host's KVM does not offer"));
}

TEST_F(SavedFileTest, OtherMemoryIsNoneOfThisState) {
  auto machine = Begin(config_);
  SaveAndEnd(std::move(machine), Place(2));
  fs::rename(Place(2) + "/memory", Place(1) + "/memory");
  EXPECT_THAT(Restore().message(), HasSubstr("belongs to another snapshot"));
}

TEST_F(SavedFileTest, WhatAMemoryHoldsIsVerifiedWhenThatIsAsked) {
  const auto verify = [&] {
    const absl::StatusOr<Snapshot> snapshot = OpenSnapshot(Place(1));
    if (!snapshot.ok()) return snapshot.status();
    return VerifyMemoryImage(snapshot->state.memory, snapshot->memory, "memory",
                             [](uint64_t, uint64_t) {});
  };
  ASSERT_EQ(verify(), absl::OkStatus());
  std::fstream file(MemoryPath(Place(1)), std::ios::binary | std::ios::in | std::ios::out);
  for (const std::streamoff at : {std::streamoff{0x100000}, std::streamoff{60 * kMiB}}) {
    char byte = 0;
    file.seekg(at).read(&byte, 1);
    file.seekp(at).put(static_cast<char>(byte + 1)).flush();
    EXPECT_THAT(verify().message(), HasSubstr("another content")) << at;
    file.seekp(at).put(byte).flush();
  }
  EXPECT_EQ(verify(), absl::OkStatus());
}

// It needs its files no more then, and is saved as any machine is.
TEST_F(SavedFileTest, CopiedMemoryIsVerifiedAndItsOwn) {
  config_.restore_memory = RestoreMemory::kCopied;
  auto machine = Begin(config_);
  fs::resize_file(MemoryPath(Place(1)), 0);
  ExpectProgress(*machine);
  SaveAndEnd(std::move(machine), Place(2));
  config_.restore = Place(2);
  ExpectProgress(*Begin(config_));
  std::fstream file(MemoryPath(Place(2)), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(40 * kMiB).put('x').flush();
  EXPECT_THAT(Restore().message(), HasSubstr("has another content than was saved"));
  config_.restore_memory = RestoreMemory::kMapped;
  EXPECT_EQ(Restore(), absl::OkStatus());
}

TEST_F(SavedFileTest, AnotherMachineIsRefused) {
  config_.disks.push_back({.backend = NullConfig{.size = 16 * kMiB}});
  EXPECT_THAT(Restore().message(), HasSubstr("'ringside snapshot info' lists, in that order"));
  config_.disks.clear();
  EXPECT_THAT(Restore().message(), HasSubstr("'ringside snapshot info' lists, in that order"));
}

// What another host's KVM told of, though the guest cannot see it, is no reason to refuse.
TEST_F(SavedFileTest, AnMsrThatThisHostLacksIsMissedOnlyIfTheGuestHasIt) {
  constexpr uint32_t kOfProcessorTrace = 0x587, kNobodys = 0x12345;
  const auto restore_with = [&](uint32_t msr, size_t times = 1) {
    absl::StatusOr<Snapshot> snapshot = OpenSnapshot(Place(1));
    if (!snapshot.ok()) return snapshot.status();
    std::vector<kvm_msr_entry>& msrs = snapshot->state.vcpus[0].msrs;
    msrs.insert(msrs.end(), times, {.index = msr, .reserved = 0, .data = 1});
    const std::vector<uint8_t> bytes = EncodeMachine(snapshot->state);
    Write(Place(1) + "/state", std::string(bytes.begin(), bytes.end()));
    const absl::Status status = Restore();
    Write(Place(1) + "/state", state_);
    return status;
  };
  EXPECT_EQ(restore_with(kOfProcessorTrace), absl::OkStatus());
  EXPECT_THAT(restore_with(kNobodys).message(), HasSubstr("does not take MSR 0x12345"));
  // Also where there are more than KVM takes in one call.
  constexpr uint32_t kLstar = 0xc0000082;
  EXPECT_EQ(restore_with(kLstar, 600), absl::OkStatus());
}

TEST_F(SavedFileTest, ItIsSavedWhileItIsPausedAndWhereThereIsNoneYet) {
  auto machine = Begin(config_);
  EXPECT_EQ(machine->Save(Place(2)).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(machine->Pause().ok());
  EXPECT_THAT(machine->Save(Place(1)).message(), HasSubstr("that has no snapshot yet"));
  EXPECT_EQ(Read(Place(1) + "/state"), state_);
  EXPECT_EQ(machine->Save("/dev/null/none").code(), absl::StatusCode::kFailedPrecondition);
  uint64_t told = 0;
  EXPECT_EQ(machine->Save(Place(3), {},
                          [&](uint64_t done, uint64_t of) {
                            EXPECT_LE(told, done);
                            EXPECT_LE(done, of);
                            told = done;
                          }),
            absl::OkStatus());
  EXPECT_GT(told, kMiB);
  machine->Resume();
  ExpectProgress(*machine);
}

// What a save that was killed has left is removed, whenever that was.
TEST_F(SavedFileTest, NothingOfOthersIsRemoved) {
  auto machine = Begin(config_);
  ASSERT_TRUE(machine->Pause().ok());
  const std::string state = Place(2) + "/state.partial", memory = Place(2) + "/memory.partial",
                    working_set = Place(2) + "/working-set";
  const auto save = [&] { return machine->Save(Place(2)); };
  const auto expect_refused = [&](const std::string& path) {
    const absl::Status status = save();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("'" + path + "' is nothing that a save has left"));
    EXPECT_FALSE(fs::exists(Place(2) + "/state"));
  };
  fs::create_directory(Place(2));
  Write(state, "RSSTATE? No.");
  expect_refused(state);
  EXPECT_EQ(Read(state), "RSSTATE? No.");
  fs::remove(state);
  fs::create_directory(state);
  expect_refused(state);
  fs::remove(state);
  Write(memory, "of others");
  expect_refused(memory);
  Write(state, state_.substr(0, 8));
  fs::create_symlink(memory, working_set);
  expect_refused(working_set);
  fs::remove(working_set);
  Write(working_set, "a list");
  expect_refused(working_set);
  EXPECT_EQ(Read(working_set), "a list");
  EXPECT_EQ(Read(memory), "of others") << "nothing is removed where something is in the way";
  Write(working_set, state_);
  EXPECT_EQ(save(), absl::OkStatus());
  EXPECT_FALSE(fs::exists(working_set));
}

TEST_F(SavedFileTest, WhatASaveWasKilledInIsClearedUp) {
  auto machine = Begin(config_);
  ASSERT_TRUE(machine->Pause().ok());
  // As they are while the memory is written, and after a power cut.
  fs::create_directory(Place(3));
  ASSERT_EQ(machine->Save(Place(2), {},
                          [&](uint64_t, uint64_t) {
                            for (const char* const name : {"/state.partial", "/memory.partial"}) {
                              fs::copy_file(Place(2) + name, Place(3) + name,
                                            fs::copy_options::overwrite_existing);
                            }
                          }),
            absl::OkStatus());
  ASSERT_GT(fs::file_size(Place(3) + "/memory.partial"), 0u);
  EXPECT_EQ(machine->Save(Place(3)), absl::OkStatus());
  fs::create_directory(Place(4));
  Write(Place(4) + "/state.partial", "");
  Write(Place(4) + "/memory.partial", "the beginning");
  EXPECT_EQ(machine->Save(Place(4)), absl::OkStatus());
}

}  // namespace
}  // namespace ringside
