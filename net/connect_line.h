// The line with which a client of a vsock's socket says which port of the guest it wants:
// "CONNECT 1024\n", in small letters and with a carriage return, too, as Firecracker takes it. What
// follows the line is the guest's, and is not read here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringside {

struct ConnectLine {
  // Longer than any, with the port as ten digits: who has sent this much without an end is wrong.
  static constexpr size_t kMaxLength = 32;

  enum class State { kPartial, kWrong, kWhole };

  State state = State::kPartial;
  // Of one that is whole.
  size_t length = 0;  // bytes, with the end of line
  uint32_t port = 0;
};

// `bytes`: the first that came, of which kMaxLength are looked at.
ConnectLine ParseConnectLine(std::string_view bytes);

}  // namespace ringside
