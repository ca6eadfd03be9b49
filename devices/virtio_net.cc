#include "devices/virtio_net.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "devices/answering_queue.h"
#include "devices/net_receive_queue.h"
#include "devices/net_transmit_queue.h"
#include "devices/state_check.h"
#include "devices/vhost_queue.h"

namespace ringside {
namespace {

// Section 5.1.3.
constexpr uint64_t Bit(int number) {
  return uint64_t{1} << number;
}
constexpr uint64_t kCsum = Bit(0);
constexpr uint64_t kGuestCsum = Bit(1);
constexpr uint64_t kMtu = Bit(3);
constexpr uint64_t kMac = Bit(5);
constexpr uint64_t kGuestTso4 = Bit(7);
constexpr uint64_t kGuestTso6 = Bit(8);
constexpr uint64_t kGuestEcn = Bit(9);
constexpr uint64_t kHostTso4 = Bit(11);
constexpr uint64_t kHostTso6 = Bit(12);
constexpr uint64_t kHostEcn = Bit(13);
constexpr uint64_t kMergeBuffers = Bit(15);
constexpr uint64_t kStatus = Bit(16);
constexpr uint64_t kControl = Bit(17);
constexpr uint64_t kControlRx = Bit(18);
constexpr uint64_t kControlVlan = Bit(19);
constexpr uint64_t kGuestAnnounce = Bit(21);
constexpr uint64_t kMultiQueue = Bit(22);
constexpr uint64_t kControlMac = Bit(23);

// Section 5.1.4.
constexpr uint16_t kLinkUp = 1;
constexpr uint16_t kAnnounce = 2;

// Section 5.1.6.5.
enum Class : uint8_t {
  kClassRx = 0,
  kClassMac = 1,
  kClassVlan = 2,
  kClassAnnounce = 3,
  kClassMq = 4,
};
constexpr uint8_t kMacTableSet = 0;
constexpr uint8_t kMacAddressSet = 1;
constexpr uint8_t kAnnounceAck = 0;
constexpr uint8_t kPairsSet = 0;
constexpr auto kAckOk = std::byte{0};
constexpr auto kAckError = std::byte{1};

struct OffloadFeature {
  uint64_t feature;
  uint32_t offload;
};
constexpr std::array<OffloadFeature, 4> kOffloadFeatures = {{{kGuestCsum, kNetChecksum},
                                                             {kGuestTso4, kNetTso4},
                                                             {kGuestTso6, kNetTso6},
                                                             {kGuestEcn, kNetEcn}}};

// What the guest may be left to do. All of it stands on the first (section 5.1.3.1).
uint32_t OffloadsOf(uint64_t features) {
  uint32_t offloads = 0;
  for (const auto& [feature, offload] : kOffloadFeatures) {
    if ((features & feature) != 0) offloads |= offload;
  }
  return (offloads & kNetChecksum) != 0 ? offloads : 0;
}

uint64_t MacBits(const MacAddress& mac) {
  uint64_t bits = 0;
  std::memcpy(&bits, mac.data(), mac.size());
  return bits;
}

}  // namespace

// Section 5.1.4.
struct VirtioNet::Config {
  MacAddress mac;
  uint16_t status;
  uint16_t max_virtqueue_pairs;
  uint16_t mtu;
};

// In the form in which it is saved.
struct VirtioNet::State {
  Config config;
  uint16_t pairs;
};

// Commands of the driver, each answered in the turn in which it is taken.
class VirtioNet::Control final : public AnsweringQueue {
 public:
  Control(VirtioNet& net, const Parts& parts, const QueueSetup& setup, uint64_t features)
      : AnsweringQueue(parts, setup, features), net_(net) {}
  Control(VirtioNet& net, const Parts& parts, const QueueWorker& before)
      : AnsweringQueue(parts, before), net_(net) {}

 private:
  // As much of a command as any that is obeyed has.
  struct Command {
    std::array<uint8_t, 8> bytes = {};
    uint64_t size = 0;  // of all of it

    uint8_t kind() const { return bytes[0]; }
    uint8_t number() const { return bytes[1]; }
    std::span<const uint8_t> data() const { return std::span(bytes).subspan(2); }
    uint64_t data_size() const { return size - 2; }
  };

