#include "kvm/kvm.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside {
namespace {

constexpr int kKvmApiVersion = 12;  // the only one since Linux 2.6.22
constexpr int kMaxCpuidEntries = 256;

template <typename Argument>
absl::Status Ioctl(const UniqueFd& fd, unsigned long request, const char* name, Argument argument) {
  if (ioctl(fd.get(), request, argument) < 0) {
    return ErrnoError(errno, absl::StrFormat("%s failed", name));
  }
  return absl::OkStatus();
}

// KVM's variable-sized structures: a header and `count` entries behind it.
template <typename Header, typename Entry>
class WithEntries {
 public:
  explicit WithEntries(size_t count)
      : bytes_(std::make_unique<uint64_t[]>((sizeof(Header) + count * sizeof(Entry) + 7) / 8)) {}
  Header* header() { return reinterpret_cast<Header*>(bytes_.get()); }
  Entry* entries() { return reinterpret_cast<Entry*>(header() + 1); }

 private:
  std::unique_ptr<uint64_t[]> bytes_;  // uint64_t for its alignment
};

absl::Status IrqFd(const UniqueFd& vm, const EventFd& event, uint32_t gsi, uint32_t flags) {
  kvm_irqfd irqfd = {};
  irqfd.fd = static_cast<uint32_t>(event.fd());
  irqfd.gsi = gsi;
  irqfd.flags = flags;
  return Ioctl(vm, KVM_IRQFD, "KVM_IRQFD", &irqfd);
}

// Memory-mapped, length 0: KVM then looks at the address alone and need not decode the guest's
// instruction.
absl::Status IoEventFd(const UniqueFd& vm, uint64_t address, const EventFd& event, uint32_t flags) {
  kvm_ioeventfd ioeventfd = {};
  ioeventfd.addr = address;
  ioeventfd.fd = event.fd();
  ioeventfd.flags = flags;
  return Ioctl(vm, KVM_IOEVENTFD, "KVM_IOEVENTFD", &ioeventfd);
}

constexpr std::array kRequired = {
    RequiredCapability{KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP", "interrupt controllers in the kernel"},
    RequiredCapability{KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY", "guest memory"},
    RequiredCapability{KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID", "what the guest's CPU can do"},
    RequiredCapability{KVM_CAP_IRQFD, "KVM_CAP_IRQFD", "interrupts without a system call"},
    RequiredCapability{KVM_CAP_IRQ_ROUTING, "KVM_CAP_IRQ_ROUTING", "message signalled interrupts"},
    RequiredCapability{KVM_CAP_IOEVENTFD, "KVM_CAP_IOEVENTFD", "doorbells that stay in the kernel"},
    RequiredCapability{KVM_CAP_IOEVENTFD_ANY_LENGTH, "KVM_CAP_IOEVENTFD_ANY_LENGTH",
                       "doorbells of any size"},
    RequiredCapability{KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT", "stopping a vCPU"},
};

}  // namespace

std::span<const RequiredCapability> RequiredCapabilities() {
  return kRequired;
}

absl::StatusOr<Kvm> Kvm::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) {
    const char* remedy =
        errno == EACCES || errno == EPERM
            ? "add your user to the group that owns it ('usermod -aG kvm USER', then log in again)"
            : "enable virtualisation in the firmware, load kvm_intel or kvm_amd, or use a host (or "
              "container) that offers KVM";
    return ErrnoError(errno, absl::StrFormat("cannot open '%s'", path), remedy);
  }
  const int version = ioctl(fd.get(), KVM_GET_API_VERSION, 0);
  if (version != kKvmApiVersion) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "'%s' is not a usable KVM (API version %d, need %d)", path, version, kKvmApiVersion));
  }
  return Kvm(std::move(fd));
}

int Kvm::Extension(int capability) const {
  return std::max(0, ioctl(fd_.get(), KVM_CHECK_EXTENSION, capability));
}

int Kvm::max_vcpus() const {
  const int most = Extension(KVM_CAP_MAX_VCPUS);
  return most > 0 ? most : 4;  // api.rst: assume 4 where the capability is missing
}

absl::StatusOr<std::vector<kvm_cpuid_entry2>> Kvm::SupportedCpuid() const {
  WithEntries<kvm_cpuid2, kvm_cpuid_entry2> table(kMaxCpuidEntries);
  table.header()->nent = kMaxCpuidEntries;
  RINGSIDE_RETURN_IF_ERROR(
      Ioctl(fd_, KVM_GET_SUPPORTED_CPUID, "KVM_GET_SUPPORTED_CPUID", table.header()));
  return std::vector(table.entries(), table.entries() + table.header()->nent);
}

