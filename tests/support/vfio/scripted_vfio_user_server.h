// A vfio-user server that answers like a small PCI device, or as its script says: for what a real
// one never does.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <map>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/sync.h"
#include "tests/support/descriptors.h"
#include "tests/support/vfio/vfio_user_send.h"

namespace ringside::testing {

inline constexpr uint64_t kScriptedBarSize = 0x4000;
inline constexpr uint64_t kScriptedArea = 0x1000;  // one page of it may be mapped
inline constexpr uint32_t kScriptedVectors = 5;
inline constexpr uint32_t kScriptedMsix = 0x40;  // the capability
inline constexpr char kScriptedVersion[] =
    R"({"capabilities":{"max_msg_fds":2,"max_data_xfer_size":1048576}})";

struct ScriptedReply {
  VfioUserPayload payload;
  std::vector<int> fds;
  uint32_t flags = kVfioUserTypeReply;
  uint32_t error = 0;
  std::optional<uint16_t> id;       // instead of the command's
  std::optional<uint16_t> command;  // likewise
  bool is_silent = false;
  bool hangs_up = false;
  std::string before;  // these bytes ahead of it
  std::string raw;     // these instead
  // This is done with the connection behind the answer, and then it is closed. On the server's
  // thread, so that it has to end when the client goes.
  std::function<void(int client)> last;
};

class ScriptedVfioUserServer {
 public:
  // Changes what would be answered. On the server's thread.
  using Script = std::function<void(const VfioUserMessage&, ScriptedReply&)>;

