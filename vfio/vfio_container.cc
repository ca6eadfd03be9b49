#include "vfio/vfio_container.h"

#include <cerrno>
#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>

#include "base/status.h"
#include "vfio/dma_limits.h"
#include "vfio/vfio_info.h"

namespace ringside {
namespace {

constexpr char kContainerFile[] = "/dev/vfio/vfio";

// What any IOMMU of x86 has, where the kernel does not tell: 39 bits, without the window in which a
// write is an interrupt (Intel SDM 3, 11.11.1).
constexpr uint64_t kLastSafeIova = (uint64_t{1} << 39) - 1;
constexpr uint64_t kMsiWindowFirst = 0xfee00000;
constexpr uint64_t kMsiWindowLast = 0xfeefffff;

}  // namespace

absl::StatusOr<VfioContainer> VfioContainer::Create(UniqueFd group, const std::string& name) {
  UniqueFd fd(open(kContainerFile, O_RDWR | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoError(errno, absl::StrFormat("cannot open '%s'", kContainerFile),
                      errno == ENOENT ? "load the kernel module vfio, or give it to the container"
                                      : "its mode must permit reading and writing");
  }
  VfioContainer container(std::move(fd), std::move(group), name);
  RINGSIDE_RETURN_IF_ERROR(container.SetUp());
  RINGSIDE_RETURN_IF_ERROR(container.ReadIovaRanges());
  return container;
}

absl::Status VfioContainer::SetUp() {
  if (const int version = ioctl(container_.get(), VFIO_GET_API_VERSION);
      version != VFIO_API_VERSION) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the kernel's VFIO has API version %d, and %d is needed", version, VFIO_API_VERSION));
  }
  if (ioctl(container_.get(), VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) <= 0) {
    return absl::FailedPreconditionError(
        "the kernel's VFIO lacks type 1 version 2; load it with 'modprobe vfio_iommu_type1'");
  }
  int container = container_.get();
  if (ioctl(group_.get(), VFIO_GROUP_SET_CONTAINER, &container) != 0) {
    return ErrnoError(errno,
                      absl::StrFormat("cannot take the IOMMU group of PCI device '%s'", name_));
  }
  if (ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot use the IOMMU of PCI device '%s'", name_),
                      errno == EPERM
                          ? "this platform cannot remap interrupts (see 'dmesg' for intremap); the "
                            "parameter allow_unsafe_interrupts of vfio_iommu_type1 gives that up"
                          : "");
  }
  return absl::OkStatus();
}

absl::Status VfioContainer::ReadIovaRanges() {
  const vfio_iommu_type1_info ask{};
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<std::byte> info,
                            QueryVfioInfo(std::as_bytes(std::span(&ask, 1)), [this](void* buffer) {
                              return ioctl(container_.get(), VFIO_IOMMU_GET_INFO, buffer);
                            }));
  RINGSIDE_ASSIGN_OR_RETURN(const auto ranges, ParseIovaRanges(info));
  iova_ranges_ =
      ranges.value_or(std::vector<IovaRange>{{.first = 0, .last = kMsiWindowFirst - 1},
                                             {.first = kMsiWindowLast + 1, .last = kLastSafeIova}});
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> VfioContainer::OpenDevice() const {
  UniqueFd device(ioctl(group_.get(), VFIO_GROUP_GET_DEVICE_FD, name_.c_str()));
  if (!device.valid()) {
    return ErrnoError(errno, absl::StrFormat("cannot open PCI device '%s'", name_),
                      "see 'dmesg' for vfio-pci");
  }
  return device;
}

absl::Status VfioContainer::MapDma(const DmaMapping& mapping) const {
  vfio_iommu_type1_dma_map map{.argsz = sizeof map,
                               .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
                               .vaddr = reinterpret_cast<uint64_t>(mapping.host),
                               .iova = mapping.iova,
                               .size = mapping.size};
  if (ioctl(container_.get(), VFIO_IOMMU_MAP_DMA, &map) == 0) return absl::OkStatus();
  return MapDmaError(errno, name_, mapping, ReadLockedMemory(), ReadDmaEntryLimit());
}

absl::Status VfioContainer::UnmapDma(uint64_t iova, uint64_t size) const {
  vfio_iommu_type1_dma_unmap unmap{.argsz = sizeof unmap, .flags = 0, .iova = iova, .size = size};
  // Nothing mapped there is a success of 0 bytes, and half a mapping EINVAL.
  const int error = ioctl(container_.get(), VFIO_IOMMU_UNMAP_DMA, &unmap) != 0 ? errno : 0;
  if (error == 0 && unmap.size == size) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("cannot take %d bytes of memory at I/O address %#x from PCI device '%s': "
                      "error %d, %d bytes taken",
                      size, iova, name_, error, error == 0 ? unmap.size : 0));
}

}  // namespace ringside
