#include "net/connect_line.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"

namespace ringside {

ConnectLine ParseConnectLine(std::string_view bytes) {
  constexpr std::string_view kCommand = "CONNECT ";
  bytes = bytes.substr(0, ConnectLine::kMaxLength);
  const std::string_view command = bytes.substr(0, kCommand.size());
  // Wrong from its first wrong byte on: nobody has to wait for the rest.
  const auto is_same = [](char given, char letter) {
    return absl::ascii_toupper(static_cast<unsigned char>(given)) == letter;
  };
  if (!std::ranges::equal(command, kCommand.substr(0, command.size()), is_same)) {
    return {.state = ConnectLine::State::kWrong};
  }
  const size_t end = bytes.find('\n');
  if (end == std::string_view::npos) {
    return {.state = bytes.size() < ConnectLine::kMaxLength ? ConnectLine::State::kPartial
                                                            : ConnectLine::State::kWrong};
  }
  ConnectLine line = {.state = ConnectLine::State::kWhole, .length = end + 1};
  // A terminal's line, too.
  const char* const last = bytes.data() + end - (bytes[end - 1] == '\r' ? 1 : 0);
  // Digits alone: from_chars takes no sign of an unsigned number, and no spaces.
  const auto [stop, error] = std::from_chars(bytes.data() + kCommand.size(), last, line.port);
  if (error != std::errc() || stop != last) line.state = ConnectLine::State::kWrong;
  return line;
}

}  // namespace ringside
