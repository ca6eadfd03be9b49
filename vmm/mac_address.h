// MAC addresses of guests' networks: as text, and one for a network that was given none.
//
// Threads: none.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "devices/virtio_net.h"

namespace ringside {

// "02:00:00:12:34:56", of a guest's interface. InvalidArgument for a group's address and for zero.
absl::StatusOr<MacAddress> ParseMac(const std::string& text);
std::string MacText(const MacAddress& mac);
// A locally administered address: the same for the same three texts, and hardly ever for others.
MacAddress MacOf(const std::string& id, const std::string& network, const std::string& host);

}  // namespace ringside
