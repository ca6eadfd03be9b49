// Messages of vfio-user on a socket: sent whole, received piece by piece without waiting, each with
// the descriptors that came beside it. What the other side sends is checked here as far as a
// message's frame goes; whatever is refused, its descriptors are closed.
//
// Threads: one for a reader; any for a function of its arguments, one at a time a socket.
// Source: as vfio_user_protocol.h.
#pragma once

#include <cstddef>
#include <cstring>
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

// `header.size` is set here. Waits for room as long as the socket's SO_SNDTIMEO says. After an
// error nothing can be sent any more: a part may have gone.
absl::Status SendVfioUserMessage(int socket, VfioUserHeader header,
                                 std::span<const std::byte> payload, std::span<const int> fds);

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
