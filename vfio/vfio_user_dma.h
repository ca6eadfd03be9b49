// Memory that a vfio-user device reaches: what is mapped, for the server that is there and for the
// one that may come after it, and what a server reads and writes of it by messages.
//
// Threads: Serve, any; the others, one at a time. Ownership: of copies of the descriptors; memory
// stays as long as its mapping.
// Units: bytes. Spec: the vfio-user protocol, "VFIO_USER_DMA_MAP" to "VFIO_USER_DMA_WRITE".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/sync.h"
#include "vfio/vfio_user_session.h"

namespace ringside {

class VfioUserDma {
 public:
  // `device`: what messages call it.
  explicit VfioUserDma(std::string device) : device_(std::move(device)) {}

  // `session` null: the server is gone, and the next is told. FailedPrecondition if the memory has
  // no descriptor, or the server takes no more or other pages.
  absl::Status Map(const DmaMapping& mapping, VfioUserSession* session);
  absl::Status Unmap(uint64_t iova, uint64_t size, VfioUserSession* session);
  // For a server that knows of none.
  absl::Status MapAll(VfioUserSession& session);

  // kDmaRead and kDmaWrite, within one mapping. Unimplemented: another command.
  absl::StatusOr<VfioUserPayload> Serve(const VfioUserMessage& command);

 private:
  struct Mapping {
    DmaMapping memory;
    UniqueFd fd;
  };

  absl::Status Check(const DmaMapping& mapping, const VfioUserCapabilities& capabilities) const;
  // Empty if it is not all mapped.
  std::span<std::byte> Find(uint64_t address, uint64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string device_;
  Mutex mutex_;  // not held while the server is asked, which may ask back
  std::map<uint64_t, Mapping> mappings_ ABSL_GUARDED_BY(mutex_);  // by address
};

}  // namespace ringside
