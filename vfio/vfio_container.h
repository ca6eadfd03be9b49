// A VFIO container with one group: an address space of the IOMMU that a device sees.
//
// Threads: as PciDevice. Ownership: closing it ends all mappings; memory given to MapDma is locked
// until then.
// Units: bytes. Errors: as PciDevice.
// Spec: linux/vfio.h, "Type1 IOMMU".
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "vfio/pci_device.h"

namespace ringside {

class VfioContainer {
 public:
  // `group`: of the device `name`, which errors name.
  static absl::StatusOr<VfioContainer> Create(UniqueFd group, const std::string& name);

  // Opens the device, which resets it.
  absl::StatusOr<UniqueFd> OpenDevice() const;

  std::span<const IovaRange> iova_ranges() const { return iova_ranges_; }
  absl::Status MapDma(const DmaMapping& mapping) const;
  absl::Status UnmapDma(uint64_t iova, uint64_t size) const;

 private:
  VfioContainer(UniqueFd container, UniqueFd group, std::string name)
      : container_(std::move(container)), group_(std::move(group)), name_(std::move(name)) {}

  absl::Status SetUp();
  absl::Status ReadIovaRanges();

  UniqueFd container_;
  UniqueFd group_;
  std::string name_;
  std::vector<IovaRange> iova_ranges_;
};

}  // namespace ringside
