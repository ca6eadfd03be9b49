// What becomes of a vfio-user device whose server goes, comes back, or breaks the protocol; and
// what a user is told who gives something else.
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "tests/support/recording_log.h"
#include "tests/support/vfio/vfio_user_fixture.h"
#include "vfio/mmio.h"
#include "vfio/vfio_user_device.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::CountEntries;
using ::testing::HasSubstr;
using testing::kScriptedArea;
using testing::kWaitLimit;
using testing::ScriptedReply;
using testing::SharedMemory;
using testing::WaitForFd;

constexpr char kOpenFiles[] = "/proc/self/fd";
constexpr auto kShort = absl::Seconds(1);  // and yet a busy host opens a device within it

using VfioUserGoneTest = testing::VfioUserTest;
using Script = testing::ScriptedVfioUserServer::Script;

bool Is(const VfioUserMessage& message, VfioUserCommand command) {
  return message.header.command == static_cast<uint16_t>(command);
}

TEST_F(VfioUserGoneTest, ADeviceThatIsGoneReadsAllOnesAndTakesAnything) {
  Serve();
  ASSERT_TRUE(Open().ok());
  auto doorbells = device_->MapBar(0, kScriptedArea, 16);
  ASSERT_TRUE(doorbells.ok());
  const auto events = SetVectors(2);
  EXPECT_FALSE(IsGone());
  server_.reset();
  ASSERT_TRUE(IsGone(kWaitLimit));
  EXPECT_EQ(device_->ReadConfig(PCI_VENDOR_ID, 2), 0xffffu);
  EXPECT_EQ(device_->ReadBar(0, 0x1c), 0xffffffffu);
  device_->WriteBar(0, 0x14, 1);
  StoreRelease(reinterpret_cast<uint32_t*>(*doorbells), 0xfeedU);
  device_->MaskVector(1);
  EXPECT_TRUE(device_->UnmaskVector(1));
  EXPECT_TRUE(absl::IsUnavailable(device_->Reset()));
  EXPECT_TRUE(absl::IsUnavailable(device_->MapBar(0, kScriptedArea, 4).status()));
  EXPECT_TRUE(IsGone());
}

TEST_F(VfioUserGoneTest, ADeviceComesBackAsItWas) {
  Serve();
  ASSERT_TRUE(Open().ok());
  auto doorbells = device_->MapBar(0, kScriptedArea, 16);
  ASSERT_TRUE(doorbells.ok());
  auto* doorbell = reinterpret_cast<uint32_t*>(*doorbells);
  const auto events = SetVectors(3);
  const SharedMemory memory(0x4000);
  const SharedMemory other(0x4000);
  const SharedMemory third(0x4000);
  ASSERT_TRUE(device_->MapDma(memory.At(0x100000)).ok());
  ASSERT_TRUE(device_->MapDma(third.At(0x300000)).ok());
  device_->MaskVector(2);

  server_.reset();
  ASSERT_TRUE(IsGone(kWaitLimit));
  StoreRelease(doorbell, 0xdead0001U);
  // What is asked for meanwhile is there afterwards, too.
  EXPECT_TRUE(device_->MapDma(other.At(0x200000)).ok());
  EXPECT_TRUE(device_->UnmapDma(0x300000, 0x4000).ok());

  Serve();
  ASSERT_TRUE(device_->Reset().ok());
  EXPECT_FALSE(IsGone());
  EXPECT_EQ(server_->Doorbell(), 0u);
  StoreRelease(doorbell, 0xfeedU);
  EXPECT_EQ(server_->Doorbell(), 0xfeedu);
  EXPECT_THAT(server_->mappings(),
              ::testing::UnorderedElementsAre(::testing::Key(0x100000), ::testing::Key(0x200000)));
  EXPECT_TRUE(server_->Interrupt(1));
  EXPECT_TRUE(WaitForFd(events[1].fd(), POLLIN));
  EXPECT_TRUE(testing::SpinUntil([&] { return device_->UnmaskVector(2); }));
  EXPECT_TRUE(server_->Interrupt(2));
  EXPECT_TRUE(WaitForFd(events[2].fd(), POLLIN));
  EXPECT_EQ(server_->CountOf(VfioUserCommand::kReset), 1);
  EXPECT_EQ(device_->ReadConfig(PCI_VENDOR_ID, 2), 0x1b36u);
}

