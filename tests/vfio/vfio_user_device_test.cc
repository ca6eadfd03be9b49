// What a vfio-user device does with a server that keeps to the protocol.
#include "vfio/vfio_user_device.h"

#include <thread>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "tests/support/vfio/vfio_user_fixture.h"
#include "vfio/mmio.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::kScriptedArea;
using testing::kScriptedVectors;
using testing::SharedMemory;
using testing::SpinUntil;
using testing::WaitForFd;

constexpr uint64_t kMemory = 0x10000;

class VfioUserDeviceTest : public testing::VfioUserTest {
 protected:
  void SetUp() override {
    Serve([this](const VfioUserMessage&, testing::ScriptedReply&) {
      while (is_held_) absl::SleepFor(absl::Milliseconds(1));
    });
    const absl::Status status = Open();
    ASSERT_TRUE(status.ok()) << status;
  }
  void TearDown() override {
    is_held_ = false;
    device_.reset();
    server_.reset();
  }
  // From the next command on: behind a read, what came before is answered.
  void Hold() {
    device_->ReadConfig(PCI_VENDOR_ID, 2);
    is_held_ = true;
  }
  static bool Arrives(const EventFd& event) { return WaitForFd(event.fd(), POLLIN); }
  static bool IsQuiet(const EventFd& event) {
    return !WaitForFd(event.fd(), POLLIN, absl::Milliseconds(20));
  }
  bool Unmasks(uint32_t vector) {
    return SpinUntil([&] { return device_->UnmaskVector(vector); });
  }
  bool IsMaskedSoon(uint32_t vector, const EventFd& event) {
    return SpinUntil([&] {
      event.Clear();
      server_->Interrupt(vector);
      return !WaitForFd(event.fd(), POLLIN, absl::ZeroDuration());
    });
  }

  std::atomic<bool> is_held_ = false;  // what the server has done is not answered yet
};

TEST_F(VfioUserDeviceTest, RegistersAreMessages) {
  EXPECT_EQ(device_->name(), path_);
  EXPECT_EQ(device_->ReadConfig(PCI_VENDOR_ID, 2), 0x1b36u);
  EXPECT_EQ(device_->ReadConfig(PCI_CLASS_REVISION + 3, 1), 0x01u);
  device_->WriteConfig(PCI_LATENCY_TIMER, 1, 0x42);
  EXPECT_EQ(server_->Config(PCI_CACHE_LINE_SIZE), 0x4200u);
  device_->WriteBar(0, 0x14, 0x01020304);
  EXPECT_EQ(device_->ReadBar(0, 0x14), 0x01020304u);
  EXPECT_EQ(device_->ReadBar(0, 0x18), 0u);
}

TEST_F(VfioUserDeviceTest, OpensAsTheKernelWould) {
  EXPECT_EQ(device_->ReadConfig(PCI_COMMAND, 2),
            static_cast<uint32_t>(PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE));
  EXPECT_EQ(device_->vectors(), kScriptedVectors);
  EXPECT_FALSE(server_->IsMsixOn());
  EXPECT_EQ(server_->CountOf(VfioUserCommand::kReset), 1);
}

TEST_F(VfioUserDeviceTest, ABarIsMemoryWhereTheServerOffersIt) {
  auto doorbells = device_->MapBar(0, kScriptedArea + 8, 16);
  ASSERT_TRUE(doorbells.ok()) << doorbells.status();
  StoreRelease(reinterpret_cast<uint32_t*>(*doorbells - 8), 0xfeedU);
  EXPECT_EQ(server_->Doorbell(), 0xfeedu);
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->MapBar(0, 0, 16).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->MapBar(0, kScriptedArea, 0x1001).status()));
  EXPECT_TRUE(absl::IsOutOfRange(device_->MapBar(0, testing::kScriptedBarSize, 1).status()));
  EXPECT_TRUE(absl::IsOutOfRange(device_->MapBar(0, 8, ~uint64_t{0}).status()));
  EXPECT_TRUE(absl::IsOutOfRange(device_->MapBar(1, 0, 4).status()));
}