  uint32_t Serve(ChainBuffers& buffers) override {
    if (buffers.writable().empty()) {
      queue().Break("a control command has no room for its answer");
      return 0;
    }
    Command command;
    for (const Segment& segment : buffers.readable()) {
      for (uint32_t i = 0; i < segment.length && command.size + i < command.bytes.size(); ++i) {
        command.bytes[command.size + i] = ReadOnce<uint8_t>(segment.host + i);
      }
      command.size += segment.length;
    }
    const bool is_obeyed = command.size >= 2 && Obey(command);
    if (!is_obeyed) parts().stats.errors.Add();
    *buffers.writable().front().host = is_obeyed ? kAckOk : kAckError;
    return 1;
  }

  bool Obey(const Command& command) {
    switch (command.kind()) {
      case kClassRx:
        // All frames of the host's network come in, whatever is wanted: what is not the guest's own
        // a tap has not.
        return command.data_size() == 1;
      case kClassMac:
        return ObeyMac(command);
      case kClassVlan:
        return command.data_size() == 2;
      case kClassAnnounce:
        if (command.number() != kAnnounceAck) return false;
        net_.announces_.store(false, std::memory_order_relaxed);
        return true;
      case kClassMq:
        return ObeyPairs(command);
      default:
        return false;
    }
  }

  bool ObeyMac(const Command& command) {
    // Two tables, each with its length in front.
    if (command.number() == kMacTableSet) return command.data_size() >= 8;
    if (command.number() != kMacAddressSet || command.data_size() != 6) return false;
    MacAddress mac;
    std::ranges::copy(command.data(), mac.begin());
    net_.mac_.store(MacBits(mac), std::memory_order_relaxed);
    return true;
  }

  bool ObeyPairs(const Command& command) {
    // Of a driver that knows of one pair (section 5.1.6.5.6).
    if ((net_.features_ & kMultiQueue) == 0) return false;
    if (command.number() != kPairsSet || command.data_size() != 2) return false;
    const auto pairs = static_cast<uint16_t>(command.data()[0] | command.data()[1] << 8);
    if (pairs == 0 || pairs > net_.max_pairs()) return false;
    return net_.SetPairs(pairs, HostNetwork::TooSoon::kRefuse).ok();
  }

  VirtioNet& net_;
};

namespace {

// One that the features which the driver took leave without a purpose.
class UnusedQueue final : public AnsweringQueue {
 public:
  using AnsweringQueue::AnsweringQueue;

 private:
  uint32_t Serve(ChainBuffers& /*buffers*/) override {
    queue().Break("a chain was made available in a queue that the device does not use");
    return 0;
  }
};

// Of each queue, from those of each pair.
std::vector<IoThread*> OfQueues(const std::vector<IoThread*>& of_pairs, uint16_t pairs) {
  std::vector<IoThread*> of_queues;
  for (uint16_t pair = 0; pair < pairs; ++pair) {
    of_queues.insert(of_queues.end(), 2, of_pairs[pair % of_pairs.size()]);
  }
  of_queues.push_back(of_pairs.front());
  return of_queues;
}

}  // namespace

VirtioNet::VirtioNet(HostNetwork& network, NetLink& link, const GuestMemory& memory,
                     const std::vector<IoThread*>& io_threads, const VirtioNetConfig& config)
    : QueuedDevice(memory, OfQueues(io_threads, network.info().pairs),
                   {.count = static_cast<uint16_t>(2 * network.info().pairs + 1),
                    .size = kQueueSize,
                    .trace_latency = config.trace_latency}),
      network_(network),
      link_(link),
      own_mac_(config.mac),
      mtu_(config.mtu),
      name_(config.name),
      log_(config.log),
      port_{.link_up = link.up(),
            .throttle = config.throttle != nullptr ? *config.throttle : unlimited_,
            .owner = *this},
      mac_(MacBits(config.mac)) {}

VirtioNet::~VirtioNet() = default;

// The link.

void VirtioNet::SetLink(bool up) {
  link_.Pull(!up);
}

void VirtioNet::SetMac(const MacAddress& mac) {
  mac_.store(MacBits(mac), std::memory_order_relaxed);
  link_.SetMac(mac);
}

void VirtioNet::NetworkGone(VirtioEvents& events) {
  if (!link_.Lose()) return;
  log_.Log(Severity::kWarning,
           "%s: its network '%s' is gone, and its link is down for good: start the machine anew "
           "when the network is back",
           name_, network_.info().name);
  events.ConfigChanged();
}

// What the driver sees.

uint64_t VirtioNet::features() const {
  const HostNetwork::Info& host = network_.info();
  uint64_t features = kVirtioRingIndirectDesc | kVirtioRingEventIdx | kMac | kMergeBuffers |
                      kStatus | kControl | kControlRx | kControlVlan | kGuestAnnounce | kControlMac;
  if (mtu_ != 0) features |= kMtu;
  if (host.pairs > 1) features |= kMultiQueue;
  if (host.takes_offloads) features |= kCsum | kHostTso4 | kHostTso6 | kHostEcn;
  for (const auto& [feature, offload] : kOffloadFeatures) {
    if ((host.offloads & offload) != 0) features |= feature;
  }
  return features;
}

VirtioNet::Config VirtioNet::MakeConfig() const {
  Config config = {};
  const uint64_t mac = mac_.load(std::memory_order_relaxed);
  std::memcpy(config.mac.data(), &mac, config.mac.size());
  if (link_.up().load(std::memory_order_relaxed)) config.status |= kLinkUp;
  if (announces_.load(std::memory_order_relaxed)) config.status |= kAnnounce;
  config.max_virtqueue_pairs = max_pairs();
  config.mtu = mtu_;
  return config;
}

void VirtioNet::ReadConfig(uint64_t offset, std::span<std::byte> data) {
  static_assert(sizeof(Config) == kConfigSize);
  const Config config = MakeConfig();
  const auto* bytes = reinterpret_cast<const std::byte*>(&config);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = offset < kConfigSize && i < kConfigSize - offset ? bytes[offset + i] : std::byte{0};
  }
}