TEST_F(VfioUserGoneTest, AnotherDeviceIsNotTaken) {
  Serve();
  ASSERT_TRUE(Open().ok());
  const Script other = [](const VfioUserMessage& message, ScriptedReply& reply) {
    if (Is(message, VfioUserCommand::kRegionRead) &&
        HeadOf<VfioUserRegionAccess>(message.payload)->offset == PCI_VENDOR_ID) {
      reply.payload.back() = std::byte{0x77};
    }
  };
  server_.reset();
  ASSERT_TRUE(IsGone(kWaitLimit));
  Serve(other);
  const absl::Status status = device_->Reset();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("has come back as another: PCI device "
                                                      "1b36:7710 of class 010802"));
  EXPECT_TRUE(IsGone());
  Serve();
  EXPECT_TRUE(device_->Reset().ok());
  EXPECT_FALSE(IsGone());
}

TEST_F(VfioUserGoneTest, AServerThatGoesAgainWhileItComesBackIsNotBack) {
  Serve();
  ASSERT_TRUE(Open().ok());
  const auto events = SetVectors(2);
  for (const VfioUserCommand last : {VfioUserCommand::kVersion, VfioUserCommand::kGetRegionInfo,
                                     VfioUserCommand::kReset, VfioUserCommand::kSetIrqs}) {
    server_.reset();
    ASSERT_TRUE(IsGone(kWaitLimit));
    Serve([last](const VfioUserMessage& message, ScriptedReply& reply) {
      reply.hangs_up = Is(message, last);
    });
    EXPECT_TRUE(absl::IsUnavailable(device_->Reset())) << static_cast<int>(last);
    EXPECT_TRUE(IsGone());
  }
  Serve();
  EXPECT_TRUE(device_->Reset().ok());
}

TEST_F(VfioUserGoneTest, AServerThatDoesNotAnswerIsGone) {
  std::atomic<bool> is_deaf = false;
  Serve([&](const VfioUserMessage&, ScriptedReply& reply) { reply.is_silent = is_deaf; });
  ASSERT_TRUE(Open(kShort).ok());
  is_deaf = true;
  EXPECT_EQ(device_->ReadBar(0, 0), 0xffffffffu);
  EXPECT_TRUE(IsGone(kWaitLimit));
  server_.reset();
  Serve([&](const VfioUserMessage&, ScriptedReply& reply) { reply.is_silent = is_deaf; });
  EXPECT_TRUE(absl::IsUnavailable(device_->Reset()));
  is_deaf = false;
}

// Each answer is soon enough, and there is always one more to wait for.
TEST_F(VfioUserGoneTest, OpeningHasAnEndHoweverSoonEachAnswerComes) {
  Serve([](const VfioUserMessage&, ScriptedReply&) { absl::SleepFor(absl::Milliseconds(50)); });
  const absl::Time start = absl::Now();
  const absl::Status status =
      OpenVfioUserDevice(path_, {.timeout = kWaitLimit, .limit = absl::Milliseconds(200)}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("its answers take too long in all"));
  EXPECT_LT(absl::Now() - start, kWaitLimit / 2);
}

TEST_F(VfioUserGoneTest, ALimitIsOverWithWhatItIsFor) {
  Serve();
  auto device = OpenVfioUserDevice(path_, {.timeout = kWaitLimit, .limit = kShort});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  const auto events = SetVectors(2);
  ASSERT_TRUE(device_->Reset().ok());
  EXPECT_FALSE(IsGone(kShort + absl::Milliseconds(300)));
}