KvmIdentity Kvm::Identity() const {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  KvmIdentity identity;
  const UniqueFd boot(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  struct stat device;
  if (!boot.valid() || fstat(fd_.get(), &device) != 0) return identity;
  if (read(boot.get(), identity.boot.data(), identity.boot.size()) <= 0) return identity;
  identity.device_inode = device.st_ino;
  identity.device_changed_ns = device.st_ctim.tv_sec * kNsPerSecond + device.st_ctim.tv_nsec;
  return identity;
}

absl::StatusOr<std::vector<uint32_t>> Kvm::MsrsToSave() const {
  kvm_msr_list list = {};  // E2BIG tells how many there are
  if (ioctl(fd_.get(), KVM_GET_MSR_INDEX_LIST, &list) == 0) return std::vector<uint32_t>();
  if (errno != E2BIG) return ErrnoError(errno, "KVM_GET_MSR_INDEX_LIST failed");
  WithEntries<kvm_msr_list, uint32_t> table(list.nmsrs);
  table.header()->nmsrs = list.nmsrs;
  RINGSIDE_RETURN_IF_ERROR(
      Ioctl(fd_, KVM_GET_MSR_INDEX_LIST, "KVM_GET_MSR_INDEX_LIST", table.header()));
  return std::vector(table.entries(), table.entries() + table.header()->nmsrs);
}

absl::StatusOr<KvmVm> Kvm::CreateVm() const {
  for (const RequiredCapability& capability : kRequired) {
    if (Extension(capability.number) == 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("this KVM lacks %s (%s); 'ringside doctor' tells more", capability.name,
                          capability.purpose));
    }
  }
  const int run_size = ioctl(fd_.get(), KVM_GET_VCPU_MMAP_SIZE, 0);
  if (run_size < 0) return ErrnoError(errno, "KVM_GET_VCPU_MMAP_SIZE failed");
  int fd;
  do {
    fd = ioctl(fd_.get(), KVM_CREATE_VM, 0);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoError(errno, "KVM_CREATE_VM failed");
  return KvmVm(UniqueFd(fd), static_cast<size_t>(run_size));
}

absl::Status KvmVm::SetMemory(std::span<const MemoryRegion> regions) {
  uint32_t slot = 0;
  for (const MemoryRegion& region : regions) {
    RINGSIDE_RETURN_IF_ERROR(SetMemorySlot(slot++, region.guest_address, region.host, region.size));
  }
  return absl::OkStatus();
}

absl::Status KvmVm::NoteWrites(std::span<const MemoryRegion> regions, bool on) {
  for (const MemoryRegion& region : regions) {
    RINGSIDE_RETURN_IF_ERROR(SetMemorySlot(region.index, region.guest_address, region.host,
                                           region.size, on ? KVM_MEM_LOG_DIRTY_PAGES : 0));
  }
  return absl::OkStatus();
}

absl::Status KvmVm::TakeWrites(uint32_t region, std::span<uint64_t> pages) {
  kvm_dirty_log log = {.slot = region, .padding1 = 0, .dirty_bitmap = pages.data()};
  return Ioctl(fd_, KVM_GET_DIRTY_LOG, "KVM_GET_DIRTY_LOG", &log);
}

absl::Status KvmVm::SetMemorySlot(uint32_t slot, uint64_t guest_address, std::byte* host,
                                  uint64_t size, uint32_t flags) {
  const kvm_userspace_memory_region region = {.slot = slot,
                                              .flags = flags,
                                              .guest_phys_addr = guest_address,
                                              .memory_size = size,
                                              .userspace_addr = reinterpret_cast<uint64_t>(host)};
  return Ioctl(fd_, KVM_SET_USER_MEMORY_REGION, "KVM_SET_USER_MEMORY_REGION", &region);
}

absl::Status KvmVm::SetIntelPages(uint64_t tss, uint64_t identity_map) {
  if (ioctl(fd_.get(), KVM_CHECK_EXTENSION, KVM_CAP_SET_IDENTITY_MAP_ADDR) > 0) {
    RINGSIDE_RETURN_IF_ERROR(
        Ioctl(fd_, KVM_SET_IDENTITY_MAP_ADDR, "KVM_SET_IDENTITY_MAP_ADDR", &identity_map));
  }
  if (ioctl(fd_.get(), KVM_CHECK_EXTENSION, KVM_CAP_SET_TSS_ADDR) > 0) {
    RINGSIDE_RETURN_IF_ERROR(Ioctl(fd_, KVM_SET_TSS_ADDR, "KVM_SET_TSS_ADDR", tss));
  }
  return absl::OkStatus();
}

absl::Status KvmVm::SetHaltPoll(absl::Duration limit) {
  if (ioctl(fd_.get(), KVM_CHECK_EXTENSION, KVM_CAP_HALT_POLL) <= 0) {
    return absl::FailedPreconditionError(
        "this KVM lacks KVM_CAP_HALT_POLL (a limit of halt polling for one machine): leave it to "
        "the kernel, or use Linux 5.10 or later");
  }
  kvm_enable_cap capability = {};
  capability.cap = KVM_CAP_HALT_POLL;
  capability.args[0] = static_cast<uint64_t>(absl::ToInt64Nanoseconds(limit));
  return Ioctl(fd_, KVM_ENABLE_CAP, "KVM_ENABLE_CAP of KVM_CAP_HALT_POLL", &capability);
}

absl::Status KvmVm::CreateIrqchip() {
  return Ioctl(fd_, KVM_CREATE_IRQCHIP, "KVM_CREATE_IRQCHIP", 0);
}

absl::Status KvmVm::CreatePit() {
  const kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY, .pad = {}};  // port 0x61 too
  return Ioctl(fd_, KVM_CREATE_PIT2, "KVM_CREATE_PIT2", &pit);
}

