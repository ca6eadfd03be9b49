#include "devices/assigned_function.h"

#include <algorithm>
#include <cstddef>
#include <linux/pci_regs.h>
#include <utility>

#include "base/size.h"
#include "base/status.h"
#include "vfio/pci_capability.h"

namespace ringside {
namespace {

constexpr uint64_t kMsixBytes = PCI_MSIX_ENTRY_SIZE;
// What one 32-bit BAR can be.
constexpr uint64_t kMostBar = uint64_t{1} << 31;

constexpr uint32_t kMsixBar = PCI_MSIX_TABLE_BIR;  // the same bits in both registers

// PCI Express Base 5.0, section 7.5.3.2: no root port is above it.
constexpr uint16_t kExpressVersion = 2;
constexpr uint16_t kExpressFlags = kExpressVersion | PCI_EXP_TYPE_RC_END << 4;
constexpr size_t kExpressSize = 60;
// What drivers look at to set up a device of their own, and nothing that they could ask for: no
// function level reset above all (sections 7.5.3.3 and 7.5.3.4).
constexpr uint32_t kExpressCapabilities =
    PCI_EXP_DEVCAP_PAYLOAD | PCI_EXP_DEVCAP_EXT_TAG | PCI_EXP_DEVCAP_RBER;
constexpr uint16_t kExpressControl = PCI_EXP_DEVCTL_RELAX_EN | PCI_EXP_DEVCTL_PAYLOAD |
                                     PCI_EXP_DEVCTL_EXT_TAG | PCI_EXP_DEVCTL_NOSNOOP_EN |
                                     PCI_EXP_DEVCTL_READRQ;

uint64_t TableBytes(uint32_t vectors) {
  return vectors * kMsixBytes;
}

// A bit a vector, in whole words of 8 bytes (PCI 3.0, section 6.8.2).
uint64_t PendingBytes(uint32_t vectors) {
  return uint64_t{8} * ((vectors + 63) / 64);
}

bool IsMemoryBar(PciDevice& device, uint32_t bar) {
  const uint32_t kind = device.ReadConfig(PCI_BASE_ADDRESS_0 + 4 * bar, 4);
  return device.bar(static_cast<int>(bar)).size > 0 && (kind & PCI_BASE_ADDRESS_SPACE_IO) == 0;
}

bool Holds(PciDevice& device, uint32_t place, uint64_t size) {
  const uint32_t bar = place & kMsixBar;
  if (bar >= PciFunction::kBars || !IsMemoryBar(device, bar)) return false;
  return (place & ~kMsixBar) + size <= device.bar(static_cast<int>(bar)).size;
}

template <typename... Args>
absl::Status Precondition(const absl::FormatSpec<Args...>& format, const Args&... args) {
  return absl::FailedPreconditionError(absl::StrFormat(format, args...));
}

}  // namespace

absl::StatusOr<AssignedFunction::VectorPlace> AssignedFunction::FindVectors(PciDevice& device) {
  const uint32_t capability = FindPciCapability(device, PCI_CAP_ID_MSIX);
  if (capability == 0 || device.vectors() == 0) {
    return Precondition(
        "PCI device '%s' has no MSI-X, and a guest is given no other interrupts; it cannot be "
        "assigned",
        device.name());
  }
  const VectorPlace place = {.table = device.ReadConfig(capability + PCI_MSIX_TABLE, 4),
                             .pending_bits = device.ReadConfig(capability + PCI_MSIX_PBA, 4),
                             .vectors = device.vectors()};
  if (!Holds(device, place.table, TableBytes(place.vectors)) ||
      !Holds(device, place.pending_bits, PendingBytes(place.vectors))) {
    return Precondition(
        "PCI device '%s' says that its MSI-X table is where it has no memory; it cannot be "
        "assigned",
        device.name());
  }
  return place;
}

absl::Status AssignedFunction::CheckBars(PciDevice& device) {
  for (uint32_t bar = 0; bar < kBars; ++bar) {
    const uint64_t size = device.bar(static_cast<int>(bar)).size;
    if (!IsMemoryBar(device, bar) || size <= kMostBar) continue;
    return Precondition(
        "BAR %d of PCI device '%s' has %s; a machine has its PCI devices below 4G, where there is "
        "no room for it",
        bar, device.name(), FormatSize(size));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AssignedFunction>> AssignedFunction::Create(
    std::unique_ptr<PciDevice> device, PciPlatform& platform, DeviceMemory& memory, Logger log) {
  const uint32_t header = device->ReadConfig(PCI_HEADER_TYPE, 1);
  if (device->ReadConfig(PCI_VENDOR_ID, 2) == 0xffff) {
    return Precondition("PCI device '%s' does not answer; see 'dmesg'", device->name());
  }
  if ((header & 0x7f) != PCI_HEADER_TYPE_NORMAL) {
    return Precondition("PCI device '%s' is a bridge, which no guest can be given", device->name());
  }
  RINGSIDE_ASSIGN_OR_RETURN(const VectorPlace place, FindVectors(*device));
  RINGSIDE_RETURN_IF_ERROR(CheckBars(*device));
  const auto vectors = static_cast<uint16_t>(std::min<uint32_t>(place.vectors, Msix::kMaxVectors));
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<Msix> msix, Msix::Create(vectors, platform));
  const uint32_t revision_and_class = device->ReadConfig(PCI_CLASS_REVISION, 4);
  const Identity identity = {
      .vendor = static_cast<uint16_t>(device->ReadConfig(PCI_VENDOR_ID, 2)),
      .device = static_cast<uint16_t>(device->ReadConfig(PCI_DEVICE_ID, 2)),
      .subsystem_vendor = static_cast<uint16_t>(device->ReadConfig(PCI_SUBSYSTEM_VENDOR_ID, 2)),
      .subsystem = static_cast<uint16_t>(device->ReadConfig(PCI_SUBSYSTEM_ID, 2)),
      .class_code = revision_and_class >> 8,
      .revision = static_cast<uint8_t>(revision_and_class)};
  std::unique_ptr<AssignedFunction> function(
      new AssignedFunction(std::move(device), identity, std::move(msix), place, memory, log));
  return function;
}

AssignedFunction::AssignedFunction(std::unique_ptr<PciDevice> device, const Identity& identity,
                                   std::unique_ptr<Msix> msix, const VectorPlace& place,
                                   DeviceMemory& memory, Logger log)
    : PciFunction(identity), device_(std::move(device)), log_(log), msix_(std::move(msix)) {
  // Its memory decodes as long as it is here, whatever the guest wants: an access to what is mapped
  // must not end in a fault.
  {
    const MutexLock lock(bus_mutex_);
    WriteBusMaster(false);
  }
  AddBars(place, memory);
  AddMsix(place);
  AddExpress();
}

std::vector<AssignedBar::Overlay> AssignedFunction::OverlaysOf(uint32_t bar,
                                                               const VectorPlace& place) {
  std::vector<AssignedBar::Overlay> overlays;
  if ((place.table & kMsixBar) == bar) {
    overlays.push_back({place.table & ~kMsixBar, TableBytes(place.vectors), &msix_->table()});
  }
  if ((place.pending_bits & kMsixBar) == bar) {
    overlays.push_back(
        {place.pending_bits & ~kMsixBar, PendingBytes(place.vectors), &msix_->pending_bits()});
  }
  return overlays;
}

void AssignedFunction::AddBars(const VectorPlace& place, DeviceMemory& memory) {
  for (uint32_t bar = 0; bar < kBars; ++bar) {
    if (!IsMemoryBar(*device_, bar)) continue;
    const int index = static_cast<int>(bar);
    bars_[bar] =
        std::make_unique<AssignedBar>(*device_, index, OverlaysOf(bar, place), memory, log_);
    AddBar(bar, AssignedBar::GuestSize(device_->bar(index).size), *bars_[bar]);
  }
}

void AssignedFunction::AddMsix(const VectorPlace& place) {
  struct [[gnu::packed]] {
    uint16_t control;
    uint32_t table;
    uint32_t pending_bits;
  } const msix = {static_cast<uint16_t>(msix_->size() - 1), place.table, place.pending_bits};
  const uint16_t writable = PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL;
  msix_capability_ = AddCapability(PCI_CAP_ID_MSIX, BytesOf(msix), BytesOf(writable));
}

// Read-only, the rest of it 0: no link, no slot.
void AssignedFunction::AddExpress() {
  const uint32_t capability = FindPciCapability(*device_, PCI_CAP_ID_EXP);
  if (capability == 0) return;
  struct [[gnu::packed]] {
    uint16_t flags;
    uint32_t device_capabilities;
    uint16_t device_control;
    std::array<std::byte, kExpressSize - PCI_EXP_DEVSTA> rest;
  } const express = {.flags = kExpressFlags,
                     .device_capabilities =
                         device_->ReadConfig(capability + PCI_EXP_DEVCAP, 4) & kExpressCapabilities,
                     .device_control = static_cast<uint16_t>(
                         device_->ReadConfig(capability + PCI_EXP_DEVCTL, 2) & kExpressControl),
                     .rest = {}};
  AddCapability(PCI_CAP_ID_EXP, BytesOf(express));
}

void AssignedFunction::AfterConfigWrite(uint32_t offset, size_t size) {
  if (Overlaps(offset, size, PCI_COMMAND, sizeof(uint16_t))) {
    SetBusMaster((Get<uint16_t>(PCI_COMMAND) & PCI_COMMAND_MASTER) != 0);
  }
  if (Overlaps(offset, size, msix_capability_ + PCI_MSIX_FLAGS, sizeof(uint16_t))) {
    ApplyMsixControl();
  }
}

void AssignedFunction::SetBusMaster(bool on) {
  const MutexLock lock(bus_mutex_);
  if (on != bus_master_ && !left_bus_) WriteBusMaster(on);
}

void AssignedFunction::LeaveBus() {
  const MutexLock lock(bus_mutex_);
  if (!std::exchange(left_bus_, true)) WriteBusMaster(false);
}

void AssignedFunction::WriteBusMaster(bool on) {
  const uint32_t before = device_->ReadConfig(PCI_COMMAND, 2) & ~uint32_t{PCI_COMMAND_MASTER};
  device_->WriteConfig(PCI_COMMAND, 2,
                       before | PCI_COMMAND_MEMORY | (on ? uint32_t{PCI_COMMAND_MASTER} : 0));
  bus_master_ = on;
}

void AssignedFunction::ApplyMsixControl() {
  const auto control = Get<uint16_t>(msix_capability_ + PCI_MSIX_FLAGS);
  const bool enabled = (control & PCI_MSIX_FLAGS_ENABLE) != 0;
  const bool was_enabled = std::exchange(msix_enabled_, enabled);
  if (enabled && !was_enabled) EnableVectors();
  msix_->SetControl(enabled, (control & PCI_MSIX_FLAGS_MASKALL) != 0);
  if (!enabled) DisableVectors();
}

// All at once: which of them the guest will use shows only later, and to change their number then
// would switch them off for a moment. Where the host is short of interrupts, those that it has.
void AssignedFunction::EnableVectors() {
  std::vector<int> eventfds;
  eventfds.reserve(msix_->size());
  for (uint16_t i = 0; i < msix_->size(); ++i) eventfds.push_back(msix_->event(i)->fd());
  absl::Status first;
  while (!eventfds.empty()) {
    absl::Status status = device_->SetVectors(eventfds);
    if (status.ok()) break;
    if (first.ok()) first = std::move(status);
    eventfds.resize(eventfds.size() / 2);
  }
  vectors_enabled_ = !eventfds.empty();
  if (!first.ok()) {
    Complain(absl::StrFormat("%s; the guest has %d of %d vectors, the others are silent",
                             Message(first), eventfds.size(), msix_->size()));
  }
  const auto count = static_cast<uint32_t>(eventfds.size());
  most_vectors_.store(std::max(count, most_vectors()), std::memory_order_relaxed);
}

void AssignedFunction::DisableVectors() {
  if (!std::exchange(vectors_enabled_, false)) return;
  if (absl::Status status = device_->SetVectors({}); !status.ok()) Complain(Message(status));
}

void AssignedFunction::Complain(std::string_view what) {
  if (!std::exchange(complained_, true)) log_.Log(Severity::kError, "%s", what);
}

void AssignedFunction::Stop() {
  if (std::exchange(stopped_, true)) return;
  LeaveBus();
  DisableVectors();
  if (absl::Status status = device_->Reset(); !status.ok()) {
    log_.Log(Severity::kWarning, "%s: it keeps the state that the guest left it in",
             Message(status));
  }
}

uint64_t AssignedFunction::exits() const {
  uint64_t exits = 0;
  for (const auto& bar : bars_) exits += bar == nullptr ? 0 : bar->exits();
  return exits;
}

}  // namespace ringside
