#include "nvme/nvme_url.h"

#include <cstdint>
#include <string_view>

#include "base/number_list.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr std::string_view kPci = "nvme://";
constexpr char kPciExample[] = "nvme://0000:00:04.0/1";
constexpr std::string_view kSocket = "nvme+user://";
constexpr char kSocketExample[] = "nvme+user:///run/ctrl.sock/1";
constexpr uint32_t kEveryNamespace = UINT32_MAX;  // and so not one of them

absl::StatusOr<uint32_t> ParseNamespace(std::string_view number, const char* example) {
  if (number.empty()) return BadInput("names no namespace: give one such as %s", example);
  const uint32_t namespace_id = ParseNumber<uint32_t>(number).value_or(0);
  if (namespace_id != 0 && namespace_id != kEveryNamespace) return namespace_id;
  return BadInput("ends in '%s', which is not a namespace: they count from 1, as in %s", number,
                  example);
}

absl::StatusOr<NvmeConfig> ParsePci(std::string_view rest) {
  const size_t slash = rest.find('/');
  // vfio/ knows what an address looks like.
  NvmeConfig config = {.address = std::string(rest.substr(0, slash))};
  if (config.address.empty()) {
    return BadInput("names no PCI address: give one such as %s", kPciExample);
  }
  const std::string_view number =
      slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  RINGSIDE_ASSIGN_OR_RETURN(config.namespace_id, ParseNamespace(number, kPciExample));
  return config;
}

// The path has slashes of its own: the namespace is behind the last.
absl::StatusOr<NvmeConfig> ParseSocket(std::string_view rest) {
  const size_t slash = rest.rfind('/');
  if (!rest.starts_with('/') || slash == 0) {
    return BadInput("names no socket by its whole path: give one such as %s", kSocketExample);
  }
  NvmeConfig config = {.socket = std::string(rest.substr(0, slash))};
  RINGSIDE_ASSIGN_OR_RETURN(config.namespace_id,
                            ParseNamespace(rest.substr(slash + 1), kSocketExample));
  return config;
}

}  // namespace

std::string NvmeUrl(const NvmeConfig& config) {
  const bool is_pci = config.socket.empty();
  return absl::StrFormat("%s%s/%d", is_pci ? kPci : kSocket,
                         is_pci ? config.address : config.socket, config.namespace_id);
}

bool IsNvmeUrl(const std::string& text) {
  return text.starts_with(kPci) || text.starts_with(kSocket);
}

absl::StatusOr<NvmeConfig> ParseNvmeUrl(const std::string& url) {
  const std::string_view text = url;
  if (text.starts_with(kPci)) return ParsePci(text.substr(kPci.size()));
  if (text.starts_with(kSocket)) return ParseSocket(text.substr(kSocket.size()));
  return BadInput("is not the URL of a namespace: give one such as %s or %s", kPciExample,
                  kSocketExample);
}

}  // namespace ringside