// Who waits already waits no longer, and nobody connects again.
TEST_F(VfioUserGoneTest, AHurryReachesWhoWaits) {
  std::atomic<bool> is_deaf = false;
  BoundedEvent asked;
  Serve([&](const VfioUserMessage&, ScriptedReply& reply) {
    reply.is_silent = is_deaf;
    if (is_deaf) asked.Notify();
  });
  ASSERT_TRUE(Open(kWaitLimit).ok());
  is_deaf = true;
  const absl::Time start = absl::Now();
  std::thread other([&] {
    EXPECT_TRUE(asked.Wait());
    device_->Hurry(MonotonicNs() + 50'000'000);
  });
  EXPECT_EQ(device_->ReadBar(0, 0), 0xffffffffu);
  EXPECT_LT(absl::Now() - start, kWaitLimit / 2);
  other.join();
  EXPECT_TRUE(IsGone(kWaitLimit));
  is_deaf = false;
  server_.reset();
  Serve();
  EXPECT_TRUE(absl::IsUnavailable(device_->Reset()));
}

// A server that goes and comes for ever.
TEST_F(VfioUserGoneTest, GoingDoesNotFillTheLog) {
  testing::RecordingLog log;
  Serve();
  auto device = OpenVfioUserDevice(path_, {.log = Logger(&log)});
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  for (int i = 0; i < 20; ++i) {
    server_.reset();
    ASSERT_TRUE(IsGone(kWaitLimit));
    Serve();
    ASSERT_TRUE(device_->Reset().ok());
  }
  EXPECT_EQ(log.lines().size(), 3u);
}

// The thread's own commands, for which nobody waits.
TEST_F(VfioUserGoneTest, AServerThatDoesNotAnswerForAVectorIsGone) {
  std::atomic<bool> is_deaf = false;
  Serve([&](const VfioUserMessage&, ScriptedReply& reply) { reply.is_silent = is_deaf; });
  ASSERT_TRUE(Open(kShort).ok());
  const auto events = SetVectors(2);
  is_deaf = true;
  device_->MaskVector(1);
  EXPECT_TRUE(IsGone(kWaitLimit));
  EXPECT_TRUE(device_->UnmaskVector(1));
}

TEST_F(VfioUserGoneTest, AServerThatRefusesAVectorSaysSo) {
  Serve([](const VfioUserMessage& message, ScriptedReply& reply) {
    if (Is(message, VfioUserCommand::kSetIrqs)) reply.error = ENOSPC;
  });
  ASSERT_TRUE(Open().ok());
  const EventFd event = *EventFd::Create();
  const std::vector<int> fds = {event.fd()};
  EXPECT_THAT(std::string(Message(device_->SetVectors(fds))), HasSubstr("No space left"));
  EXPECT_FALSE(IsGone());
  EXPECT_FALSE(device_->Reset().ok());
}

// What a server answers that keeps to nothing, while the device is opened or used.
struct Hostile {
  const char* name;
  VfioUserCommand command;
  std::function<void(ScriptedReply&)> change;
};

void PatchWord(ScriptedReply& reply, size_t offset, uint32_t value) {
  std::memcpy(reply.payload.data() + offset, &value, sizeof value);
}