TEST_F(VfioUserDeviceTest, MemoryIsGivenByItsDescriptor) {
  const SharedMemory memory(kMemory);
  DmaMapping mapping = memory.At(0x100000);
  mapping.fd_offset = 0x1000;
  mapping.size = 0x2000;
  ASSERT_TRUE(device_->MapDma(mapping).ok());
  const VfioUserDmaMap told = server_->mappings()[0x100000];
  EXPECT_EQ(told.offset, 0x1000u);
  EXPECT_EQ(told.size, 0x2000u);
  EXPECT_EQ(told.flags, kVfioUserDmaRead | kVfioUserDmaWrite);
  ASSERT_TRUE(device_->UnmapDma(0x100000, 0x2000).ok());
  EXPECT_TRUE(server_->mappings().empty());

  mapping.fd = -1;
  const absl::Status status = device_->MapDma(mapping);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("no memory without a descriptor"));
  mapping = memory.At(0x100000);
  mapping.size = 0x1800;
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->MapDma(mapping)));
  EXPECT_TRUE(server_->mappings().empty());
}

TEST_F(VfioUserDeviceTest, AServerReachesMappedMemoryByMessagesToo) {
  const SharedMemory memory(kMemory);
  ASSERT_TRUE(device_->MapDma(memory.At(0x100000)).ok());
  std::memcpy(memory.data + 0xfffc, "word", 4);
  VfioUserPayload read;
  AppendTo(read, VfioUserDmaAccess{.address = 0x10fffc, .count = 4});
  auto answer = server_->Ask(VfioUserCommand::kDmaRead, read);
  EXPECT_EQ(answer.header.id, 77);
  EXPECT_EQ(answer.header.flags, kVfioUserTypeReply);
  ASSERT_EQ(answer.payload.size(), sizeof(VfioUserDmaAccess) + 4);
  EXPECT_EQ(std::memcmp(answer.payload.data() + sizeof(VfioUserDmaAccess), "word", 4), 0);

  VfioUserPayload write;
  AppendTo(write, VfioUserDmaAccess{.address = 0x100000, .count = 4});
  AppendTo(write, uint32_t{0x64636261});
  // One that wants no answer, and another.
  answer = server_->Ask({.id = 78,
                         .command = static_cast<uint16_t>(VfioUserCommand::kDmaRead),
                         .flags = kVfioUserTypeCommand},
                        read);
  EXPECT_EQ(answer.header.id, 78);
  answer = server_->Ask(VfioUserCommand::kDmaWrite, write);
  EXPECT_EQ(answer.header.flags, kVfioUserTypeReply);
  EXPECT_EQ(answer.payload.size(), sizeof(VfioUserDmaAccess));
  EXPECT_EQ(std::memcmp(memory.data, "abcd", 4), 0);
}

TEST_F(VfioUserDeviceTest, AServerReachesNothingElse) {
  const SharedMemory memory(kMemory);
  ASSERT_TRUE(device_->MapDma(memory.At(0x100000)).ok());
  const auto refuses = [&](VfioUserCommand command, uint64_t address, uint64_t count,
                           size_t data_bytes) {
    VfioUserPayload payload;
    AppendTo(payload, VfioUserDmaAccess{.address = address, .count = count});
    payload.resize(payload.size() + data_bytes);
    const auto answer = server_->Ask(command, payload);
    return (answer.header.flags & kVfioUserError) != 0 && answer.payload.empty();
  };
  constexpr auto kRead = VfioUserCommand::kDmaRead;
  constexpr auto kWrite = VfioUserCommand::kDmaWrite;
  EXPECT_FALSE(refuses(kRead, 0x100000, kMemory, 0));
  EXPECT_TRUE(refuses(kRead, 0x100000, kMemory + 1, 0));
  EXPECT_TRUE(refuses(kRead, 0x0fffff, 1, 0));
  EXPECT_TRUE(refuses(kRead, 0x10ffff, 2, 0));
  EXPECT_TRUE(refuses(kRead, 0x110001, 0, 0));
  EXPECT_TRUE(refuses(kRead, 0x100001, ~uint64_t{0}, 0));
  EXPECT_TRUE(refuses(kRead, 0x100000, 4, 4));
  EXPECT_TRUE(refuses(kWrite, 0x100000, 8, 4));
  EXPECT_TRUE(refuses(kWrite, 0x100000, 4, 8));
  EXPECT_TRUE(refuses(kWrite, 0x10ffff, 2, 2));
  EXPECT_TRUE(refuses(VfioUserCommand::kRegionRead, 0x100000, 4, 0));
  EXPECT_NE(server_->Ask(kRead, VfioUserPayload(3)).header.flags & kVfioUserError, 0u);
  EXPECT_FALSE(IsGone());
  ASSERT_TRUE(device_->UnmapDma(0x100000, kMemory).ok());
  EXPECT_TRUE(refuses(kRead, 0x100000, 4, 0));
}

