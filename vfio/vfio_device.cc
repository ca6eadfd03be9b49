#include "vfio/vfio_device.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "base/pages.h"
#include "base/status.h"
#include "vfio/mmio.h"
#include "vfio/pci_capability.h"
#include "vfio/vfio_container.h"
#include "vfio/vfio_group.h"
#include "vfio/vfio_info.h"

namespace ringside {
namespace {

constexpr uint32_t kBars = 6;

class Mapping {
 public:
  Mapping(std::byte* address, uint64_t size) : address_(address), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_(other.size_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (address_ != nullptr) munmap(address_, size_);
  }

 private:
  std::byte* address_;
  uint64_t size_;
};

class VfioDevice final : public PciDevice {
 public:
  VfioDevice(std::string name, VfioContainer container)
      : name_(std::move(name)), container_(std::move(container)) {}

  absl::Status SetUp();

  const std::string& name() const override { return name_; }
  uint32_t ReadConfig(uint32_t offset, uint32_t size) override;
  void WriteConfig(uint32_t offset, uint32_t size, uint32_t value) override;
  uint32_t ReadBar(int bar, uint64_t offset) override;
  void WriteBar(int bar, uint64_t offset, uint32_t value) override;
  absl::StatusOr<std::byte*> MapBar(int bar, uint64_t offset, uint64_t size) override;
  PciBar bar(int bar) const override;
  void ReadRegisters(int bar, uint64_t offset, std::span<std::byte> data) override;
  void WriteRegisters(int bar, uint64_t offset, std::span<const std::byte> data) override;
  std::span<const IovaRange> iova_ranges() const override { return container_.iova_ranges(); }
  absl::Status MapDma(const DmaMapping& mapping) override { return container_.MapDma(mapping); }
  absl::Status UnmapDma(uint64_t iova, uint64_t size) override {
    return container_.UnmapDma(iova, size);
  }
  uint32_t vectors() const override { return vectors_; }
  absl::Status SetVectors(std::span<const int> eventfds) override;
  void MaskVector(uint32_t vector) override {
    SetVectorControl(vector, PCI_MSIX_ENTRY_CTRL_MASKBIT);
  }
  bool UnmaskVector(uint32_t vector) override {
    SetVectorControl(vector, 0);
    return true;
  }
  absl::Status Reset() override;

 private:
  absl::StatusOr<VfioRegion> ReadRegion(uint32_t index) const;
  void Read(const VfioRegion& region, uint64_t offset, std::span<std::byte> data) const;
  void Write(const VfioRegion& region, uint64_t offset, std::span<const std::byte> data) const;
  absl::Status ReadVectors();
  absl::Status MapVectorTable();
  absl::Status DisableVectors();
  absl::Status SetEventfds(std::span<const int> eventfds);
  void SetVectorControl(uint32_t vector, uint32_t value) const;

