// libFuzzer: what clients of a vsock's socket send first. A line that is accepted says just that,
// and what a part of some bytes is called agrees with what all of them are called.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "net/connect_line.h"

namespace {

using ringside::ConnectLine;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

void CheckWhole(std::string_view bytes, const ConnectLine& line) {
  Check(line.length <= bytes.size() && line.length <= ConnectLine::kMaxLength, "it is there");
  // In any case, and with a carriage return or without.
  std::string text = absl::AsciiStrToUpper(std::string(bytes.substr(0, line.length)));
  if (text.ends_with("\r\n")) text.replace(text.size() - 2, 2, "\n");
  const size_t digits = text.find_first_not_of('0', 8);
  const std::string number = digits < text.size() - 1 ? text.substr(digits) : "0\n";
  Check(text.starts_with("CONNECT ") && text.size() > 9, "it is the command, with a port");
  Check(number == std::to_string(line.port) + "\n", "the port is what stands there");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A line is likely only if its beginning is given.
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 2 == 0) {
    bytes = (data[0] % 4 == 0 ? "CONNECT " : "Connect ") + bytes.substr(1);
  }
  const ConnectLine all = ringside::ParseConnectLine(bytes);
  if (all.state == ConnectLine::State::kWhole) CheckWhole(bytes, all);
  if (all.state == ConnectLine::State::kPartial) {
    Check(bytes.size() < ConnectLine::kMaxLength, "nobody is waited for without end");
  }
  for (size_t part = 0; part < bytes.size() && part <= ConnectLine::kMaxLength; ++part) {
    const ConnectLine some = ringside::ParseConnectLine(std::string_view(bytes).substr(0, part));
    if (some.state == ConnectLine::State::kPartial) continue;
    Check(some.state == all.state && some.length == all.length && some.port == all.port,
          "what is known of a part does not change");
  }
  return 0;
}
