// The interrupt router on this host's KVM: a virtual machine with a vCPU that never runs, whose
// local APIC and PICs show what reached them.
#include "kvm/interrupt_router.h"

#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

#include "tests/support/recording_log.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SpinUntil;
using testing::WaitForFd;

constexpr uint64_t kMsiAddress = 0xfee00000;  // to the local APIC with id 0
constexpr auto kNow = absl::ZeroDuration();

// KVM's own descriptor: the product needs none of the calls that look into its controllers.
int FindKvmFd(const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.ends_with(name)) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

class InterruptRouterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_KVM();
    const absl::StatusOr<Kvm> kvm = Kvm::Open();
    ASSERT_TRUE(kvm.ok()) << kvm.status();
    absl::StatusOr<KvmVm> vm = kvm->CreateVm();
    ASSERT_TRUE(vm.ok()) << vm.status();
    vm_ = *std::move(vm);
    ASSERT_TRUE(vm_->CreateIrqchip().ok());
    absl::StatusOr<KvmVcpu> vcpu = vm_->CreateVcpu(0);
    ASSERT_TRUE(vcpu.ok()) << vcpu.status();
    vcpu_.emplace(*std::move(vcpu));
    vm_fd_ = FindKvmFd("kvm-vm");
    vcpu_fd_ = FindKvmFd("kvm-vcpu:0");
    ASSERT_GE(vm_fd_, 0);
    ASSERT_GE(vcpu_fd_, 0);
    router_ = std::make_unique<InterruptRouter>(*vm_, Logger(&log_));
    ClearApic();
  }

  // Nothing waits, and the spurious vector register says enabled (SDM volume 3, 11.9).
  void ClearApic() {
    kvm_lapic_state state;
    ASSERT_EQ(ioctl(vcpu_fd_, KVM_GET_LAPIC, &state), 0);
    for (int word = 0; word < 8; ++word) Register(state, kRequests + 0x10 * word) = 0;
    Register(state, 0xf0) = 0x1ff;
    ASSERT_EQ(ioctl(vcpu_fd_, KVM_SET_LAPIC, &state), 0);
  }
  bool Requested(int vector) {
    kvm_lapic_state state;
    EXPECT_EQ(ioctl(vcpu_fd_, KVM_GET_LAPIC, &state), 0);
    return (Register(state, kRequests + 0x10 * (vector / 32)) >> (vector % 32) & 1) != 0;
  }
  bool WaitForRequest(int vector) {
    return SpinUntil([&] { return Requested(vector); });
  }
  // Edges that PIC 0 or 1 has seen on its pins.
  uint8_t PicRequests(uint32_t chip) {
    kvm_irqchip state = {};
    state.chip_id = chip;
    EXPECT_EQ(ioctl(vm_fd_, KVM_GET_IRQCHIP, &state), 0);
    return state.chip.pic.irr;
  }
  // Lets an IOAPIC pin deliver a vector to APIC 0.
  void SetIoApicPin(uint32_t pin, uint8_t vector) {
    kvm_irqchip state = {};
    state.chip_id = KVM_IRQCHIP_IOAPIC;
    ASSERT_EQ(ioctl(vm_fd_, KVM_GET_IRQCHIP, &state), 0);
    state.chip.ioapic.redirtbl[pin].bits = vector;
    ASSERT_EQ(ioctl(vm_fd_, KVM_SET_IRQCHIP, &state), 0);
  }
  std::unique_ptr<MsiVector> NewVector() {
    absl::StatusOr<std::unique_ptr<MsiVector>> vector = router_->NewMsiVector();
    EXPECT_TRUE(vector.ok()) << vector.status();
    return *std::move(vector);
  }

  testing::RecordingLog log_;
  std::optional<KvmVm> vm_;
  std::optional<KvmVcpu> vcpu_;
  int vm_fd_ = -1;
  int vcpu_fd_ = -1;
  std::unique_ptr<InterruptRouter> router_;

 private:
  static constexpr int kRequests = 0x200;  // the IRR
  static uint32_t& Register(kvm_lapic_state& state, int offset) {
    return *reinterpret_cast<uint32_t*>(state.regs + offset);
  }
};

