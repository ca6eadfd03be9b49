// A channel on a descriptor of which each read is a frame and each write, too: a queue of a tap.
//
// Threads and ownership: as FrameChannel.
#pragma once

#include "base/fd.h"
#include "net/host_network.h"

namespace ringside {

class FrameFile final : public FrameChannel {
 public:
  // `fd` does not block. `sender` is a duplicate of it.
  FrameFile(UniqueFd fd, UniqueFd sender)
      : FrameChannel(fd.get(), sender.get()), fd_(std::move(fd)), sender_(std::move(sender)) {}

  Sent Send(std::span<const iovec> frame) override;
  ssize_t Receive(std::span<const iovec> room) override;

 private:
  const UniqueFd fd_;
  const UniqueFd sender_;
};

}  // namespace ringside