  explicit ScriptedVfioUserServer(const std::string& path, Script script = {})
      : script_(std::move(script)),
        bar_file_(Must(memfd_create("bar", MFD_CLOEXEC), "memfd_create")) {
    Must(ftruncate(bar_file_.get(), 0x2000), "ftruncate");
    config_.fill(0);
    SetConfig(PCI_VENDOR_ID, uint32_t{0x00101b36});
    SetConfig(PCI_CLASS_REVISION, uint32_t{0x01080201});
    SetConfig(PCI_STATUS, static_cast<uint16_t>(PCI_STATUS_CAP_LIST));
    SetConfig(PCI_CAPABILITY_LIST, static_cast<uint8_t>(kScriptedMsix));
    SetConfig(kScriptedMsix, static_cast<uint8_t>(PCI_CAP_ID_MSIX));
    SetConfig(kScriptedMsix + PCI_MSIX_FLAGS, static_cast<uint16_t>(kScriptedVectors - 1));
    listener_ = UniqueFd(Must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    unlink(path.c_str());
    Must(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
    Must(listen(listener_.get(), 0), "listen");
    thread_ = std::thread([this] { Run(); });
  }
  ~ScriptedVfioUserServer() {
    stop_.Signal();
    thread_.join();
  }

  // The memory behind the area that may be mapped.
  uint32_t Doorbell() const {
    uint32_t value = 0;
    Must(static_cast<int>(pread(bar_file_.get(), &value, sizeof value, kScriptedArea)), "pread");
    return value;
  }
  uint32_t Config(uint32_t offset) const {
    const MutexLock lock(mutex_);
    uint32_t value = 0;
    std::memcpy(&value, config_.data() + offset, sizeof value);
    return value;
  }
  bool IsMsixOn() const { return (Config(kScriptedMsix) >> 16 & PCI_MSIX_FLAGS_ENABLE) != 0; }
  // Writes the vector's eventfd; false if there is none.
  bool Interrupt(uint32_t vector) const {
    const MutexLock lock(mutex_);
    const auto found = eventfds_.find(vector);
    const uint64_t one = 1;
    return found != eventfds_.end() && write(found->second.get(), &one, sizeof one) == sizeof one;
  }
  size_t vectors_set() const {
    const MutexLock lock(mutex_);
    return eventfds_.size();
  }
  std::map<uint64_t, VfioUserDmaMap> mappings() const {
    const MutexLock lock(mutex_);
    return mappings_;
  }
  int CountOf(VfioUserCommand command) const {
    const MutexLock lock(mutex_);
    const auto found = counts_.find(command);
    return found == counts_.end() ? 0 : found->second;
  }
  // A command to the client, and its answer; from the test's thread.
  VfioUserMessage Ask(VfioUserCommand command, const VfioUserPayload& payload) {
    return Ask({.id = 77, .command = static_cast<uint16_t>(command)}, payload);
  }
  VfioUserMessage Ask(const VfioUserHeader& header, const VfioUserPayload& payload) {
    {
      const MutexLock lock(mutex_);
      answered_.reset();
    }
    if (!SendVfioUserMessage(connection_.load(), header, payload, {}).ok()) return {};
    SpinUntil([this] {
      const MutexLock lock(mutex_);
      return answered_.has_value();
    });
    const MutexLock lock(mutex_);
    return answered_ ? *std::exchange(answered_, std::nullopt) : VfioUserMessage();
  }

 private:
  template <typename T>
  void SetConfig(uint32_t offset, T value) {
    std::memcpy(config_.data() + offset, &value, sizeof value);
  }

  void Run() {
    while (WaitFor(listener_.get())) {
      const UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      connection_ = client.get();
      VfioUserReader reader;
      bool is_open = true;
      while (is_open) {
        if (!WaitFor(client.get())) return;
        auto message = reader.Receive(client.get());
        is_open = message.ok();
        if (is_open && message->has_value()) is_open = Answer(client.get(), **std::move(message));
      }
      const MutexLock lock(mutex_);
      eventfds_.clear();
      mappings_.clear();
    }
  }
  // False: the test is over.
  bool WaitFor(int fd) const {
    std::array<pollfd, 2> watched = {pollfd{.fd = fd, .events = POLLIN},
                                     pollfd{.fd = stop_.fd(), .events = POLLIN}};
    poll(watched.data(), watched.size(), -1);
    return watched[1].revents == 0;
  }

  bool Answer(int client, VfioUserMessage message) {
    if (message.is_reply()) {
      const MutexLock lock(mutex_);
      answered_ = std::move(message);
      return true;
    }
    ScriptedReply reply;
    Do(message, reply);
    if (script_) script_(message, reply);
    if (!reply.before.empty() &&
        send(client, reply.before.data(), reply.before.size(), MSG_NOSIGNAL) <= 0) {
      return false;
    }
    if (reply.hangs_up) return false;
    if (!reply.raw.empty()) {
      return send(client, reply.raw.data(), reply.raw.size(), MSG_NOSIGNAL) > 0;
    }
    if (!reply.is_silent && !SendReply(client, message, reply)) return false;
    if (reply.last) reply.last(client);
    return !reply.last;
  }

  static bool SendReply(int client, const VfioUserMessage& message, const ScriptedReply& reply) {
    const VfioUserHeader header = {.id = reply.id.value_or(message.header.id),
                                   .command = reply.command.value_or(message.header.command),
                                   .flags = reply.flags | (reply.error != 0 ? kVfioUserError : 0),
                                   .error = reply.error};
    return SendVfioUserMessage(client, header, reply.payload, reply.fds).ok();
  }

  void Do(VfioUserMessage& message, ScriptedReply& reply) {
    const MutexLock lock(mutex_);
    const auto command = static_cast<VfioUserCommand>(message.header.command);
    ++counts_[command];
    switch (command) {
      case VfioUserCommand::kVersion:
        AppendTo(reply.payload, VfioUserVersion{.major = 0, .minor = 1});
        for (const char each : std::string(kScriptedVersion) + '\0') AppendTo(reply.payload, each);
        break;
      case VfioUserCommand::kGetInfo:
        AppendTo(reply.payload,
                 VfioUserDeviceInfo{.argsz = 16,
                                    .flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
                                    .regions = VFIO_PCI_NUM_REGIONS,
                                    .irqs = VFIO_PCI_NUM_IRQS});
        break;
      case VfioUserCommand::kGetRegionInfo:
        DescribeRegion(*HeadOf<vfio_region_info>(message.payload), reply);
        break;
      case VfioUserCommand::kGetIrqInfo:
        AppendTo(reply.payload, vfio_irq_info{.argsz = 16,
                                              .flags = VFIO_IRQ_INFO_EVENTFD,
                                              .index = VFIO_PCI_MSIX_IRQ_INDEX,
                                              .count = kScriptedVectors});
        break;
      case VfioUserCommand::kSetIrqs:
        SetIrqs(message);
        break;
      case VfioUserCommand::kRegionRead:
      case VfioUserCommand::kRegionWrite:
        Access(message, command == VfioUserCommand::kRegionWrite, reply);
        break;
      case VfioUserCommand::kDmaMap: {
        const auto map = *HeadOf<VfioUserDmaMap>(message.payload);
        mappings_[map.address] = map;
        break;
      }
      case VfioUserCommand::kDmaUnmap:
        mappings_.erase(HeadOf<VfioUserDmaUnmap>(message.payload)->address);
        reply.payload = message.payload;
        break;
      default:
        break;
    }
  }

  void DescribeRegion(const vfio_region_info& ask, ScriptedReply& reply) const {
    vfio_region_info info{.argsz = sizeof info, .index = ask.index};
    if (ask.index == VFIO_PCI_CONFIG_REGION_INDEX) info.size = config_.size();
    if (ask.index != VFIO_PCI_BAR0_REGION_INDEX) return AppendTo(reply.payload, info);
    struct {
      vfio_info_cap_header header{.id = VFIO_REGION_INFO_CAP_SPARSE_MMAP, .version = 1};
      uint32_t count = 1;
      uint32_t reserved = 0;
      vfio_region_sparse_mmap_area area{.offset = kScriptedArea, .size = 0x1000};
    } sparse;
    info.argsz = sizeof info + sizeof sparse;
    info.flags = VFIO_REGION_INFO_FLAG_MMAP;
    info.size = kScriptedBarSize;
    const bool fits = ask.argsz >= info.argsz;
    if (fits) {
      info.flags |= VFIO_REGION_INFO_FLAG_CAPS;
      info.cap_offset = sizeof info;
      reply.fds.push_back(bar_file_.get());
    }
    AppendTo(reply.payload, info);
    if (fits) AppendTo(reply.payload, sparse);
  }

  void SetIrqs(VfioUserMessage& message) {
    std::array<uint32_t, 5> fields;
    std::memcpy(fields.data(), message.payload.data(), sizeof fields);
    const auto [argsz, flags, index, start, count] = fields;
    if (count == 0) eventfds_.clear();
    for (uint32_t i = 0; i < message.fds.size(); ++i) {
      eventfds_[start + i] = std::move(message.fds[i]);
    }
  }

  void Access(const VfioUserMessage& message, bool is_write, ScriptedReply& reply) {
    const auto access = *HeadOf<VfioUserRegionAccess>(message.payload);
    std::byte* place = access.region == VFIO_PCI_CONFIG_REGION_INDEX
                           ? reinterpret_cast<std::byte*>(config_.data()) + access.offset
                           : registers_.data() + access.offset % registers_.size();
    AppendTo(reply.payload, access);
    if (is_write) {
      std::memcpy(place, message.payload.data() + sizeof access, access.count);
    } else {
      reply.payload.insert(reply.payload.end(), place, place + access.count);
    }
  }

  const Script script_;
  const UniqueFd bar_file_;
  UniqueFd listener_;
  EventFd stop_ = *EventFd::Create();
  std::atomic<int> connection_ = -1;
  std::thread thread_;

  mutable Mutex mutex_;
  std::array<uint8_t, 256> config_;
  std::array<std::byte, 4096> registers_{};
  std::map<uint32_t, UniqueFd> eventfds_;
  std::map<uint64_t, VfioUserDmaMap> mappings_;
  std::map<VfioUserCommand, int> counts_;
  std::optional<VfioUserMessage> answered_;
};

}  // namespace ringside::testing
