// Kernel VFIO with real devices, which vfio_linux.py sets up in the lab and names in the
// environment: RINGSIDE_VFIO_ADDRESS is of an NVMe device that vfio-pci has and no one needs,
// RINGSIDE_VFIO_OTHER_DRIVER of one that the kernel has, and RINGSIDE_VFIO_SHARED_GROUP of one
// whose card's second function the kernel has.
#include <csignal>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "tests/support/directories.h"
#include "tests/support/status_matchers.h"
#include "tests/vfio/admin_queue.h"
#include "vfio/vfio_device.h"

namespace ringside {
namespace {

using ::ringside::testing::AdminQueue;
using ::ringside::testing::CountEntries;
using ::ringside::testing::SharedPages;
using ::ringside::testing::WaitForFd;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kIova = 0x100000000;  // any that is allowed
constexpr uint64_t kDataOffset = uint64_t{2} * nvme::kPageSize;
constexpr absl::Duration kQuiet = absl::Milliseconds(200);

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Text(const absl::Status& status) {
  return std::string(Message(status));
}

class VfioLab : public ::testing::Test {
 protected:
  void SetUp() override {
    if (address_.empty())
      GTEST_SKIP() << "needs a device to spare: run it in the lab (vfio_linux.py)";
  }

  void Open() {
    absl::StatusOr<std::unique_ptr<PciDevice>> device = OpenVfioDevice(address_);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  // With memory for DMA and the admin queue running.
  void OpenAndEnable() {
    Open();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(device_->MapDma(memory_.At(kIova)).ok());
    queue_ = std::make_unique<AdminQueue>(*device_, memory_, kIova);
    queue_->Enable();
  }
  std::string Serial() const {
    return {reinterpret_cast<const char*>(memory_.host() + kDataOffset + nvme::controller::kSerial),
            8};
  }
  // Refused in one line, and nothing left behind.
  std::string Refusal(const std::string& address) {
    const size_t before = CountEntries("/proc/self/fd");
    const auto device = OpenVfioDevice(address);
    EXPECT_FALSE(device.ok());
    EXPECT_EQ(CountEntries("/proc/self/fd"), before);
    EXPECT_EQ(Text(device.status()).find('\n'), std::string::npos);
    return Text(device.status());
  }

  const std::string address_ = Environment("RINGSIDE_VFIO_ADDRESS");
  const SharedPages memory_{16 * kMiB};
  std::unique_ptr<PciDevice> device_;
  std::unique_ptr<AdminQueue> queue_;
};

TEST_F(VfioLab, ShowsConfigurationRegistersAndRanges) {
  Open();
  ASSERT_NE(device_, nullptr);
  EXPECT_EQ(device_->name(), address_);
  EXPECT_EQ(device_->ReadConfig(8, 4) >> 8, 0x010802U);
  EXPECT_EQ(device_->ReadConfig(0xb, 1), 1U);
  EXPECT_EQ(device_->ReadConfig(4, 2) & 6, 2U) << "memory decodes, and no bus mastering";
  const nvme::Capabilities cap(AdminQueue(*device_, memory_, kIova).ReadCap());
  EXPECT_TRUE(cap.has_nvm_command_set());
  EXPECT_GE(cap.queue_entries(1024), 64);
  EXPECT_GE(device_->vectors(), 2U);
  const auto ranges = device_->iova_ranges();
  ASSERT_GE(ranges.size(), 2U) << "without the window of interrupts";
  EXPECT_EQ(ranges[0].first, 0U);
  EXPECT_EQ(ranges[0].last, 0xfedfffffU);
  EXPECT_EQ(ranges[1].first, 0xfef00000U);
}

TEST_F(VfioLab, ADeviceReadsAndWritesMappedMemory) {
  OpenAndEnable();
  if (HasFatalFailure()) return;
  // In the last page, behind the first 2 MiB: not all on one page of the IOMMU.
  const uint64_t last = memory_.size() - nvme::kPageSize;
  queue_->SendIdentify(kIova + last);
  EXPECT_EQ(queue_->Await(), nvme::kSuccess);
  EXPECT_EQ(std::memcmp(memory_.host() + last + nvme::controller::kSerial, "ringside", 8), 0);
}

TEST_F(VfioLab, AfterUnmappingMemoryIsOutOfReach) {
  OpenAndEnable();
  if (HasFatalFailure()) return;
  const SharedPages more(kMiB);
  const uint64_t iova = kIova + memory_.size();
  ASSERT_TRUE(device_->MapDma(more.At(iova)).ok());
  queue_->SendIdentify(iova);
  EXPECT_EQ(queue_->Await(), nvme::kSuccess);
  std::memset(more.host(), 0, nvme::kPageSize);
  ASSERT_TRUE(device_->UnmapDma(iova, more.size()).ok());
  queue_->SendIdentify(iova);
  queue_->Await();  // QEMU answers success or an error, by its version
  EXPECT_EQ(std::memcmp(more.host() + nvme::controller::kSerial, "ringside", 8) == 0, false);
  EXPECT_FALSE(device_->UnmapDma(iova, more.size()).ok()) << "it is not there any more";
}

TEST_F(VfioLab, MappingsThatCannotBeAreRefused) {
  Open();
  ASSERT_NE(device_, nullptr);
  ASSERT_TRUE(device_->MapDma(memory_.At(kIova)).ok());
  EXPECT_TRUE(absl::IsInternal(device_->MapDma(memory_.At(kIova + kMiB)))) << "it overlaps";
  EXPECT_TRUE(absl::IsInternal(device_->MapDma(memory_.At(0xfee00000)))) << "interrupts";
  EXPECT_FALSE(device_->UnmapDma(kIova, kMiB).ok()) << "half a mapping";
  EXPECT_TRUE(device_->UnmapDma(kIova, memory_.size()).ok());
  EXPECT_TRUE(device_->MapDma(memory_.At(kIova)).ok()) << "it is free again";
}

TEST_F(VfioLab, AMaskedVectorIsHeldBackAndComesWhenUnmasked) {
  const EventFd event = *EventFd::Create();
  OpenAndEnable();
  if (HasFatalFailure()) return;
  ASSERT_TRUE(device_->SetVectors(std::array{event.fd()}).ok());

  queue_->SendIdentify(kIova + kDataOffset);
  EXPECT_EQ(queue_->Await(), nvme::kSuccess);
  EXPECT_TRUE(WaitForFd(event.fd(), POLLIN)) << "an interrupt comes";
  EXPECT_EQ(event.Clear(), 1U);

  device_->MaskVector(0);
  queue_->SendIdentify(kIova + kDataOffset);
  EXPECT_EQ(queue_->Await(), nvme::kSuccess);
  EXPECT_FALSE(WaitForFd(event.fd(), POLLIN, kQuiet)) << "but not while it is masked";
  EXPECT_TRUE(device_->UnmaskVector(0));
  EXPECT_TRUE(WaitForFd(event.fd(), POLLIN)) << "and then at unmasking";
  EXPECT_EQ(event.Clear(), 1U);
}

TEST_F(VfioLab, OtherVectorsReplaceTheOnesBefore) {
  const EventFd first = *EventFd::Create();
  const EventFd second = *EventFd::Create();
  OpenAndEnable();
  if (HasFatalFailure()) return;
  ASSERT_TRUE(device_->SetVectors(std::array{first.fd()}).ok());
  ASSERT_TRUE(device_->SetVectors(std::array{second.fd()}).ok());
  queue_->SendIdentify(kIova + kDataOffset);
  EXPECT_TRUE(WaitForFd(second.fd(), POLLIN));
  EXPECT_EQ(first.Clear(), 0U);
  // Another number: what came in between is made good.
  second.Clear();
  ASSERT_TRUE(device_->SetVectors(std::array{first.fd(), second.fd()}).ok());
  EXPECT_EQ(first.Clear(), 1U);
  EXPECT_EQ(second.Clear(), 1U);
  queue_->SendIdentify(kIova + kDataOffset);
  EXPECT_TRUE(WaitForFd(first.fd(), POLLIN));
  EXPECT_EQ(second.Clear(), 0U);
  // None.
  first.Clear();
  ASSERT_TRUE(device_->SetVectors({}).ok());
  queue_->SendIdentify(kIova + kDataOffset);
  EXPECT_FALSE(WaitForFd(first.fd(), POLLIN, kQuiet));
  const std::vector<int> many(device_->vectors() + 1, first.fd());
  EXPECT_TRUE(absl::IsFailedPrecondition(device_->SetVectors(many)));
}

TEST_F(VfioLab, ResetEndsAllButMappingsAndVectors) {
  const EventFd event = *EventFd::Create();
  OpenAndEnable();
  if (HasFatalFailure()) return;
  ASSERT_TRUE(device_->SetVectors(std::array{event.fd()}).ok());
  ASSERT_NE(device_->ReadBar(0, nvme::kCc), 0U);
  const absl::Status reset = device_->Reset();
  ASSERT_TRUE(reset.ok()) << reset;
  EXPECT_EQ(device_->ReadBar(0, nvme::kCc), 0U);
  EXPECT_EQ(device_->ReadBar(0, nvme::kCsts) & nvme::kCstsReady, 0U);
  queue_->Enable();
  queue_->SendIdentify(kIova + kDataOffset);
  EXPECT_EQ(queue_->Await(), nvme::kSuccess);
  EXPECT_EQ(Serial(), "ringside");
  EXPECT_TRUE(WaitForFd(event.fd(), POLLIN));
}

TEST_F(VfioLab, BarsEndWhereTheyEnd) {
  Open();
  ASSERT_NE(device_, nullptr);
  const auto beyond = device_->MapBar(0, uint64_t{1} << 30, 4);
  EXPECT_TRUE(absl::IsOutOfRange(beyond.status())) << beyond.status();
  EXPECT_FALSE(device_->MapBar(0, ~uint64_t{0}, 8).ok());
  EXPECT_FALSE(device_->MapBar(5, 0, 4).ok()) << "it has no BAR 5";
  EXPECT_EQ(device_->ReadBar(0, uint64_t{1} << 30), 0xffffffffU);
  EXPECT_EQ(device_->ReadConfig(uint32_t{1} << 20, 2), 0xffffU);
  device_->WriteBar(0, uint64_t{1} << 30, 0);
}

// A child that has the device and is ready; its end of the pipe closes with it.
class Holder {
 public:
  explicit Holder(const std::string& address) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto device = OpenVfioDevice(address);
      [[maybe_unused]] const ssize_t written = write(ends[1], device.ok() ? "y" : "n", 1);
      pause();
      _exit(0);
    }
    char answer = 0;
    holds_ = WaitForFd(ends[0], POLLIN) && read(ends[0], &answer, 1) == 1 && answer == 'y';
    close(ends[0]);
    close(ends[1]);
  }
  ~Holder() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }
  bool holds() const { return holds_; }