// The server takes two descriptors a message.
TEST_F(VfioUserDeviceTest, VectorsWriteTheirEventfds) {
  const auto events = SetVectors(kScriptedVectors);
  EXPECT_EQ(server_->CountOf(VfioUserCommand::kSetIrqs), 3);
  EXPECT_TRUE(server_->IsMsixOn());
  for (uint32_t i = 0; i < kScriptedVectors; ++i) {
    EXPECT_TRUE(server_->Interrupt(i));
    EXPECT_TRUE(Arrives(events[i])) << i;
  }
  const auto fewer = SetVectors(2);
  EXPECT_EQ(server_->vectors_set(), 2u);
  EXPECT_TRUE(server_->Interrupt(1));
  EXPECT_TRUE(Arrives(fewer[1]));
  SetVectors(0);
  EXPECT_EQ(server_->vectors_set(), 0u);
  EXPECT_FALSE(server_->IsMsixOn());
  const std::vector<int> too_many(kScriptedVectors + 1, -1);
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->SetVectors(too_many)));
}

TEST_F(VfioUserDeviceTest, AMaskedVectorDisturbsNobody) {
  const auto events = SetVectors(3);
  device_->MaskVector(1);
  ASSERT_TRUE(IsMaskedSoon(1, events[1]));
  EXPECT_TRUE(server_->IsMsixOn());
  server_->Interrupt(2);
  EXPECT_TRUE(Arrives(events[2]));
  EXPECT_TRUE(Unmasks(1));
  server_->Interrupt(1);
  EXPECT_TRUE(Arrives(events[1]));
}

// So SPDK makes no system call for an interrupt any more.
TEST_F(VfioUserDeviceTest, WhenAllAreMaskedTheDeviceSignalsNone) {
  const EventFd event = *EventFd::Create();
  const std::vector<int> fds = {-1, event.fd(), -1};
  ASSERT_TRUE(device_->SetVectors(fds).ok());
  EXPECT_EQ(server_->vectors_set(), 1u);
  const int messages = server_->CountOf(VfioUserCommand::kSetIrqs);
  device_->MaskVector(1);
  EXPECT_TRUE(SpinUntil([&] { return !server_->IsMsixOn(); }));
  EXPECT_TRUE(Unmasks(1));
  EXPECT_TRUE(server_->IsMsixOn());
  EXPECT_EQ(server_->CountOf(VfioUserCommand::kSetIrqs), messages);
  server_->Interrupt(1);
  EXPECT_TRUE(Arrives(event));
}

TEST_F(VfioUserDeviceTest, TheLastWishCounts) {
  const auto events = SetVectors(3);
  for (int i = 0; i < 200; ++i) {
    device_->MaskVector(1);
    device_->UnmaskVector(1);
    if (i % 2 == 0) device_->MaskVector(1);
    if (i % 5 == 0) {
      EXPECT_TRUE(Unmasks(1));
    }
  }
  EXPECT_TRUE(Unmasks(1));
  events[1].Clear();
  server_->Interrupt(1);
  EXPECT_TRUE(Arrives(events[1]));
  device_->MaskVector(1);
  device_->UnmaskVector(1);
  device_->MaskVector(1);
  device_->MaskVector(2);
  EXPECT_TRUE(Unmasks(2));
  ASSERT_TRUE(IsMaskedSoon(1, events[1]));
}