std::vector<uint8_t> VirtioNet::SaveState() const {
  static_assert(sizeof(State) == kConfigSize + sizeof(uint16_t));
  const State state = {.config = MakeConfig(), .pairs = pairs_in_use()};
  const auto* bytes = reinterpret_cast<const uint8_t*>(&state);
  return {bytes, bytes + sizeof state};
}

absl::Status VirtioNet::CheckState(std::span<const uint8_t> bytes) const {
  State state;
  if (bytes.size() != sizeof state) {
    return BadInput("the saved network device's state has %d bytes; such a device has %d",
                    bytes.size(), sizeof state);
  }
  std::memcpy(&state, bytes.data(), sizeof state);
  RINGSIDE_RETURN_IF_ERROR(
      CheckBits("status of the network device", state.config.status, kLinkUp | kAnnounce));
  if (state.config.max_virtqueue_pairs != max_pairs() || state.config.mtu != mtu_) {
    return BadInput(
        "the saved network device has %d queue pairs and an MTU of %d, and %d and %d here; restore "
        "with the same",
        state.config.max_virtqueue_pairs, state.config.mtu, max_pairs(), mtu_);
  }
  if (state.pairs == 0 || state.pairs > max_pairs()) {
    return BadInput("the saved network device uses %d queue pairs; it has 1 to %d", state.pairs,
                    max_pairs());
  }
  return absl::OkStatus();
}

void VirtioNet::RestoreState(std::span<const uint8_t> bytes) {
  State state;
  std::memcpy(&state, bytes.data(), sizeof state);
  SetMac(state.config.mac);
  restored_pairs_ = state.pairs;
  // Switches may have to learn where it is now.
  announces_.store(true, std::memory_order_relaxed);
}

// Its life.

void VirtioNet::Activated(uint64_t features) {
  features_ = features;
  port_.merges = (features & kMergeBuffers) != 0;
  port_.offloads = OffloadsOf(features) & network_.info().offloads;
  const std::optional<uint16_t> restored_pairs = std::exchange(restored_pairs_, std::nullopt);
  // A driver has nobody to ask again, so it waits in its vCPU if it comes too soon after others.
  const auto too_soon =
      restored_pairs.has_value() ? HostNetwork::TooSoon::kNever : HostNetwork::TooSoon::kWait;
  absl::Status status = network_.SetOffloads(port_.offloads, too_soon);
  if (status.ok()) {
    status = SetPairs((features & kMultiQueue) != 0 ? restored_pairs.value_or(1) : uint16_t{1},
                      too_soon);
  }
  // Of a network that is gone its queues find that out, and drop frames.
  if (absl::IsUnavailable(status)) status = absl::OkStatus();
  const MutexLock lock(mutex_);
  unusable_ = std::move(status);
}

