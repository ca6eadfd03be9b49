#include "devices/virtio_pci.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"

namespace ringside {
namespace {

// Section 4.1.2.
constexpr uint16_t kVendor = 0x1af4;
constexpr uint16_t kFirstDevice = 0x1040;
constexpr uint8_t kRevision = 1;
// As other machines have it: nothing may depend on it, but device databases know it.
constexpr uint16_t kSubsystem = 0x1100;

// A kernel that jumps into another one does not wait for longer.
constexpr absl::Duration kBusMasterPatience = absl::Seconds(1);

// PCI 3.0, sections 6.7 and 6.8.2.
constexpr uint8_t kVendorCapability = 0x09;
constexpr uint8_t kMsixCapability = 0x11;

// Section 4.1.4, virtio_pci_cap, from the byte after the link to the next capability.
struct [[gnu::packed]] Capability {
  uint8_t length;
  uint8_t type;
  uint8_t bar = 0;
  uint8_t id = 0;
  uint8_t padding[2] = {};
  uint32_t offset = 0;
  uint32_t size = 0;
};
struct [[gnu::packed]] LongCapability {
  Capability head;
  uint32_t last = 0;  // the notify multiplier, or the access window's data
};
enum CapabilityType : uint8_t { kCommon = 1, kNotify, kIsr, kDevice, kAccessWindow };
constexpr uint8_t kShortLength = 16;
constexpr uint8_t kLongLength = 20;
static_assert(sizeof(Capability) == kShortLength - 2);
static_assert(sizeof(LongCapability) == kLongLength - 2);

// Offsets in the access window's capability.
constexpr uint32_t kWindowBar = 4;
constexpr uint32_t kWindowOffset = 8;
constexpr uint32_t kWindowLength = 12;
constexpr uint32_t kWindowData = 16;

// Section 4.1.4.3. The last two are of features that are not offered, and read 0.
struct [[gnu::packed]] CommonConfig {
  uint32_t device_feature_select;
  uint32_t device_feature;
  uint32_t driver_feature_select;
  uint32_t driver_feature;
  uint16_t config_msix_vector;
  uint16_t num_queues;
  uint8_t device_status;
  uint8_t config_generation;
  uint16_t queue_select;
  uint16_t queue_size;
  uint16_t queue_msix_vector;
  uint16_t queue_enable;
  uint16_t queue_notify_off;
  uint64_t queue_desc;
  uint64_t queue_driver;
  uint64_t queue_device;
  uint16_t queue_notify_data;
  uint16_t queue_reset;
};
static_assert(sizeof(CommonConfig) == 60);

// A driver's access, if it has the width of the field (section 4.1.3.1). Others are ignored.
template <typename T>
std::optional<T> As(std::span<const std::byte> data) {
  if (data.size() != sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, data.data(), sizeof value);
  return value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<VirtioPci>> VirtioPci::Create(VirtioDevice& device, std::string name,
                                                             PciPlatform& platform, Logger log) {
  // Its vectors are counted first, so that a doorbell a queue fits on its page as well.
  static_assert(Msix::kMaxVectors * kDoorbellSize <= kPageSize);
  RINGSIDE_ASSIGN_OR_RETURN(
      std::unique_ptr<Msix> msix,
      Msix::Create(static_cast<uint16_t>(device.queue_count() + 1), platform));
  std::vector<const EventFd*> vectors;
  vectors.reserve(msix->size());
  for (uint16_t i = 0; i < msix->size(); ++i) vectors.push_back(msix->event(i));
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<VirtioTransport> transport,
                            VirtioTransport::Create(device, name, log, std::move(vectors)));
  const Identity identity = {.vendor = kVendor,
                             .device = static_cast<uint16_t>(kFirstDevice + device.id()),
                             .subsystem_vendor = kVendor,
                             .subsystem = kSubsystem,
                             .class_code = device.pci_class(),
                             .revision = kRevision};
  std::unique_ptr<VirtioPci> function(new VirtioPci(identity, std::move(name), platform, log,
                                                    std::move(msix), std::move(transport)));
  function->AddBar(0, kBarSize, *function);
  function->AddCapabilities();
  return function;
}

VirtioPci::VirtioPci(const Identity& identity, std::string name, PciPlatform& platform, Logger log,
                     std::unique_ptr<Msix> msix, std::unique_ptr<VirtioTransport> transport)
    : PciFunction(identity),
      name_(std::move(name)),
      platform_(platform),
      log_(log),
      msix_(std::move(msix)),
      transport_(std::move(transport)) {}

VirtioPci::~VirtioPci() {
  RemoveDoorbells();
}

void VirtioPci::AddCapabilities() {
  struct [[gnu::packed]] {
    uint16_t control;
    uint32_t table;  // with the number of the BAR, 0, in their low bits
    uint32_t pending_bits;
  } msix = {static_cast<uint16_t>(msix_->size() - 1), kTablePage, kPendingPage};
  const uint16_t msix_writable = Msix::kEnable | Msix::kFunctionMask;
  msix_capability_ = AddCapability(kMsixCapability, BytesOf(msix), BytesOf(msix_writable));

  const auto add = [this](CapabilityType type, uint64_t offset, uint32_t size) {
    const Capability capability = {.length = kShortLength,
                                   .type = type,
                                   .offset = static_cast<uint32_t>(offset),
                                   .size = size};
    AddCapability(kVendorCapability, BytesOf(capability));
  };
  add(kCommon, kCommonPage, sizeof(CommonConfig));
  add(kIsr, kIsrPage, 1);
  add(kDevice, kDevicePage, kPageSize);

  const LongCapability notify = {
      .head = {.length = kLongLength,
               .type = kNotify,
               .offset = kNotifyPage,
               .size = static_cast<uint32_t>(transport_->queue_count() * kDoorbellSize)},
      .last = kDoorbellSize};
  AddCapability(kVendorCapability, BytesOf(notify));

  const LongCapability window = {.head = {.length = kLongLength, .type = kAccessWindow}};
  const LongCapability window_writable = {
      .head = {.length = 0, .type = 0, .bar = 0xff, .offset = 0xffffffff, .size = 0xffffffff},
      .last = 0xffffffff};
  window_capability_ = AddCapability(kVendorCapability, BytesOf(window), BytesOf(window_writable));
}

// BAR 0.

// An access belongs to the page it starts on; none of them has anything near its end.
void VirtioPci::Read(uint64_t offset, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});
  const uint64_t page = offset - offset % kPageSize;
  const uint64_t within = offset % kPageSize;
  switch (page) {
    case kCommonPage:
      return ReadCommon(within, data);
    case kIsrPage:
      if (within == 0) data[0] = std::byte{transport_->TakeIsr()};
      return;
    case kDevicePage:
      return transport_->ReadConfig(within, data);
    case kTablePage:
      return msix_->table().Read(within, data);
    case kPendingPage:
      return msix_->pending_bits().Read(within, data);
    default:
      return;
  }
}

