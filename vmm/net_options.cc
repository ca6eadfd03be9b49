#include "vmm/net_options.h"

#include <algorithm>
#include <vector>

#include "devices/virtio_net.h"
#include "net/tap.h"
#include "vmm/key_value.h"
#include "vmm/mac_address.h"
#include "vmm/throttle_options.h"

namespace ringside {
namespace {

constexpr char kUser[] = "user";

absl::Status CheckSource(const OptionPlace& place, const NetConfig& network) {
  const int sources =
      (network.tap.empty() ? 0 : 1) + (network.fds.empty() ? 0 : 1) + (network.user ? 1 : 0);
  if (sources != 1) {
    return BadInput("%stap, fd and user are %s: give one of them", place.prefix,
                    sources == 0 ? "all missing" : "more than one");
  }
  const bool has_own_passt = !network.socket.empty() || network.stream_fd >= 0;
  const bool has_ports = !network.tcp_ports.empty() || !network.udp_ports.empty();
  if (!network.user && (has_own_passt || has_ports)) {
    return BadInput("%ssocket, tcp and udp are of a user network: give user, or leave them out",
                    place.prefix);
  }
  // A descriptor may be that of the passt which has been started for them.
  if (!network.socket.empty() && has_ports) {
    return BadInput(
        "%stcp and udp are for the passt that is started here, and socket names another one: give "
        "them to that",
        place.prefix);
  }
  return absl::OkStatus();
}

// What the kernel carries nobody here can hold back.
absl::Status CheckVhost(const OptionPlace& place, const NetConfig& network) {
  if (!network.vhost) return absl::OkStatus();
  if (network.user) {
    return BadInput("%svhost=on and user do not go together: it is for a tap", place.prefix);
  }
  if (network.throttle == ThrottleLimits{}) return absl::OkStatus();
  return BadInput("%svhost=on and limits do not go together: leave one of them out", place.prefix);
}

absl::Status CheckPairs(const OptionPlace& place, const NetConfig& network) {
  if (network.user && network.queues > 1) {
    return BadInput("%squeues=%d is out of range: a user network has one pair", place.prefix,
                    network.queues);
  }
  if (network.fds.empty()) return absl::OkStatus();
  if (network.fds.size() > VirtioNet::kMaxPairs) {
    return BadInput("%sfd has %d descriptors, and a network has at most %d queue pairs",
                    place.prefix, network.fds.size(), VirtioNet::kMaxPairs);
  }
  std::vector<int> sorted = network.fds;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    return BadInput("%sfd has descriptor %d twice: give each pair a queue of its own", place.prefix,
                    *twice);
  }
  if (network.queues == 0 || network.queues == network.fds.size()) return absl::OkStatus();
  return BadInput("%squeues=%d and %d descriptors do not go together: give one for each pair",
                  place.prefix, network.queues, network.fds.size());
}

}  // namespace

static_assert(VirtioNet::kMaxPairs == Tap::kMaxPairs);