absl::Status KvmVm::SetGsiRouting(std::span<const kvm_irq_routing_entry> entries) {
  WithEntries<kvm_irq_routing, kvm_irq_routing_entry> table(entries.size());
  table.header()->nr = static_cast<uint32_t>(entries.size());
  std::ranges::copy(entries, table.entries());
  return Ioctl(fd_, KVM_SET_GSI_ROUTING, "KVM_SET_GSI_ROUTING", table.header());
}

absl::Status KvmVm::AssignIrqFd(const EventFd& event, uint32_t gsi) {
  return IrqFd(fd_, event, gsi, 0);
}

absl::Status KvmVm::DeassignIrqFd(const EventFd& event, uint32_t gsi) {
  return IrqFd(fd_, event, gsi, KVM_IRQFD_FLAG_DEASSIGN);
}

// Who takes the event away waits for it. As it is given back what it holds is injected; left there,
// that would be so again.
absl::Status KvmVm::SettleIrqFd(const EventFd& event, uint32_t gsi) {
  RINGSIDE_RETURN_IF_ERROR(DeassignIrqFd(event, gsi));
  RINGSIDE_RETURN_IF_ERROR(AssignIrqFd(event, gsi));
  event.Clear();
  return absl::OkStatus();
}

absl::Status KvmVm::Pulse(uint32_t pin) {
  for (const uint32_t level : {1, 0}) {
    kvm_irq_level line = {};
    line.irq = pin;
    line.level = level;
    RINGSIDE_RETURN_IF_ERROR(Ioctl(fd_, KVM_IRQ_LINE, "KVM_IRQ_LINE", &line));
  }
  return absl::OkStatus();
}

absl::Status KvmVm::AddIoEventFd(uint64_t address, const EventFd& event) {
  return IoEventFd(fd_, address, event, 0);
}

absl::Status KvmVm::RemoveIoEventFd(uint64_t address, const EventFd& event) {
  return IoEventFd(fd_, address, event, KVM_IOEVENTFD_FLAG_DEASSIGN);
}

