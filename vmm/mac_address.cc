#include "vmm/mac_address.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/fnv.h"
#include "base/status.h"

namespace ringside {

absl::StatusOr<MacAddress> ParseMac(const std::string& text) {
  MacAddress mac = {};
  bool is_right = text.size() == 3 * mac.size() - 1;
  for (size_t i = 0; is_right && i < text.size(); ++i) {
    const char c = text[i];
    if (i % 3 == 2) {
      is_right = c == ':';
      continue;
    }
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    is_right = digit >= 0;
    mac[i / 3] = static_cast<uint8_t>(mac[i / 3] << 4 | digit);
  }
  if (!is_right) return BadInput("is not a MAC address such as 02:00:00:12:34:56");
  if ((mac[0] & 1) != 0 || mac == MacAddress{}) {
    return BadInput(
        "is not one interface's MAC address: the first byte is even, and not all are 0");
  }
  return mac;
}

std::string MacText(const MacAddress& mac) {
  return absl::StrFormat("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
                         mac[5]);
}

// Any hash that stays as it is will do. Names of taps are the same on many hosts, which may
// share a segment.
MacAddress MacOf(const std::string& id, const std::string& network, const std::string& host) {
  const uint64_t hash = Fnv1a(absl::StrCat(id, "/", network, "/", host));
  MacAddress mac;
  for (size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(hash >> (8 * i + 8));
  mac[0] = static_cast<uint8_t>((mac[0] & 0xfc) | 0x02);
  return mac;
}

}  // namespace ringside