  // The end of this object is in this order backwards: the kernel takes the device back when both
  // its mappings and its descriptor are gone, and then the container's memory.
  const std::string name_;
  VfioContainer container_;
  UniqueFd fd_;
  std::array<VfioRegion, kBars> bars_;
  VfioRegion config_;
  std::vector<Mapping> mappings_;
  bool can_reset_ = false;
  uint32_t vectors_ = 0;
  size_t vectors_in_use_ = 0;
  std::byte* vector_table_ = nullptr;
};

absl::Status VfioDevice::SetUp() {
  RINGSIDE_ASSIGN_OR_RETURN(fd_, container_.OpenDevice());
  vfio_device_info info{.argsz = sizeof info};
  if (ioctl(fd_.get(), VFIO_DEVICE_GET_INFO, &info) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot query PCI device '%s'", name_));
  }
  if ((info.flags & VFIO_DEVICE_FLAGS_PCI) == 0 ||
      info.num_regions <= VFIO_PCI_CONFIG_REGION_INDEX) {
    return absl::FailedPreconditionError(
        absl::StrFormat("VFIO offers '%s' as something else than a PCI device", name_));
  }
  can_reset_ = (info.flags & VFIO_DEVICE_FLAGS_RESET) != 0;
  for (uint32_t bar = 0; bar < kBars; ++bar) {
    RINGSIDE_ASSIGN_OR_RETURN(bars_[bar], ReadRegion(VFIO_PCI_BAR0_REGION_INDEX + bar));
  }
  RINGSIDE_ASSIGN_OR_RETURN(config_, ReadRegion(VFIO_PCI_CONFIG_REGION_INDEX));
  if (info.num_irqs > VFIO_PCI_MSIX_IRQ_INDEX) RINGSIDE_RETURN_IF_ERROR(ReadVectors());
  if (vectors_ > 0) RINGSIDE_RETURN_IF_ERROR(MapVectorTable());
  return absl::OkStatus();
}

absl::StatusOr<VfioRegion> VfioDevice::ReadRegion(uint32_t index) const {
  const vfio_region_info ask{.index = index};
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<std::byte> info,
                            QueryVfioInfo(std::as_bytes(std::span(&ask, 1)), [this](void* buffer) {
                              return ioctl(fd_.get(), VFIO_DEVICE_GET_REGION_INFO, buffer);
                            }));
  return ParseVfioRegion(info);
}

absl::Status VfioDevice::ReadVectors() {
  vfio_irq_info info{.argsz = sizeof info, .index = VFIO_PCI_MSIX_IRQ_INDEX};
  if (ioctl(fd_.get(), VFIO_DEVICE_GET_IRQ_INFO, &info) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot query the interrupts of '%s'", name_));
  }
  if ((info.flags & VFIO_IRQ_INFO_EVENTFD) != 0) vectors_ = info.count;
  return absl::OkStatus();
}

// The table can be memory only where the kernel lets it be mapped: where interrupts are remapped,
// whatever a process may write there.
absl::Status VfioDevice::MapVectorTable() {
  const uint32_t capability = FindPciCapability(*this, PCI_CAP_ID_MSIX);
  if (capability == 0) return absl::OkStatus();
  const uint32_t place = ReadConfig(capability + PCI_MSIX_TABLE, 4);
  const uint32_t bar = place & PCI_MSIX_TABLE_BIR;
  if (bar >= kBars || !bars_[bar].msix_mappable) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(vector_table_,
                            MapBar(static_cast<int>(bar), place & PCI_MSIX_TABLE_OFFSET,
                                   uint64_t{vectors_} * PCI_MSIX_ENTRY_SIZE));
  return absl::OkStatus();
}

void VfioDevice::Read(const VfioRegion& region, uint64_t offset, std::span<std::byte> data) const {
  const bool read = offset < region.size && pread(fd_.get(), data.data(), data.size(),
                                                  static_cast<off_t>(region.offset + offset)) ==
                                                static_cast<ssize_t>(data.size());
  if (!read) std::ranges::fill(data, std::byte{0xff});
}

void VfioDevice::Write(const VfioRegion& region, uint64_t offset,
                       std::span<const std::byte> data) const {
  if (offset >= region.size) return;
  [[maybe_unused]] const ssize_t written =
      pwrite(fd_.get(), data.data(), data.size(), static_cast<off_t>(region.offset + offset));
}

uint32_t VfioDevice::ReadConfig(uint32_t offset, uint32_t size) {
  uint32_t value = 0;
  Read(config_, offset, std::as_writable_bytes(std::span(&value, 1)).first(size));
  return value;
}

void VfioDevice::WriteConfig(uint32_t offset, uint32_t size, uint32_t value) {
  Write(config_, offset, std::as_bytes(std::span(&value, 1)).first(size));
}

uint32_t VfioDevice::ReadBar(int bar, uint64_t offset) {
  uint32_t value = 0;
  ReadRegisters(bar, offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void VfioDevice::WriteBar(int bar, uint64_t offset, uint32_t value) {
  WriteRegisters(bar, offset, std::as_bytes(std::span(&value, 1)));
}

PciBar VfioDevice::bar(int bar) const {
  const VfioRegion& region = bars_.at(static_cast<size_t>(bar));
  return {.size = region.size, .mappable = region.areas};
}

void VfioDevice::ReadRegisters(int bar, uint64_t offset, std::span<std::byte> data) {
  Read(bars_.at(static_cast<size_t>(bar)), offset, data);
}

void VfioDevice::WriteRegisters(int bar, uint64_t offset, std::span<const std::byte> data) {
  Write(bars_.at(static_cast<size_t>(bar)), offset, data);
}

absl::StatusOr<std::byte*> VfioDevice::MapBar(int bar, uint64_t offset, uint64_t size) {
  const VfioRegion& region = bars_.at(static_cast<size_t>(bar));
  const std::string what = absl::StrFormat("%d bytes at offset %#x of BAR %d of PCI device '%s'",
                                           size, offset, bar, name_);
  if (offset > region.size || size > region.size - offset) {
    return absl::OutOfRangeError(absl::StrFormat("there are no %s: it has %d", what, region.size));
  }
  const uint64_t first = PageDown(offset);
  const uint64_t end = PageUp(offset + size);
  const bool allowed = std::ranges::any_of(region.areas, [&](const MappableArea& area) {
    return first >= area.offset && offset + size - area.offset <= area.size;
  });
  if (!allowed) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the kernel does not let programs map %s", what));
  }
  void* pages = mmap(nullptr, end - first, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                     static_cast<off_t>(region.offset + first));
  if (pages == MAP_FAILED) return ErrnoError(errno, "cannot map " + what);
  auto* start = static_cast<std::byte*>(pages);
  mappings_.emplace_back(start, end - first);
  return start + (offset - first);
}

absl::Status VfioDevice::SetVectors(std::span<const int> eventfds) {
  if (eventfds.size() > vectors_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "PCI device '%s' has %d MSI-X vectors, not %d", name_, vectors_, eventfds.size()));
  }
  if (eventfds.size() == vectors_in_use_) {
    return eventfds.empty() ? absl::OkStatus() : SetEventfds(eventfds);
  }
  const bool replaces = vectors_in_use_ > 0;
  if (replaces) RINGSIDE_RETURN_IF_ERROR(DisableVectors());
  if (eventfds.empty()) return absl::OkStatus();
  RINGSIDE_RETURN_IF_ERROR(SetEventfds(eventfds));
  vectors_in_use_ = eventfds.size();
  const uint64_t one = 1;
  for (const int eventfd : eventfds) {
    if (replaces) [[maybe_unused]]
      const ssize_t written = write(eventfd, &one, sizeof one);
  }
  return absl::OkStatus();
}

