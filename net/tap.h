// A tap of the host: an Ethernet interface whose frames a program reads and writes. By its name, of
// an interface that is there (`ip tuntap add`, which may give it to a user) or that is made for as
// long as this lives; or by descriptors that somebody else has opened, one for each queue pair.
//
// Errors say in one line what is wrong and what to do: InvalidArgument for a name or a descriptor
// that cannot be a tap's, PermissionDenied, FailedPrecondition where another process or another
// network of this one has it, or the host has no taps. Another process that has other queues of a
// tap with several is not seen.
// Threads and ownership: as HostNetwork.
// Spec: Linux, Documentation/networking/tuntap.rst and include/uapi/linux/if_tun.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "net/change_limit.h"
#include "net/frame_file.h"
#include "net/running_counts.h"
#include "net/tap_claim.h"
#include "net/vhost_net.h"

namespace ringside {

class Tap final : public HostNetwork {
 public:
  static constexpr uint16_t kMaxPairs = 8;
  static constexpr size_t kMaxName = 15;  // IFNAMSIZ and its end

  // Whether this process may use taps at all: why not, if so.
  static absl::Status CheckHost();
  // `mtu`: that of one which is made; 0: 1500.
  static absl::StatusOr<std::unique_ptr<Tap>> ByName(const std::string& name, uint16_t pairs,
                                                     uint16_t mtu);
  // Duplicates them. Like their originals, which are the same open files, they do not block from
  // then on.
  static absl::StatusOr<std::unique_ptr<Tap>> ByDescriptors(std::span<const int> fds);

  // Has the kernel carry the frames of all pairs (net/vhost_net.h). Before they are used.
  absl::Status UseVhost();

  const Info& info() const override { return info_; }
  FrameChannel& channel(uint16_t pair) override { return *channels_[pair]; }
  VhostNet* vhost(uint16_t pair) override {
    return vhosts_.empty() ? nullptr : vhosts_[pair].get();
  }
  std::optional<NetCounts> counts() const override;
  absl::Status SetOffloads(uint32_t offloads, TooSoon too_soon) override;
  absl::Status SetPairs(uint16_t pairs, TooSoon too_soon) override;
  void SetCarrier(bool up) override;

 private:
  Tap() = default;
  absl::Status Add(UniqueFd fd);
  absl::Status SetUp();
  absl::Status AllowChanges(int changes, TooSoon too_soon);
  bool IsThere() const;
  absl::Status NotChanged(int error, const std::string& what) const;

  Info info_;
  TapClaim claim_;  // goes after the queues
  std::vector<std::unique_ptr<FrameFile>> channels_;
  std::vector<std::unique_ptr<VhostNet>> vhosts_;  // of the channels, or none
  mutable Mutex counts_mutex_;
  mutable RunningCounts counts_ ABSL_GUARDED_BY(counts_mutex_);
  uint32_t offloads_ = 0;
  uint16_t attached_ = 0;  // the first so many channels
  ChangeLimit changes_;
};

}  // namespace ringside
