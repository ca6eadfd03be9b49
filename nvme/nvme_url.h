// How users name a namespace of a controller that Ringside drives:
//
//   nvme://0000:00:04.0/1           of the controller at that PCI address
//   nvme+user:///run/ctrl.sock/1    of the one that a server offers by vfio-user at that socket
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ringside/config.h"

namespace ringside {

std::string NvmeUrl(const NvmeConfig& config);
bool IsNvmeUrl(const std::string& text);
// The namespace and where it is; all else is the default. InvalidArgument: the end of a sentence
// that begins with the URL, "names no PCI address: give ...".
absl::StatusOr<NvmeConfig> ParseNvmeUrl(const std::string& url);

}  // namespace ringside
