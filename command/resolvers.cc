#include "command/resolvers.h"

#include <arpa/inet.h>
#include <fstream>
#include <netinet/in.h>
#include <sstream>

namespace ringside {
namespace {

// passt takes as many of each family (resolv.conf(5): MAXNS).
constexpr size_t kMost = 3;

// Whether it is an address that leads somewhere from a guest. One with a zone ("fe80::1%eth0") is
// the host's alone.
bool LeadsAway(const std::string& address) {
  in_addr ipv4;
  if (inet_pton(AF_INET, address.c_str(), &ipv4) == 1) {
    return ntohl(ipv4.s_addr) >> 24 != IN_LOOPBACKNET;
  }
  in6_addr ipv6;
  return inet_pton(AF_INET6, address.c_str(), &ipv6) == 1 && !IN6_IS_ADDR_LOOPBACK(&ipv6);
}

std::vector<std::string> ResolversIn(const std::string& path) {
  std::vector<std::string> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line) && found.size() < kMost;) {
    std::istringstream words(line);
    std::string keyword, address;
    if (words >> keyword >> address && keyword == "nameserver" && LeadsAway(address)) {
      found.push_back(address);
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> ResolversBehind(const std::string& path, const std::string& behind) {
  if (!ResolversIn(path).empty()) return {};
  return ResolversIn(behind);
}

}  // namespace ringside