void VirtioPci::Write(uint64_t offset, std::span<const std::byte> data) {
  const uint64_t page = offset - offset % kPageSize;
  const uint64_t within = offset % kPageSize;
  switch (page) {
    case kCommonPage:
      return WriteCommon(within, data);
    case kDevicePage:
      return transport_->WriteConfig(within, data);
    case kNotifyPage:
      return Notify(within);
    case kTablePage:
      return msix_->table().Write(within, data);
    case kPendingPage:
      return msix_->pending_bits().Write(within, data);
    default:
      return;
  }
}

// Only for a kick that did not end in the kernel: through the access window, or where a doorbell
// could not be added. As a doorbell it takes any width and value.
void VirtioPci::Notify(uint64_t offset) {
  const uint64_t index = offset / kDoorbellSize;
  if (offset % kDoorbellSize != 0 || index >= transport_->queue_count()) return;
  transport_->kick(static_cast<uint16_t>(index)).Signal();
}

// Reading has no side effects, so any width and alignment will do.
void VirtioPci::ReadCommon(uint64_t offset, std::span<std::byte> data) const {
  if (offset >= sizeof(CommonConfig)) return;
  const uint32_t device_select = device_feature_select_.load(std::memory_order_relaxed);
  const uint32_t driver_select = driver_feature_select_.load(std::memory_order_relaxed);
  const uint16_t index = queue_select_.load(std::memory_order_relaxed);
  const VirtioTransport::Queue queue = transport_->queue(index);
  const CommonConfig config = {
      .device_feature_select = device_select,
      .device_feature = transport_->DeviceFeatures(device_select),
      .driver_feature_select = driver_select,
      .driver_feature = transport_->DriverFeatures(driver_select),
      .config_msix_vector = transport_->config_vector(),
      .num_queues = transport_->queue_count(),
      .device_status = transport_->status(),
      .config_generation = transport_->config_generation(),
      .queue_select = index,
      .queue_size = queue.size,
      .queue_msix_vector = queue.vector,
      .queue_enable = queue.enabled,
      .queue_notify_off = index < transport_->queue_count() ? index : uint16_t{0},
      .queue_desc = queue.descriptor_area,
      .queue_driver = queue.driver_area,
      .queue_device = queue.device_area,
  };
  const size_t size = std::min(data.size(), sizeof config - offset);
  std::ranges::copy(BytesOf(config).subspan(offset, size), data.begin());
}

