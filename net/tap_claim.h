// Keeps two networks of one process off the same tap: they would take each other's frames, and for
// the kernel each is only one more queue, or the same one.
//
// Threads: any. Another process's networks are not seen.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

// A tap that is its owner's for as long as this lives. It is none by default, and where claims
// cannot be kept. FailedPrecondition: another network of this process has the tap.
class TapClaim {
 public:
  TapClaim() = default;
  TapClaim(TapClaim&&) = default;
  TapClaim& operator=(TapClaim&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~TapClaim();

  // By the index that the interface has in this process's network namespace.
  static absl::StatusOr<TapClaim> OfInterface(unsigned index, const std::string& name);
  // By one of its queues, in whatever namespace the interface is.
  static absl::StatusOr<TapClaim> OfQueue(int queue, const std::string& name);

  bool holds() const { return fd_.valid(); }

 private:
  static absl::StatusOr<TapClaim> Of(const std::string& identity, const std::string& name);

  UniqueFd fd_;
};

}  // namespace ringside
