// What is said to a vfio-user server, command by command: each call is one or two messages, and
// what is answered is checked before it is passed on.
//
// Threads and ownership: as VfioUserConnection. Units: bytes.
// Errors: as VfioUserConnection; each names the socket and what was tried.
// Spec: as vfio_user_protocol.h; linux/vfio.h for regions and interrupts.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "vfio/pci_device.h"
#include "vfio/vfio_info.h"
#include "vfio/vfio_user_connection.h"

namespace ringside {

// One that the server offers to map has a descriptor.
struct VfioUserRegion {
  VfioRegion layout;
  UniqueFd fd;
};

class VfioUserSession {
 public:
  static absl::StatusOr<std::shared_ptr<VfioUserSession>> Connect(
      const std::string& path, absl::Duration timeout, VfioUserConnection::Handler& handler,
      const EventFd& wake);
  // Agrees on a version, which comes first.
  absl::Status Negotiate();

  const VfioUserCapabilities& capabilities() const { return capabilities_; }
  VfioUserConnection& connection() { return *connection_; }

  // FailedPrecondition if it is no PCI device.
  absl::StatusOr<VfioUserDeviceInfo> GetInfo();
  absl::StatusOr<VfioUserRegion> GetRegion(uint32_t index);
  // MSI-X.
  absl::StatusOr<uint32_t> GetVectors(const VfioUserDeviceInfo& info);
  // One to four bytes.
  absl::StatusOr<uint32_t> Read(uint32_t region, uint64_t offset, uint32_t size);
  absl::Status Write(uint32_t region, uint64_t offset, uint32_t size, uint32_t value);
  // `mapping.fd` must be one.
  absl::Status MapDma(const DmaMapping& mapping);
  absl::Status UnmapDma(uint64_t iova, uint64_t size);
  absl::Status Reset();

 private:
  VfioUserSession(std::string path, std::shared_ptr<VfioUserConnection> connection)
      : path_(std::move(path)), connection_(std::move(connection)) {}

  absl::Status Error(const absl::Status& why, std::string_view what) const;
  // An answer that is none ends the connection: what else it says is worth no more.
  absl::Status Misleading(std::string_view what);

  const std::string path_;
  const std::shared_ptr<VfioUserConnection> connection_;
  VfioUserCapabilities capabilities_;
};

// The payload of kRegionWrite.
VfioUserPayload VfioUserRegionWrite(uint32_t region, uint64_t offset, uint32_t size,
                                    uint32_t value);

}  // namespace ringside