void VirtioPci::WriteCommon(uint64_t offset, std::span<const std::byte> data) {
  const std::optional<uint32_t> word = As<uint32_t>(data);
  const std::optional<uint16_t> half = As<uint16_t>(data);
  const std::optional<uint8_t> byte = As<uint8_t>(data);
  const uint16_t index = queue_select_.load(std::memory_order_relaxed);
  switch (offset) {
    case offsetof(CommonConfig, device_feature_select):
      if (word) device_feature_select_.store(*word, std::memory_order_relaxed);
      return;
    case offsetof(CommonConfig, driver_feature_select):
      if (word) driver_feature_select_.store(*word, std::memory_order_relaxed);
      return;
    case offsetof(CommonConfig, driver_feature):
      if (!word) return;
      return transport_->SetDriverFeatures(driver_feature_select_.load(std::memory_order_relaxed),
                                           *word);
    case offsetof(CommonConfig, config_msix_vector):
      if (half) transport_->SetConfigVector(*half);
      return;
    case offsetof(CommonConfig, device_status):
      if (byte) WriteStatus(*byte);
      return;
    case offsetof(CommonConfig, queue_select):
      if (half) queue_select_.store(*half, std::memory_order_relaxed);
      return;
    case offsetof(CommonConfig, queue_size):
      if (half) transport_->SetQueueSize(index, *half);
      return;
    case offsetof(CommonConfig, queue_msix_vector):
      if (half) transport_->SetQueueVector(index, *half);
      return;
    case offsetof(CommonConfig, queue_enable):
      if (half == 1) transport_->EnableQueue(index);  // section 4.1.4.3.2: nothing else is written
      return;
    default:
      return WriteAddress(offset, data);
  }
}

// Two halves in any order (section 4.1.3.1), or all of an address at once.
void VirtioPci::WriteAddress(uint64_t offset, std::span<const std::byte> data) {
  using Queue = VirtioTransport::Queue;
  using Half = VirtioTransport::Half;
  constexpr uint64_t kFirst = offsetof(CommonConfig, queue_desc);
  constexpr uint64_t Queue::* kAreas[] = {&Queue::descriptor_area, &Queue::driver_area,
                                          &Queue::device_area};
  const uint64_t area = (offset - kFirst) / sizeof(uint64_t);
  if (offset < kFirst || area >= std::size(kAreas)) return;
  const uint16_t index = queue_select_.load(std::memory_order_relaxed);
  const uint64_t within = (offset - kFirst) % sizeof(uint64_t);
  if (const auto all = As<uint64_t>(data); all && within == 0) {
    transport_->SetQueueAddress(index, kAreas[area], Half::kLow, static_cast<uint32_t>(*all));
    transport_->SetQueueAddress(index, kAreas[area], Half::kHigh,
                                static_cast<uint32_t>(*all >> 32));
  } else if (const auto half = As<uint32_t>(data); half && within % sizeof(uint32_t) == 0) {
    transport_->SetQueueAddress(index, kAreas[area], within == 0 ? Half::kLow : Half::kHigh, *half);
  }
}

void VirtioPci::WriteStatus(uint8_t status) {
  if (status == 0) {
    device_feature_select_.store(0, std::memory_order_relaxed);
    driver_feature_select_.store(0, std::memory_order_relaxed);
    queue_select_.store(0, std::memory_order_relaxed);
    // The reset that begins has been waited for by nobody.
    if (transport_->ResetEnds(absl::ZeroDuration())) is_patient_ = true;
  }
  transport_->SetStatus(status);
}

// Configuration space.