const Hostile kHostile[] = {
    {"another id", VfioUserCommand::kGetInfo, [](auto& reply) { reply.id = 999; }},
    {"another command", VfioUserCommand::kGetInfo, [](auto& reply) { reply.command = 13; }},
    {"short", VfioUserCommand::kGetInfo, [](auto& reply) { reply.payload.resize(15); }},
    {"empty", VfioUserCommand::kGetRegionInfo, [](auto& reply) { reply.payload.clear(); }},
    {"shorter than it says", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) {
       if (reply.payload.size() > 32) reply.payload.resize(40);
     }},
    {"another region", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) { PatchWord(reply, 8, 77); }},
    {"room without end", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) { PatchWord(reply, 0, 0xffffffff); }},
    {"capabilities in a circle", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) {
       if (reply.payload.size() > 32) PatchWord(reply, 32, 0x10099);
       if (reply.payload.size() > 32) PatchWord(reply, 36, 32);
     }},
    {"an area outside", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) {
       if (reply.payload.size() > 48) PatchWord(reply, 48, 0x4000);
     }},
    {"an area across the end", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) {
       if (reply.payload.size() > 56) PatchWord(reply, 60, 1);
     }},
    {"an area in the middle of a page", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) {
       if (reply.payload.size() > 48) PatchWord(reply, 48, 0x1004);
     }},
    {"an absurd offset", VfioUserCommand::kGetRegionInfo,
     [](auto& reply) { PatchWord(reply, 28, 0xffffffff); }},
    {"more vectors than there can be", VfioUserCommand::kGetIrqInfo,
     [](auto& reply) { PatchWord(reply, 12, 2049); }},
    {"other interrupts", VfioUserCommand::kGetIrqInfo, [](auto& reply) { PatchWord(reply, 8, 1); }},
    {"more than was asked for", VfioUserCommand::kRegionRead,
     [](auto& reply) { reply.payload.resize(reply.payload.size() + 1); }},
    {"less than was asked for", VfioUserCommand::kRegionRead,
     [](auto& reply) { reply.payload.resize(reply.payload.size() - 1); }},
    {"another count", VfioUserCommand::kRegionRead, [](auto& reply) { PatchWord(reply, 12, 1); }},
    {"a command instead", VfioUserCommand::kReset,
     [](auto& reply) { reply.flags = kVfioUserTypeCommand; }},
    {"no message", VfioUserCommand::kReset, [](auto& reply) { reply.raw = std::string(16, '\0'); }},
    {"a huge message", VfioUserCommand::kReset,
     [](auto& reply) { reply.raw = std::string(16, '\x7f'); }},
    {"the end", VfioUserCommand::kReset, [](auto& reply) { reply.hangs_up = true; }},
    {"an error without a number", VfioUserCommand::kReset,
     [](auto& reply) { reply.flags |= kVfioUserError; }},
    {"an error that is none", VfioUserCommand::kReset,
     [](auto& reply) { reply.error = 0x80000000; }},
};

TEST_F(VfioUserGoneTest, NonsenseIsRefusedAndLeavesNothingBehind) {
  {  // what is made at first use stays
    Serve();
    ASSERT_TRUE(Open(kShort).ok());
    device_.reset();
    server_.reset();
  }
  const size_t before = CountEntries(kOpenFiles);
  for (const Hostile& each : kHostile) {
    SCOPED_TRACE(each.name);
    Serve([&](const VfioUserMessage& message, ScriptedReply& reply) {
      if (Is(message, each.command)) each.change(reply);
    });
    const absl::Status status = Open(kShort);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(Message(status)), HasSubstr(path_));
    EXPECT_EQ(std::string(Message(status)).find('\n'), std::string::npos);
    device_.reset();
    server_.reset();
    EXPECT_EQ(CountEntries(kOpenFiles), before);
  }
}

// Descriptors that nobody asked for, beside any answer.
TEST_F(VfioUserGoneTest, DescriptorsThatAreNotWantedAreClosed) {
  {
    Serve();
    ASSERT_TRUE(Open().ok());
    device_.reset();
    server_.reset();
  }
  const size_t before = CountEntries(kOpenFiles);
  const UniqueFd file = testing::DevNull();
  Serve([&](const VfioUserMessage&, ScriptedReply& reply) {
    reply.fds.resize(kVfioUserMaxMessageFds, file.get());
  });
  ASSERT_TRUE(Open().ok());
  for (int i = 0; i < 10; ++i) device_->ReadConfig(0, 4);
  device_.reset();
  server_.reset();
  EXPECT_EQ(CountEntries(kOpenFiles), before + 1);
}

TEST_F(VfioUserGoneTest, ARegionWithoutADescriptorIsNotMapped) {
  Serve([](const VfioUserMessage&, ScriptedReply& reply) { reply.fds.clear(); });
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->MapBar(0, kScriptedArea, 4).status()));
}