absl::Status VfioDevice::DisableVectors() {
  vfio_irq_set set{.argsz = sizeof set,
                   .flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER,
                   .index = VFIO_PCI_MSIX_IRQ_INDEX};
  if (ioctl(fd_.get(), VFIO_DEVICE_SET_IRQS, &set) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot disable the interrupts of '%s'", name_));
  }
  vectors_in_use_ = 0;
  return absl::OkStatus();
}

absl::Status VfioDevice::SetEventfds(std::span<const int> eventfds) {
  std::vector<std::byte> buffer(sizeof(vfio_irq_set) + eventfds.size_bytes());
  const vfio_irq_set set{.argsz = static_cast<uint32_t>(buffer.size()),
                         .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                         .index = VFIO_PCI_MSIX_IRQ_INDEX,
                         .start = 0,
                         .count = static_cast<uint32_t>(eventfds.size())};
  std::memcpy(buffer.data(), &set, sizeof set);
  std::memcpy(buffer.data() + sizeof set, eventfds.data(), eventfds.size_bytes());
  const int left = ioctl(fd_.get(), VFIO_DEVICE_SET_IRQS, buffer.data());
  if (left < 0) {
    return ErrnoError(errno, absl::StrFormat("cannot enable %d interrupts of PCI device '%s'",
                                             eventfds.size(), name_));
  }
  if (left > 0) {  // the host has only so many
    return absl::FailedPreconditionError(
        absl::StrFormat("the host gives PCI device '%s' %d interrupts instead of %d; use fewer "
                        "queues",
                        name_, left, eventfds.size()));
  }
  return absl::OkStatus();
}

// Section 6.8.2.9: while bit 0 is set the interrupt is pending, and comes when it is cleared.
void VfioDevice::SetVectorControl(uint32_t vector, uint32_t value) const {
  if (vector_table_ == nullptr || vector >= vectors_in_use_) return;
  StoreRelease(reinterpret_cast<uint32_t*>(vector_table_ + size_t{vector} * PCI_MSIX_ENTRY_SIZE +
                                           PCI_MSIX_ENTRY_VECTOR_CTRL),
               value);
}

absl::Status VfioDevice::Reset() {
  if (!can_reset_) {
    return absl::FailedPreconditionError(
        absl::StrFormat("PCI device '%s' cannot be reset by itself", name_));
  }
  if (ioctl(fd_.get(), VFIO_DEVICE_RESET) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot reset PCI device '%s'", name_));
  }
  return absl::OkStatus();
}

absl::StatusOr<VfioContainer> OpenContainer(const std::string& address) {
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd group, OpenVfioGroup(PciSysfs(), address));
  return VfioContainer::Create(std::move(group), address);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PciDevice>> OpenVfioDevice(const std::string& address) {
  RINGSIDE_ASSIGN_OR_RETURN(VfioContainer container, OpenContainer(address));
  auto device = std::make_unique<VfioDevice>(address, std::move(container));
  RINGSIDE_RETURN_IF_ERROR(device->SetUp());
  return device;
}

absl::Status CheckVfioDevice(const std::string& address) {
  return OpenContainer(address).status();
}

}  // namespace ringside