const OptionTable<NetConfig>& NetOptions() {
  static const OptionTable<NetConfig> table = [] {
    OptionTable<NetConfig> made = {
        "a network",
        {{{.name = "tap",
           .type = Text(Tap::kMaxName),
           .doc = "a tap of the host by its name; one that is not there is made, and goes with the "
                  "machine",
           .unset = "none"},
          [](auto& network) -> auto& { return network.tap; }},
         {{.name = "fd",
           .type = Plain(OptionKind::kDescriptors),
           .doc = "a tap by descriptors that this process was given, one for each queue pair, such "
                  "as 3 or 3+4",
           .unset = "none"},
          [](auto& network) -> auto& { return network.fds; }},
         {{.name = kUser,
           .type = Plain(OptionKind::kSwitch),
           .doc = "whether passt gives the guest a network: without rights on the host, with DHCP; "
                  "on a command line 'user' stands in front of the keys"},
          [](auto& network) -> auto& { return network.user; }},
         {{.name = "socket",
           .type = Plain(OptionKind::kPath),
           .doc = "of user: the socket of a passt that runs already",
           .unset = "one is started and ended with the machine"},
          [](auto& network) -> auto& { return network.socket; }},
         {{.name = "tcp",
           .type = Text(1024),
           .doc = "of user: ports of the host that lead to the guest, as passt's --tcp-ports has "
                  "them, such as 2222:22; a comma is written twice on a command line",
           .unset = "none"},
          [](auto& network) -> auto& { return network.tcp_ports; }},
         {{.name = "udp", .type = Text(1024), .doc = "the same for UDP", .unset = "none"},
          [](auto& network) -> auto& { return network.udp_ports; }},
         {{.name = "id",
           .type = Id(),
           .doc = "its name in statistics and messages, and for those who move its queues",
           .unset = "net0, net1, ... by its place"},
          [](auto& network) -> auto& { return network.id; }},
         {{.name = "mac",
           .type = Text(17),
           .doc = "the guest's MAC address, such as 02:00:00:12:34:56",
           .unset = "one made of its id, the tap's name and the host's machine-id"},
          [](auto& network) -> auto& { return network.mac; }},
         {{.name = "queues",
           .type = Whole(1, VirtioNet::kMaxPairs),
           .unit = "queue pairs",
           .doc = "how many queue pairs it has; a tap that is there has multi_queue for more than "
                  "one",
           .unset = "1, or one for each descriptor"},
          [](auto& network) -> auto& { return network.queues; }},
         {{.name = "mtu",
           .type = Whole(68, 65535),
           .unit = "bytes of MTU",
           .doc = "the longest packet that the guest is told to send, and of a tap that is made",
           .unset = "as the tap has it"},
          [](auto& network) -> auto& { return network.mtu; }},
         {{.name = "vhost",
           .type = Plain(OptionKind::kSwitch),
           .doc =
               "of a tap: whether the host's kernel (vhost-net) carries the frames instead of an "
               "I/O thread; without limits and traces"},
          [](auto& network) -> auto& { return network.vhost; }},
         {{.name = "iothreads",
           .type = Plain(OptionKind::kIoThreads),
           .doc = "the I/O threads that serve it. a+b: its queue pairs go round these; "
                  "a:0+3/b:1-2: the pairs of each",
           .unset = "one thread for all; networks take the threads in turn"},
          [](auto& network) -> auto& { return network.shares; }}}};
    AddThrottleOptions<NetConfig, &NetConfig::throttle>(made.options);
    return made;
  }();
  return table;
}

absl::StatusOr<Json> ParseNetText(const std::string& text) {
  const std::string hint = "write tap=NAME, fd=N or user in front: give KEY=VALUE instead of ";
  const size_t comma = text.find(',');
  if (text.substr(0, comma) != kUser) return ParseKeyValues("--net", text, hint);
  Json fields = Json::object();
  if (comma != std::string::npos) {
    RINGSIDE_ASSIGN_OR_RETURN(fields, ParseKeyValues("--net", text.substr(comma + 1), hint));
  }
  if (fields.contains(kUser)) return BadInput("--net has 'user' twice: give it once");
  fields[kUser] = "on";
  return fields;
}

absl::Status ReadNet(const OptionPlace& place, const Json& fields, NetConfig& network) {
  RINGSIDE_RETURN_IF_ERROR(ReadObject(NetOptions(), place, fields, network));
  return CheckNet(place, network);
}

absl::Status CheckNet(const OptionPlace& place, const NetConfig& network) {
  RINGSIDE_RETURN_IF_ERROR(CheckObject(NetOptions(), place, network));
  RINGSIDE_RETURN_IF_ERROR(CheckSource(place, network));
  RINGSIDE_RETURN_IF_ERROR(CheckPairs(place, network));
  RINGSIDE_RETURN_IF_ERROR(CheckVhost(place, network));
  if (network.mac.empty()) return absl::OkStatus();
  const absl::StatusOr<MacAddress> mac = ParseMac(network.mac);
  if (mac.ok()) return absl::OkStatus();
  return BadInput("%smac='%s' %s", place.prefix, network.mac, Message(mac.status()));
}

}  // namespace ringside