// An access to such pages would end the process.
TEST_F(VfioUserGoneTest, AFileThatIsTooShortIsNotMapped) {
  const UniqueFd file = testing::RegularFile("short");
  Serve([&](const VfioUserMessage& message, ScriptedReply& reply) {
    if (Is(message, VfioUserCommand::kGetRegionInfo) && !reply.fds.empty()) {
      reply.fds = {file.get()};
    }
  });
  ASSERT_TRUE(Open().ok());
  const absl::Status status = device_->MapBar(0, kScriptedArea, 4).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("file ends before"));
}

// Where its file can be sealed.
TEST_F(VfioUserGoneTest, ABarThatIsMappedIsNotCutShort) {
  const UniqueFd file(memfd_create("bar", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), 0x2000), 0);
  Serve([&](const VfioUserMessage& message, ScriptedReply& reply) {
    if (Is(message, VfioUserCommand::kGetRegionInfo) && !reply.fds.empty()) {
      reply.fds = {file.get()};
    }
  });
  ASSERT_TRUE(Open().ok());
  auto doorbells = device_->MapBar(0, kScriptedArea, 16);
  ASSERT_TRUE(doorbells.ok());
  ASSERT_EQ(ftruncate(file.get(), 0), -1);
  StoreRelease(reinterpret_cast<uint32_t*>(*doorbells), 1U);
}

class VfioUserMisuseTest : public testing::VfioUserTest {
 protected:
  void ExpectRefused(const std::string& path, const std::string& says) const {
    const absl::Status status = OpenVfioUserDevice(path, {.timeout = kShort}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
                absl::IsPermissionDenied(status) || absl::IsFailedPrecondition(status))
        << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(says));
    EXPECT_THAT(std::string(Message(status)), HasSubstr(path.substr(0, 100)));
  }
};

TEST_F(VfioUserMisuseTest, WhatIsNoServerIsNamed) {
  ExpectRefused(path_, "No such file or directory; start the server");
  ExpectRefused(directory_.path(),
                "is no socket; give the one a vfio-user server listens on, such");
  std::ofstream(path_) << "file";
  ExpectRefused(path_, "is no socket");
  ExpectRefused("/" + std::string(200, 'x'), "too long");
  Serve();
  server_.reset();  // and leaves its socket
  ExpectRefused(path_, "no server listens there");
}

TEST_F(VfioUserMisuseTest, AServerThatWillNotDoIsNamed) {
  const auto with_version = [](uint16_t major, const std::string& json) {
    return [=](const VfioUserMessage& message, ScriptedReply& reply) {
      if (!Is(message, VfioUserCommand::kVersion)) return;
      reply.payload.clear();
      AppendTo(reply.payload, VfioUserVersion{.major = major, .minor = 0});
      for (const char each : json) AppendTo(reply.payload, each);
    };
  };
  Serve(with_version(1, ""));
  ExpectRefused(path_, "speaks version 1.0 of vfio-user, and 0.1 is needed");
  Serve(with_version(0, std::string("{\"capabilities\":{\"max_msg_fds\":0}}") + '\0'));
  ExpectRefused(path_, "takes no descriptors");
  Serve([](const VfioUserMessage&, ScriptedReply& reply) { reply.is_silent = true; });
  ExpectRefused(path_, "has not answered for 1s; servers take one client at a time");
  Serve([](const VfioUserMessage&, ScriptedReply& reply) { reply.hangs_up = true; });
  ExpectRefused(path_, "closed the connection");
  Serve([](const VfioUserMessage& message, ScriptedReply& reply) {
    if (Is(message, VfioUserCommand::kGetInfo)) PatchWord(reply, 4, 0);
  });
  ExpectRefused(path_, "it is no PCI device");
}

TEST_F(VfioUserMisuseTest, SpdksDirectoryWillDo) {
  testing::ScriptedVfioUserServer server(directory_ / "cntrl");
  auto device = OpenVfioUserDevice(directory_.path());
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->name(), directory_ / "cntrl");
}

}  // namespace
}  // namespace ringside
