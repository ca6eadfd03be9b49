// The BARs of a vfio-user device as memory: files of the server's, mapped. While the server is
// gone, pages of nobody's lie at the same addresses, so that stores go nowhere.
//
// A server that makes such a file shorter ends us with SIGBUS at the next access: only a seal
// forbids that. A file that takes one (memfd_create's MFD_ALLOW_SEALING) is sealed here, before it
// is mapped. One that takes none, as SPDK's, which is an ordinary file, is mapped all the same: its
// server is trusted to leave the length alone. A file that is too short from the start, or has no
// room for its pages, is refused.
//
// Threads: Detach, any; the others, one at a time. Ownership: mappings stay as long as this.
// Errors: as PciDevice::MapBar.
// Spec: mmap(2); the vfio-user protocol, "VFIO_USER_DEVICE_GET_REGION_INFO".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sync.h"
#include "vfio/vfio_user_session.h"

namespace ringside {

class VfioUserBars {
 public:
  static constexpr size_t kBars = 6;
  using Regions = std::array<VfioUserRegion, kBars>;

  // `device`: what messages call it.
  explicit VfioUserBars(std::string device) : device_(std::move(device)) {}
  ~VfioUserBars();

  // The server's, from now on; what is mapped already is mapped anew.
  absl::Status Attach(Regions regions);
  // The server is gone.
  void Detach();

  absl::StatusOr<std::byte*> Map(size_t bar, uint64_t offset, uint64_t size);

 private:
  // Whole pages.
  struct Mapping {
    size_t bar;
    uint64_t offset;
    uint64_t size;
    std::byte* address;
  };

  // `mapping.address` null: wherever there is room.
  absl::Status MapPages(Mapping& mapping) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string device_;
  Mutex mutex_;
  bool attached_ ABSL_GUARDED_BY(mutex_) = false;
  Regions regions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Mapping> mappings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
