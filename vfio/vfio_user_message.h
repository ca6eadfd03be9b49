// Messages of vfio-user on a socket, sent and received piece by piece without waiting, each with
// the descriptors that go beside it. What the other side sends is checked here as far as a
// message's frame goes; whatever is refused, its descriptors are closed.
//
// Threads: one at a time for a reader or a writer. Nothing here waits, whatever O_NONBLOCK says.
// Spec: as vfio_user_protocol.h.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "vfio/vfio_user_protocol.h"

namespace ringside {

using VfioUserPayload = std::vector<std::byte>;

struct VfioUserMessage {
  VfioUserHeader header{};
  VfioUserPayload payload;
  std::vector<UniqueFd> fds;

  bool is_reply() const { return (header.flags & kVfioUserTypeMask) == kVfioUserTypeReply; }
};

template <typename T>
void AppendTo(VfioUserPayload& payload, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(std::span(&value, 1));
  payload.insert(payload.end(), bytes.begin(), bytes.end());
}

// What the payload begins with, if it is as long.
template <typename T>
std::optional<T> HeadOf(std::span<const std::byte> payload) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

// Messages on their way out, in their order: what the socket has no room for stays here.
class VfioUserWriter {
 public:
  // `header.size` is set here. Copies the descriptors, so that the caller's may be closed.
  // `end_ns`: when the message is to be gone (MonotonicNs).
  absl::Status Add(VfioUserHeader header, VfioUserPayload payload, std::span<const int> fds,
                   int64_t end_ns);
  // What there is room for. After an error nothing can be sent any more: a part may have gone.
  absl::Status Send(int socket);
  bool empty() const { return messages_.empty(); }
  // Of the oldest message, of which a part may be gone; the largest number if there is none.
  int64_t end_ns() const {
    return empty() ? std::numeric_limits<int64_t>::max() : messages_.front().end_ns;
  }

 private:
  struct Message {
    VfioUserHeader header;
    VfioUserPayload payload;
    std::vector<UniqueFd> fds;
    int64_t end_ns;
    size_t sent = 0;
  };

  // How many bytes the socket has taken.
  static absl::StatusOr<size_t> SendSome(int socket, Message& message);

  std::deque<Message> messages_;
};

class VfioUserReader {
 public:
  // What has come until now: a whole message, or none yet. Unavailable if the other side has gone,
  // InvalidArgument if it sends what is no message; after an error there is nothing more to read.
  absl::StatusOr<std::optional<VfioUserMessage>> Receive(int socket);

 private:
  // Into what is missing of `bytes`; false: not all of it has come.
  absl::StatusOr<bool> Fill(int socket, std::span<std::byte> bytes);

  VfioUserMessage message_;
  size_t header_bytes_ = 0;
  size_t payload_bytes_ = 0;
};

// What a side says of itself with its version.
struct VfioUserCapabilities {
  uint32_t max_fds = kVfioUserDefaultMessageFds;  // it takes beside one message
  uint64_t max_transfer = kVfioUserDefaultTransfer;
  uint64_t max_dma_maps = kVfioUserDefaultDmaMaps;
  uint64_t page_sizes = kVfioUserDefaultPageSizes;  // or'ed together
};

// The payload of our kVersion.
VfioUserPayload VfioUserVersionRequest();
// Of the answer. FailedPrecondition if it is another major version.
absl::StatusOr<VfioUserCapabilities> ParseVfioUserVersion(std::span<const std::byte> payload);

}  // namespace ringside