void VirtioPci::BeforeConfigRead(uint32_t offset, size_t size) {
  if (Overlaps(offset, size, kStatus, sizeof(uint16_t))) {
    // Section 4.1.4.5.1: of use to a driver that polls, as there is no interrupt pin.
    const bool by_vector =
        (Get<uint16_t>(msix_capability_ + Msix::kControlOffset) & Msix::kEnable) != 0;
    SetInterruptStatus(!by_vector && transport_->isr() != 0);
  }
  const uint32_t data_at = window_capability_ + kWindowData;
  if (!Overlaps(offset, size, data_at, sizeof(uint32_t))) return;
  // Section 4.1.4.9.1: a read of the data is one of what the window shows.
  uint64_t bar_offset;
  const size_t length = Window(bar_offset);
  if (length == 0) return;
  auto data = Get<std::array<std::byte, sizeof(uint32_t)>>(data_at);
  Read(bar_offset, std::span(data).first(length));
  Put(data_at, data);
}

// A kernel that starts another one in its place takes the bit away and does no more (Linux, kexec):
// what the device goes on writing would be in the other's memory. So the guest goes on when the
// reset is over, unless what the device still reads takes its storage too long. A driver that never
// sets the bit has its device all the same.
void VirtioPci::ApplyBusMaster() {
  if (!std::exchange(mastered_bus_, MastersBus()) || mastered_bus_) return;
  WriteStatus(0);
  // Once for each reset: all configuration space waits along, and so may the machine's end.
  is_patient_ = transport_->ResetEnds(is_patient_ ? kBusMasterPatience : absl::ZeroDuration());
}

void VirtioPci::AfterConfigWrite(uint32_t offset, size_t size) {
  if (Overlaps(offset, size, kCommand, sizeof(uint16_t))) ApplyBusMaster();
  if (Overlaps(offset, size, msix_capability_ + Msix::kControlOffset, sizeof(uint16_t))) {
    ApplyMsixControl();
  }
  const uint32_t data_at = window_capability_ + kWindowData;
  if (!Overlaps(offset, size, data_at, sizeof(uint32_t))) return;
  uint64_t bar_offset;
  const size_t length = Window(bar_offset);
  if (length == 0) return;
  const auto data = Get<std::array<std::byte, sizeof(uint32_t)>>(data_at);
  Write(bar_offset, std::span(data).first(length));
}

size_t VirtioPci::Window(uint64_t& offset) const {
  const auto bar = Get<uint8_t>(window_capability_ + kWindowBar);
  const auto length = Get<uint32_t>(window_capability_ + kWindowLength);
  offset = Get<uint32_t>(window_capability_ + kWindowOffset);
  // Section 4.1.4.9.2 is what a driver has to keep to.
  if (bar != 0 || (length != 1 && length != 2 && length != 4)) return 0;
  if (offset % length != 0 || offset + length > kBarSize) return 0;
  return length;
}

void VirtioPci::ApplyMsixControl() {
  const auto control = Get<uint16_t>(msix_capability_ + Msix::kControlOffset);
  const bool enabled = (control & Msix::kEnable) != 0;
  // Interrupts go to vectors only while these deliver or keep them pending: what happens with MSI-X
  // off shows in the ISR status, and must not arrive as a message once it is on.
  if (!enabled) transport_->EnableVectors(false);
  msix_->SetControl(enabled, (control & Msix::kFunctionMask) != 0);
  if (enabled) transport_->EnableVectors(true);
}

// Doorbells.

void VirtioPci::BarMapped(size_t index, uint64_t address) {
  if (index != 0) return;
  RemoveDoorbells();
  doorbells_at_ = address + kNotifyPage;
  for (uint16_t queue = 0; queue < transport_->queue_count(); ++queue) {
    const absl::Status added =
        platform_.AddDoorbell(doorbells_at_ + queue * kDoorbellSize, transport_->kick(queue));
    if (added.ok()) {
      doorbells_.push_back(queue);
    } else if (!std::exchange(said_no_doorbell_, true)) {
      log_.Log(Severity::kWarning, "%s: kicks of queue %d go through the vCPU, which is slower: %s",
               name_, queue, Message(added));
    }
  }
}

void VirtioPci::BarUnmapped(size_t index, uint64_t /*address*/) {
  if (index == 0) RemoveDoorbells();
}

void VirtioPci::RemoveDoorbells() {
  for (const uint16_t queue : doorbells_) {
    platform_.RemoveDoorbell(doorbells_at_ + queue * kDoorbellSize, transport_->kick(queue));
  }
  doorbells_.clear();
}

}  // namespace ringside
