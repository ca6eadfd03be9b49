// A network behind a stream socket, on which each frame comes with its length in front, 32 bits and
// big-endian: passt's protocol, and that of QEMU's "-netdev stream". There is one channel and no
// offload, and no header on the wire.
//
// What comes is read in as large pieces as there are and copied to the guest. What the socket does
// not take of a frame is kept, 64 KiB at most.
//
// Threads and ownership: as HostNetwork.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "net/host_network.h"

namespace ringside {

class StreamNetwork final : public HostNetwork {
 public:
  // FailedPrecondition: nobody listens there.
  static absl::StatusOr<std::unique_ptr<StreamNetwork>> Connect(const std::string& path);
  // One end of a pair, or of a connection. Takes a duplicate.
  static absl::StatusOr<std::unique_ptr<StreamNetwork>> ByDescriptor(int fd);

  const Info& info() const override { return info_; }
  FrameChannel& channel(uint16_t /*pair*/) override { return *channel_; }
  absl::Status SetOffloads(uint32_t /*offloads*/, TooSoon /*too_soon*/) override {
    return absl::OkStatus();
  }
  absl::Status SetPairs(uint16_t /*pairs*/, TooSoon /*too_soon*/) override {
    return absl::OkStatus();
  }

 private:
  class Channel;
  StreamNetwork() = default;
  static absl::StatusOr<std::unique_ptr<StreamNetwork>> On(UniqueFd fd, std::string name);

  Info info_;
  std::unique_ptr<FrameChannel> channel_;
};

}  // namespace ringside