TEST_F(InterruptRouterTest, AnUnmaskedVectorDelivers) {
  const auto vector = NewVector();
  vector->Unmask(kMsiAddress, 0x41);
  EXPECT_FALSE(Requested(0x41));
  vector->event().Signal();
  EXPECT_TRUE(WaitForRequest(0x41));
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(InterruptRouterTest, AMaskedVectorKeepsTheEventAndDeliversItOnceUnmasked) {
  const auto vector = NewVector();
  vector->event().Signal();
  EXPECT_FALSE(Requested(0x41));
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(WaitForFd(vector->event().fd(), POLLIN, kNow)) << "the event is pending";
    vector->Unmask(kMsiAddress, 0x41);
    ASSERT_TRUE(WaitForRequest(0x41));
    ASSERT_FALSE(WaitForFd(vector->event().fd(), POLLIN, kNow)) << "it is delivered";
    vector->Mask();
    ClearApic();
    // What was delivered is not pending, and unmasking does not deliver it again.
    ASSERT_FALSE(WaitForFd(vector->event().fd(), POLLIN, kNow));
    vector->Unmask(kMsiAddress, 0x41);
    vector->Mask();  // waits for injections under way
    ASSERT_FALSE(Requested(0x41));
    vector->event().Signal();
    ASSERT_FALSE(Requested(0x41)) << "masked";
  }
  EXPECT_EQ(router_->table_updates(), 1u);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

// Whoever signals does not know of masks; of what it signals nothing may be lost.
TEST_F(InterruptRouterTest, NoSignalIsLostWhileTheMaskChanges) {
  const auto vector = NewVector();
  for (int round = 0; round < 300; ++round) {
    ClearApic();
    std::thread device([&] { vector->event().Signal(); });
    for (int i = 0; i < 3; ++i) {
      vector->Unmask(kMsiAddress, 0x41);
      vector->Mask();
    }
    device.join();
    const bool pending = WaitForFd(vector->event().fd(), POLLIN, kNow);
    ASSERT_TRUE(pending || Requested(0x41)) << "round " << round;
    vector->event().Clear();
  }
}

TEST_F(InterruptRouterTest, OnlyANewMessageCostsATable) {
  const auto first = NewVector(), second = NewVector();
  first->Unmask(kMsiAddress, 0x41);
  second->Unmask(kMsiAddress, 0x42);
  EXPECT_EQ(router_->table_updates(), 2u);
  for (int i = 0; i < 10; ++i) {
    first->Mask();
    second->Mask();
    second->Unmask(kMsiAddress, 0x42);
    first->Unmask(kMsiAddress, 0x41);
    first->Unmask(kMsiAddress, 0x41);
  }
  EXPECT_EQ(router_->table_updates(), 2u);
  first->Unmask(kMsiAddress, 0x43);
  EXPECT_EQ(router_->table_updates(), 3u);
}

TEST_F(InterruptRouterTest, AMessageIsExchangedUnderAnUnmaskedVector) {
  const auto vector = NewVector();
  for (int number = 0x31; number < 0xf0; ++number) {
    vector->Unmask(kMsiAddress, static_cast<uint32_t>(number));
    vector->event().Signal();
    ASSERT_TRUE(WaitForRequest(number));
    ASSERT_FALSE(Requested(number + 1));
  }
}

TEST_F(InterruptRouterTest, VectorsDoNotDisturbEachOther) {
  std::vector<std::unique_ptr<MsiVector>> vectors;
  for (uint32_t i = 0; i < 64; ++i) {
    vectors.push_back(NewVector());
    vectors.back()->Unmask(kMsiAddress, 0x40 + i);
  }
  for (int i = 0; i < 64; ++i) {
    vectors[i]->event().Signal();
    ASSERT_TRUE(WaitForRequest(0x40 + i));
    for (int other = i + 1; other < 64; ++other) ASSERT_FALSE(Requested(0x40 + other));
  }
}

// What KVM's default routing gives, on both sides of a new table.
TEST_F(InterruptRouterTest, ThePinsOfTheInterruptControllersStayRouted) {
  const auto vector = NewVector();
  vector->Unmask(kMsiAddress, 0x41);
  ASSERT_EQ(router_->table_updates(), 1u);
  for (uint32_t gsi = 0; gsi < 24; ++gsi) {
    const int number = 0x50 + static_cast<int>(gsi);
    SetIoApicPin(gsi, static_cast<uint8_t>(number));
    absl::StatusOr<EventFd> event = EventFd::Create();
    ASSERT_TRUE(event.ok());
    ASSERT_TRUE(vm_->AssignIrqFd(*event, gsi).ok());
    event->Signal();
    ASSERT_TRUE(WaitForRequest(number)) << "IOAPIC pin " << gsi;
    ASSERT_TRUE(vm_->DeassignIrqFd(*event, gsi).ok());
    // Pin 2 of the first PIC is where the second is attached.
    if (gsi < 16 && gsi != 2) {
      EXPECT_NE(PicRequests(gsi / 8) & 1 << (gsi % 8), 0) << "PIC pin " << gsi;
    }
  }
}

TEST_F(InterruptRouterTest, AVectorThatGoesLeavesItsPlace) {
  for (uint32_t i = 0; i < 5000; ++i) {  // more than KVM's table has entries
    const auto vector = NewVector();
    if (i % 50 != 0) continue;
    vector->Unmask(kMsiAddress, 0x41 + i % 2);
    vector->event().Signal();
    ASSERT_TRUE(WaitForRequest(static_cast<int>(0x41 + i % 2)));
    ClearApic();
  }
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(InterruptRouterTest, AFailureIsLoggedOnceAndLeavesTheVectorMasked) {
  const auto vector = NewVector(), other = NewVector();
  // Any event serves one GSI at most.
  ASSERT_TRUE(vm_->AssignIrqFd(vector->event(), 5).ok());
  vector->Unmask(kMsiAddress, 0x41);
  vector->Mask();
  vector->Unmask(kMsiAddress, 0x41);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("KVM_IRQFD")));
  ASSERT_TRUE(vm_->DeassignIrqFd(vector->event(), 5).ok());
  vector->event().Signal();
  EXPECT_TRUE(WaitForFd(vector->event().fd(), POLLIN, kNow));
  EXPECT_FALSE(Requested(0x41));
  other->Unmask(kMsiAddress, 0x42);
  other->event().Signal();
  EXPECT_TRUE(WaitForRequest(0x42));
  vector->Unmask(kMsiAddress, 0x41);
  EXPECT_TRUE(WaitForRequest(0x41));
}