absl::StatusOr<KvmVcpu> KvmVm::CreateVcpu(uint32_t id) {
  UniqueFd fd(ioctl(fd_.get(), KVM_CREATE_VCPU, id));
  if (!fd.valid()) {
    return ErrnoError(errno, absl::StrFormat("cannot create vCPU %d", id), "ask for fewer vCPUs");
  }
  void* run = mmap(nullptr, run_size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (run == MAP_FAILED) return ErrnoError(errno, absl::StrFormat("cannot map vCPU %d", id));
  return KvmVcpu(std::move(fd), static_cast<kvm_run*>(run), run_size_);
}

KvmVcpu::KvmVcpu(KvmVcpu&& other) noexcept
    : fd_(std::move(other.fd_)),
      run_(std::exchange(other.run_, nullptr)),
      run_size_(other.run_size_) {}

KvmVcpu::~KvmVcpu() {
  if (run_ != nullptr) munmap(run_, run_size_);
}

absl::Status KvmVcpu::SetCpuid(std::span<const kvm_cpuid_entry2> entries) {
  WithEntries<kvm_cpuid2, kvm_cpuid_entry2> table(entries.size());
  table.header()->nent = static_cast<uint32_t>(entries.size());
  std::ranges::copy(entries, table.entries());
  return Ioctl(fd_, KVM_SET_CPUID2, "KVM_SET_CPUID2", table.header());
}

absl::StatusOr<kvm_sregs> KvmVcpu::GetSpecialRegisters() const {
  kvm_sregs registers;
  RINGSIDE_RETURN_IF_ERROR(Ioctl(fd_, KVM_GET_SREGS, "KVM_GET_SREGS", &registers));
  return registers;
}

absl::Status KvmVcpu::SetSpecialRegisters(const kvm_sregs& registers) {
  return Ioctl(fd_, KVM_SET_SREGS, "KVM_SET_SREGS", &registers);
}

absl::StatusOr<kvm_regs> KvmVcpu::GetRegisters() const {
  kvm_regs registers;
  RINGSIDE_RETURN_IF_ERROR(Ioctl(fd_, KVM_GET_REGS, "KVM_GET_REGS", &registers));
  return registers;
}

absl::Status KvmVcpu::SetRegisters(const kvm_regs& registers) {
  return Ioctl(fd_, KVM_SET_REGS, "KVM_SET_REGS", &registers);
}

absl::StatusOr<int> KvmVcpu::SetMsrs(std::span<const kvm_msr_entry> entries) {
  WithEntries<kvm_msrs, kvm_msr_entry> table(entries.size());
  table.header()->nmsrs = static_cast<uint32_t>(entries.size());
  std::ranges::copy(entries, table.entries());
  const int taken = ioctl(fd_.get(), KVM_SET_MSRS, table.header());
  if (taken < 0) return ErrnoError(errno, "KVM_SET_MSRS failed");
  return taken;
}

absl::StatusOr<int> KvmVcpu::GetMsrs(std::span<kvm_msr_entry> entries) {
  WithEntries<kvm_msrs, kvm_msr_entry> table(entries.size());
  table.header()->nmsrs = static_cast<uint32_t>(entries.size());
  std::ranges::copy(entries, table.entries());
  const int taken = ioctl(fd_.get(), KVM_GET_MSRS, table.header());
  if (taken < 0) return ErrnoError(errno, "KVM_GET_MSRS failed");
  std::copy_n(table.entries(), taken, entries.begin());
  return taken;
}

absl::Status KvmVcpu::SetTscKhz(uint32_t khz) {
  const int64_t has = ioctl(fd_.get(), KVM_GET_TSC_KHZ, 0);
  if (has > 0 && std::abs(has - int64_t{khz}) <= has / 4000) return absl::OkStatus();
  if (ioctl(fd_.get(), KVM_SET_TSC_KHZ, uint64_t{khz}) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the saved vCPU's TSC has %d kHz, this host's %d, and its processor cannot scale that: "
      "restore on a host of the same frequency",
      khz, has));
}

absl::Status KvmVcpu::AllowOnly(int signal) {
  // The kernel's signal set: 64 bits, signal n at bit n - 1.
  const uint64_t blocked = ~(uint64_t{1} << (signal - 1));
  WithEntries<kvm_signal_mask, std::byte> mask(sizeof blocked);  // not aligned for a word
  mask.header()->len = sizeof blocked;
  std::memcpy(mask.entries(), &blocked, sizeof blocked);
  return Ioctl(fd_, KVM_SET_SIGNAL_MASK, "KVM_SET_SIGNAL_MASK", mask.header());
}

void KvmVcpu::TellClockOfPause() {
  // EINVAL: the guest does not use kvmclock. Nor would another error be worth a guest's end: at the
  // worst it reports a lock-up.
  static_cast<void>(ioctl(fd_.get(), KVM_KVMCLOCK_CTRL, 0));
}

absl::StatusOr<UniqueFd> KvmVcpu::OpenStats() const {
  UniqueFd fd(ioctl(fd_.get(), KVM_GET_STATS_FD, nullptr));
  if (!fd.valid()) return ErrnoError(errno, "KVM_GET_STATS_FD failed");
  return fd;
}

int KvmVcpu::Run() {
  return ioctl(fd_.get(), KVM_RUN, 0) == 0 ? 0 : errno;
}

}  // namespace ringside