 private:
  pid_t pid_ = -1;
  bool holds_ = false;
};

TEST_F(VfioLab, OneProcessHasADeviceAndItsEndGivesItBack) {
  Holder holder(address_);
  ASSERT_TRUE(holder.holds());
  EXPECT_THAT(Refusal(address_), HasSubstr(absl::StrFormat("process %d has", holder.pid())));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckVfioDevice(address_)));
  holder.Kill();
  Open();
  EXPECT_THAT(Refusal(address_), HasSubstr("this process already"));
  device_.reset();
  EXPECT_TRUE(CheckVfioDevice(address_).ok());
  OpenAndEnable();
}

TEST_F(VfioLab, AMissingDeviceIsNamed) {
  EXPECT_THAT(Refusal("0000:7f:1f.7"), HasSubstr("there is no PCI device '0000:7f:1f.7'"));
}

TEST_F(VfioLab, AnotherDriverIsNamed) {
  const std::string other = Environment("RINGSIDE_VFIO_OTHER_DRIVER");
  ASSERT_NE(other, "");
  EXPECT_THAT(Refusal(other), HasSubstr("has the driver 'nvme'"));
}

TEST_F(VfioLab, WithoutIommuADeviceIsRefused) {
  EXPECT_THAT(Refusal(address_), HasSubstr("is behind no IOMMU"));
}