void VirtioNet::ResetBegins() {
  pairs_.store(1, std::memory_order_relaxed);
  SetMac(own_mac_);
  announces_.store(false, std::memory_order_relaxed);
}

absl::Status VirtioNet::Unusable() const {
  const MutexLock lock(mutex_);
  return unusable_;
}

absl::Status VirtioNet::SetPairs(uint16_t pairs, HostNetwork::TooSoon too_soon) {
  RINGSIDE_RETURN_IF_ERROR(network_.SetPairs(pairs, too_soon));
  pairs_.store(pairs, std::memory_order_relaxed);
  return absl::OkStatus();
}

// Section 5.1.2.
VirtioNet::Role VirtioNet::RoleOf(uint16_t queue, uint64_t features) const {
  const uint16_t pairs = (features & kMultiQueue) != 0 ? max_pairs() : uint16_t{1};
  if (queue == 2 * pairs) return (features & kControl) != 0 ? Role::kControl : Role::kNone;
  // Commands are answered all the same, as drivers wait for that without end.
  if (queue > 2 * pairs || !Unusable().ok()) return Role::kNone;
  return queue % 2 == 0 ? Role::kReceive : Role::kTransmit;
}

NetGate& VirtioNet::ReceiveGate(uint16_t pair, QueueStats& stats) {
  std::optional<NetGate>& gate = receive_gates_[pair];
  if (!gate.has_value()) gate.emplace(port_.throttle, stats.throttle, BlockOp::kRead);
  return *gate;
}

VhostNet* VirtioNet::VhostOf(uint16_t queue, Role role) const {
  const bool carries_frames = role == Role::kReceive || role == Role::kTransmit;
  return carries_frames ? network_.vhost(static_cast<uint16_t>(queue / 2)) : nullptr;
}

std::unique_ptr<QueueWorker> VirtioNet::NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                                  const QueueSetup& setup, uint64_t features) {
  const auto pair = static_cast<uint16_t>(queue / 2);
  // With any of the queues, and once: the driver is there now.
  if (queue == 0 && announces_.load(std::memory_order_relaxed)) parts.events.ConfigChanged();
  if (const absl::Status status = Unusable(); queue == 0 && !status.ok()) {
    parts.events.NeedsReset(Message(status));
  }
  const Role role = RoleOf(queue, features);
  if (VhostNet* const vhost = VhostOf(queue, role); vhost != nullptr) {
    return std::make_unique<VhostQueue>(
        parts, port_,
        VhostQueue::Kernel{
            .vhost = *vhost,
            .ring = role == Role::kReceive ? VhostNet::kReceive : VhostNet::kTransmit,
            .tap_fd = network_.channel(pair).receive_fd()},
        setup, features);
  }
  switch (role) {
    case Role::kReceive:
      return std::make_unique<NetReceiveQueue>(parts, port_, network_.channel(pair),
                                               ReceiveGate(pair, parts.stats), setup, features);
    case Role::kTransmit:
      return std::make_unique<NetTransmitQueue>(parts, port_, network_.channel(pair), setup,
                                                features);
    case Role::kControl:
      return std::make_unique<Control>(*this, parts, setup, features);
    case Role::kNone:
      break;
  }
  return std::make_unique<UnusedQueue>(parts, setup, features);
}

std::unique_ptr<QueueWorker> VirtioNet::NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                                   QueueWorker& before) {
  const auto pair = static_cast<uint16_t>(queue / 2);
  const Role role = RoleOf(queue, features_);
  if (VhostOf(queue, role) != nullptr) {
    return std::make_unique<VhostQueue>(parts, static_cast<const VhostQueue&>(before));
  }
  switch (role) {
    case Role::kReceive:
      return std::make_unique<NetReceiveQueue>(parts, port_, network_.channel(pair),
                                               static_cast<const NetReceiveQueue&>(before));
    case Role::kTransmit:
      return std::make_unique<NetTransmitQueue>(parts, port_, network_.channel(pair),
                                                static_cast<const NetTransmitQueue&>(before));
    case Role::kControl:
      return std::make_unique<Control>(*this, parts, before);
    case Role::kNone:
      break;
  }
  return std::make_unique<UnusedQueue>(parts, before);
}

}  // namespace ringside