// With 32-bit APIC ids the high half of a message's address has no room for anything below bit 8,
// and KVM refuses a table that has something there (api.rst, KVM_CAP_X2APIC_API).
TEST_F(InterruptRouterTest, AMessageThatKvmRefusesSpoilsNoOther) {
  constexpr uint64_t kRefused = uint64_t{1} << 32 | kMsiAddress;
  kvm_enable_cap wide_ids = {};
  wide_ids.cap = KVM_CAP_X2APIC_API;
  wide_ids.args[0] = KVM_X2APIC_API_USE_32BIT_IDS;
  ASSERT_EQ(ioctl(vm_fd_, KVM_ENABLE_CAP, &wide_ids), 0);

  const auto good = NewVector(), bad = NewVector(), late = NewVector();
  good->Unmask(kMsiAddress, 0x41);
  bad->Unmask(kRefused, 0x42);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("KVM_SET_GSI_ROUTING")));
  bad->event().Signal();
  EXPECT_TRUE(WaitForFd(bad->event().fd(), POLLIN, kNow)) << "it is masked";
  late->Unmask(kMsiAddress, 0x43);
  late->event().Signal();
  EXPECT_TRUE(WaitForRequest(0x43));
  // Nor may it look as if it were set: it is refused again.
  const uint64_t updates = router_->table_updates();
  bad->Unmask(kRefused, 0x42);
  EXPECT_EQ(router_->table_updates(), updates + 1);
  EXPECT_FALSE(Requested(0x42));
  // A message that was there before stays, but is not delivered in place of the new one.
  good->Unmask(kRefused, 0x44);
  good->event().Signal();
  EXPECT_TRUE(WaitForFd(good->event().fd(), POLLIN, kNow)) << "it is masked";
  bad->Unmask(kMsiAddress, 0x42);
  good->Unmask(kMsiAddress, 0x41);
  EXPECT_TRUE(WaitForRequest(0x41));
  EXPECT_TRUE(WaitForRequest(0x42));
}

TEST_F(InterruptRouterTest, DoorbellsComeAndGo) {
  const absl::StatusOr<EventFd> first = EventFd::Create(), second = EventFd::Create();
  ASSERT_TRUE(first.ok() && second.ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(router_->AddDoorbell(0xc0003000, *first).ok());
    ASSERT_TRUE(router_->AddDoorbell(0xc0003004, *second).ok());
    ASSERT_TRUE(absl::IsAlreadyExists(router_->AddDoorbell(0xc0003000, *second)));
    router_->RemoveDoorbell(0xc0003000, *first);
    router_->RemoveDoorbell(0xc0003004, *second);
  }
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("KVM_IOEVENTFD")));
}

}  // namespace
}  // namespace ringside