// The second function of the same card is the kernel's.
TEST_F(VfioLab, AGroupThatIsNotWholeNamesTheOther) {
  const std::string shared = Environment("RINGSIDE_VFIO_SHARED_GROUP");
  ASSERT_NE(shared, "");
  const std::string other = shared.substr(0, shared.size() - 1) + "1";
  EXPECT_THAT(Refusal(shared), HasSubstr("'" + other + "' (driver nvme)"));
}

// In a child, because rights do not come back. Returns what it wrote.
std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = body();
    [[maybe_unused]] const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  waitpid(pid, nullptr, 0);
  close(ends[1]);
  char text[4096];
  const ssize_t got = read(ends[0], text, sizeof text);
  close(ends[0]);
  return {text, static_cast<size_t>(std::max<ssize_t>(got, 0))};
}

TEST_F(VfioLab, TooLittleLockedMemoryIsExplained) {
  const std::string text = InChild([this]() -> std::string {
    const rlimit limit{.rlim_cur = kMiB, .rlim_max = kMiB};
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct data[2] = {};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || syscall(SYS_capget, &header, data) != 0)
      return "";
    data[0].effective &= ~(1U << CAP_IPC_LOCK);
    if (syscall(SYS_capset, &header, data) != 0) return "";
    const auto device = OpenVfioDevice(address_);
    return device.ok() ? Text((*device)->MapDma(memory_.At(kIova))) : Text(device.status());
  });
  EXPECT_THAT(text, HasSubstr("the limit on locked memory is 1M"));
  EXPECT_THAT(text, HasSubstr("'ulimit -l 16384'"));
  EXPECT_TRUE(CheckVfioDevice(address_).ok());
}

TEST_F(VfioLab, WithoutTheRightToItsFileADeviceIsRefused) {
  const std::string text = InChild([this]() -> std::string {
    if (setuid(65534) != 0) return "";
    const absl::Status status = OpenVfioDevice(address_).status();
    return absl::IsPermissionDenied(status) ? Text(status) : "no: " + Text(status);
  });
  EXPECT_THAT(text, HasSubstr("cannot open '/dev/vfio/"));
  EXPECT_THAT(text, HasSubstr("Permission denied; as root, 'chown USER /dev/vfio/"));
}

}  // namespace
}  // namespace ringside