// The server has never heard of it, so there is nothing to wait for.
TEST_F(VfioUserDeviceTest, AShortMaskingIsOverAtOnce) {
  const auto events = SetVectors(3);
  const int told = server_->CountOf(VfioUserCommand::kSetIrqs);
  Hold();
  const int64_t start_ns = MonotonicNs();
  bool was_at_once = true;
  for (int i = 0; i < 10; ++i) {
    device_->MaskVector(1);
    was_at_once &= device_->UnmaskVector(1) && device_->UnmaskVector(1);
  }
  // Unless this thread was kept away from its processor.
  if (MonotonicNs() - start_ns < 5'000'000) {
    EXPECT_TRUE(was_at_once);
  }
  is_held_ = false;
  EXPECT_TRUE(Unmasks(1));
  if (was_at_once) {
    EXPECT_EQ(server_->CountOf(VfioUserCommand::kSetIrqs), told);
  }
}

// The first unmasking is not in force, so that the second is not either.
TEST_F(VfioUserDeviceTest, AShortMaskingIsNotOverBeforeALongerOne) {
  const auto events = SetVectors(3);
  device_->MaskVector(1);
  ASSERT_TRUE(IsMaskedSoon(1, events[1]));
  Hold();
  EXPECT_FALSE(device_->UnmaskVector(1));
  device_->MaskVector(1);
  EXPECT_FALSE(device_->UnmaskVector(1));
  is_held_ = false;
  EXPECT_TRUE(Unmasks(1));
  EXPECT_TRUE(server_->Interrupt(1));
  EXPECT_TRUE(Arrives(events[1]));
}

TEST_F(VfioUserDeviceTest, AVectorIsNotUnmaskedBeforeTheServerSaysSo) {
  const auto events = SetVectors(3);
  device_->MaskVector(1);
  ASSERT_TRUE(IsMaskedSoon(1, events[1]));
  Hold();
  EXPECT_FALSE(device_->UnmaskVector(1));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(device_->UnmaskVector(1));
  is_held_ = false;
  EXPECT_TRUE(Unmasks(1));
  EXPECT_TRUE(server_->Interrupt(1));
  EXPECT_TRUE(Arrives(events[1]));
}

// Whose answer must not be taken for one about the new.
TEST_F(VfioUserDeviceTest, EventfdsMayBeReplacedWhileAnOldOneIsUnderWay) {
  const auto events = SetVectors(3);
  device_->MaskVector(1);
  ASSERT_TRUE(IsMaskedSoon(1, events[1]));
  const int told = server_->CountOf(VfioUserCommand::kSetIrqs);
  Hold();
  EXPECT_FALSE(device_->UnmaskVector(1));
  ASSERT_TRUE(SpinUntil([&] { return server_->CountOf(VfioUserCommand::kSetIrqs) == told + 1; }));
  std::vector<EventFd> others;
  std::thread setter([&] { others = SetVectors(3); });
  absl::SleepFor(absl::Milliseconds(20));
  is_held_ = false;
  setter.join();
  EXPECT_TRUE(Unmasks(1));
  EXPECT_TRUE(server_->Interrupt(1));
  EXPECT_TRUE(Arrives(others[1]));
}

TEST_F(VfioUserDeviceTest, AResetKeepsMappingsAndVectors) {
  const auto events = SetVectors(2);
  device_->WriteConfig(PCI_COMMAND, 2, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  const int set = server_->CountOf(VfioUserCommand::kSetIrqs);
  ASSERT_TRUE(device_->Reset().ok());
  EXPECT_EQ(server_->CountOf(VfioUserCommand::kReset), 2);
  EXPECT_EQ(device_->ReadConfig(PCI_COMMAND, 2),
            static_cast<uint32_t>(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER));
  EXPECT_EQ(server_->CountOf(VfioUserCommand::kSetIrqs), set + 1);
  EXPECT_TRUE(server_->IsMsixOn());
  server_->Interrupt(1);
  EXPECT_TRUE(Arrives(events[1]));
}

}  // namespace
}  // namespace ringside
