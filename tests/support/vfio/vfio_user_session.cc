#include "tests/support/vfio/vfio_user_session.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <linux/vfio.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>

namespace ringside::testing {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kConfigSize = 256;
constexpr uint64_t kMaxTransfer = kVfioUserDefaultTransfer;

// vfio_region_info_cap_sparse_mmap with one area.
struct SparseArea {
  vfio_info_cap_header header;
  uint32_t areas;
  uint32_t reserved;
  vfio_region_sparse_mmap_area area;
};
static_assert(sizeof(SparseArea) == 32);

// How much payload each command has at least, and whether its reply says more than that it is done.
struct Shape {
  size_t payload;
  bool more = false;  // may follow
  bool answers = false;
};

const Shape* ShapeOf(VfioUserCommand command) {
  static const std::map<VfioUserCommand, Shape> shapes = {
      {VfioUserCommand::kVersion, {sizeof(VfioUserVersion), true, true}},
      {VfioUserCommand::kDmaMap, {sizeof(VfioUserDmaMap)}},
      {VfioUserCommand::kDmaUnmap, {sizeof(VfioUserDmaUnmap)}},
      {VfioUserCommand::kGetInfo, {sizeof(VfioUserDeviceInfo), false, true}},
      {VfioUserCommand::kGetRegionInfo, {sizeof(vfio_region_info), false, true}},
      {VfioUserCommand::kGetIrqInfo, {sizeof(vfio_irq_info), false, true}},
      {VfioUserCommand::kSetIrqs, {sizeof(vfio_irq_set), true}},
      {VfioUserCommand::kRegionRead, {sizeof(VfioUserRegionAccess), false, true}},
      {VfioUserCommand::kRegionWrite, {sizeof(VfioUserRegionAccess), true}},
      {VfioUserCommand::kReset, {0}},
  };
  const auto found = shapes.find(command);
  return found == shapes.end() ? nullptr : &found->second;
}

int ErrnoOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kAlreadyExists:
      return EEXIST;
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kNotFound:
      return ENOENT;
    case absl::StatusCode::kResourceExhausted:
      return ENOSPC;
    case absl::StatusCode::kFailedPrecondition:
      return ENOTSUP;
    default:
      return EIO;
  }
}

uint64_t SizeOf(int fd) {
  struct stat found = {};
  return fstat(fd, &found) == 0 ? static_cast<uint64_t>(found.st_size) : 0;
}

}  // namespace

VfioUserSession::VfioUserSession(const VfioUserServerConfig& config, VfioUserServed served,
                                 std::vector<std::string>& violations)
    : config_(config),
      violations_(violations),
      served_(std::move(served)),
      eventfds_(served_.device->vectors()) {}

VfioUserSession::~VfioUserSession() {
  served_.device.reset();
  for (const auto& [iova, mapping] : mappings_) munmap(mapping.host, mapping.size);
}

size_t VfioUserSession::assigned() const {
  return static_cast<size_t>(
      std::ranges::count_if(eventfds_, [](const UniqueFd& fd) { return fd.valid(); }));
}

// A BAR's size is a power of two (PCI Local Bus 3.0, 6.2.5.1).
uint64_t VfioUserSession::bar_size() const {
  return std::bit_ceil(SizeOf(served_.bar_fd));
}

VfioUserReply VfioUserSession::Handle(const VfioUserMessage& message) {
  CheckFlags(message);
  if (!IsSound(message)) return {.error = EINVAL};
  switch (message.command()) {
    case VfioUserCommand::kVersion:
      return Version(message);
    case VfioUserCommand::kGetInfo:
      return GetInfo(message);
    case VfioUserCommand::kGetRegionInfo:
      return GetRegionInfo(message);
    case VfioUserCommand::kGetIrqInfo:
      return GetIrqInfo(message);
    case VfioUserCommand::kDmaMap:
      return DmaMap(message);
    case VfioUserCommand::kDmaUnmap:
      return DmaUnmap(message);
    case VfioUserCommand::kRegionRead:
    case VfioUserCommand::kRegionWrite:
      return RegionAccess(message);
    case VfioUserCommand::kSetIrqs:
      return SetIrqs(message);
    default:
      return Reset();
  }
}

void VfioUserSession::CheckFlags(const VfioUserMessage& message) {
  const VfioUserHeader& header = message.header;
  if ((header.flags & ~kVfioUserNoReply) != kVfioUserTypeCommand) {
    Violate(0, "command %d has the flags %#x", header.command, header.flags);
  }
  if (header.error != 0) Violate(0, "command %d has an error, %d", header.command, header.error);
  if (message.fds.size() > max_fds_) {
    Violate(0, "command %d comes with %d descriptors; %d are the most", header.command,
            message.fds.size(), max_fds_);
  }
}

bool VfioUserSession::IsSound(const VfioUserMessage& message) {
  const uint16_t command = message.header.command;
  const Shape* shape = ShapeOf(message.command());
  const size_t payload = message.payload.size();
  if (shape == nullptr) {
    Violate(0, "there is no command %d", command);
    return false;
  }
  if (negotiated_ == (message.command() == VfioUserCommand::kVersion)) {
    Violate(0, "command %d comes %s the version", command, negotiated_ ? "after" : "before");
    over_ = true;
    return false;
  }
  if (payload < shape->payload || (payload > shape->payload && !shape->more)) {
    Violate(0, "command %d has a payload of %d bytes", command, payload);
    return false;
  }
  if (shape->answers && !message.wants_reply()) {
    Violate(0, "command %d asks for something and wants no reply", command);
  }
  if (!message.fds.empty() && message.command() != VfioUserCommand::kDmaMap &&
      message.command() != VfioUserCommand::kSetIrqs) {
    Violate(0, "command %d comes with descriptors", command);
  }
  return true;
}

// ---- "VFIO_USER_VERSION" ----

VfioUserReply VfioUserSession::Version(const VfioUserMessage& message) {
  const auto proposed = message.As<VfioUserVersion>();
  if (proposed.major != kVfioUserMajor) {
    over_ = true;
    return Violate(EINVAL, "version %d.%d is proposed", proposed.major, proposed.minor);
  }
  // Only what is proposed may be answered; who proposes nothing has the defaults.
  nlohmann::json answered = nlohmann::json::object();
  const nlohmann::json ours = {{"max_msg_fds", config_.max_fds},
                               {"max_data_xfer_size", kMaxTransfer},
                               {"max_dma_maps", config_.max_dma_maps},
                               {"pgsizes", kPage}};
  const auto* text = reinterpret_cast<const char*>(message.payload.data()) + sizeof proposed;
  const size_t size = message.payload.size() - sizeof proposed;
  if (size > 0) {
    if (text[size - 1] != '\0') Violate(0, "the capabilities do not end in a zero byte");
    const auto json = nlohmann::json::parse(text, text + strnlen(text, size), nullptr, false);
    const auto capabilities =
        json.is_object() && json.contains("capabilities") ? json["capabilities"] : nlohmann::json();
    if (!capabilities.is_object()) Violate(0, "the capabilities are no JSON: %s", json.dump());
    for (const auto& [name, value] : capabilities.items()) {
      if (!ours.contains(name)) continue;
      if (!value.is_number_unsigned()) Violate(0, "%s is %s", name, value.dump());
      answered[name] = ours[name];
    }
  }
  if (answered.contains("max_msg_fds")) max_fds_ = config_.max_fds;
  negotiated_ = true;
  auto reply = VfioUserReply::With(
      VfioUserVersion{.major = config_.major, .minor = std::min(proposed.minor, kVfioUserMinor)});
  const std::string data = nlohmann::json{{"capabilities", answered}}.dump();
  for (const char each : data) reply.Append(each);
  reply.Append('\0');
  return reply;
}

// ---- What there is ----

VfioUserReply VfioUserSession::GetInfo(const VfioUserMessage& message) {
  const auto asked = message.As<VfioUserDeviceInfo>();
  if (asked.argsz < sizeof asked || (asked.flags | asked.regions | asked.irqs) != 0) {
    return Violate(EINVAL, "the request for the device's description is not one");
  }
  return VfioUserReply::With(
      VfioUserDeviceInfo{.argsz = sizeof(VfioUserDeviceInfo),
                         .flags = uint32_t{VFIO_DEVICE_FLAGS_PCI} |
                                  (config_.resets ? uint32_t{VFIO_DEVICE_FLAGS_RESET} : 0),
                         .regions = VFIO_PCI_NUM_REGIONS,
                         .irqs = VFIO_PCI_NUM_IRQS});
}

VfioUserReply VfioUserSession::GetRegionInfo(const VfioUserMessage& message) {
  const auto asked = message.As<vfio_region_info>();
  if (asked.argsz < sizeof asked || asked.index >= VFIO_PCI_NUM_REGIONS ||
      (asked.flags | asked.cap_offset | asked.size | asked.offset) != 0) {
    return Violate(EINVAL, "the request for region %d is not one", asked.index);
  }
  vfio_region_info info = {};
  info.argsz = sizeof info;
  info.index = asked.index;
  if (info.index == VFIO_PCI_CONFIG_REGION_INDEX) info.size = kConfigSize;
  if (info.index == VFIO_PCI_BAR0_REGION_INDEX) info.size = bar_size();
  if (info.size > 0) info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
  if (info.index != VFIO_PCI_BAR0_REGION_INDEX || !config_.mappable) {
    return VfioUserReply::With(info);
  }
  const SparseArea sparse = {
      .header = {.id = VFIO_REGION_INFO_CAP_SPARSE_MMAP, .version = 1, .next = 0},
      .areas = 1,
      .reserved = 0,
      .area = {.offset = served_.mappable, .size = SizeOf(served_.bar_fd) - served_.mappable}};
  info.flags |= VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS;
  info.argsz += sizeof sparse;
  // Where that does not fit, the client asks again.
  if (asked.argsz < info.argsz) {
    info.flags &= ~uint32_t{VFIO_REGION_INFO_FLAG_CAPS};
    return VfioUserReply::With(info);
  }
  info.cap_offset = sizeof info;
  auto reply = VfioUserReply::With(info);
  reply.Append(sparse);
  reply.fd = served_.bar_fd;
  return reply;
}

VfioUserReply VfioUserSession::GetIrqInfo(const VfioUserMessage& message) {
  const auto asked = message.As<vfio_irq_info>();
  if (asked.argsz < sizeof asked || asked.index >= VFIO_PCI_NUM_IRQS ||
      (asked.flags | asked.count) != 0) {
    return Violate(EINVAL, "the request for interrupt %d is not one", asked.index);
  }
  vfio_irq_info info = {};
  info.argsz = sizeof info;
  info.index = asked.index;
  if (info.index == VFIO_PCI_MSIX_IRQ_INDEX) {
    info.flags = VFIO_IRQ_INFO_EVENTFD;
    info.count = served_.device->vectors();
  }
  return VfioUserReply::With(info);
}

// ---- DMA ----

VfioUserReply VfioUserSession::DmaMap(const VfioUserMessage& message) {
  const auto map = message.As<VfioUserDmaMap>();
  if (map.argsz != sizeof map || map.flags != (kVfioUserDmaRead | kVfioUserDmaWrite)) {
    return Violate(EINVAL, "DMA at %#x is mapped with argsz %d, flags %#x", map.address, map.argsz,
                   map.flags);
  }
  if ((map.address | map.size | map.offset) % kPage != 0 || map.size == 0 ||
      map.address + (map.size - 1) < map.address) {
    return Violate(EINVAL, "DMA is mapped that is no pages: %d bytes at %#x", map.size,
                   map.address);
  }
  if (message.fds.size() != 1) {
    return Violate(EINVAL, "DMA at %#x is mapped with %d descriptors", map.address,
                   message.fds.size());
  }
  const int fd = message.fds[0].get();
  if (map.offset > SizeOf(fd) || map.size > SizeOf(fd) - map.offset) {
    return Violate(EINVAL, "DMA at %#x is mapped beyond the descriptor's end", map.address);
  }
  if (mappings_.size() >= config_.max_dma_maps) {
    return Violate(ENOSPC, "there are more mappings than the %d that can be", config_.max_dma_maps);
  }
  void* const pages = mmap(nullptr, map.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                           static_cast<off_t>(map.offset));
  if (pages == MAP_FAILED) return {.error = errno};
  auto* const host = static_cast<std::byte*>(pages);
  const absl::Status status =
      served_.device->MapDma({.host = host, .size = map.size, .iova = map.address});
  if (!status.ok()) {
    munmap(pages, map.size);
    return Violate(ErrnoOf(status), "DMA cannot be mapped: %s", status.ToString());
  }
  mappings_[map.address] = {.host = host, .size = map.size};
  return {};
}

VfioUserReply VfioUserSession::DmaUnmap(const VfioUserMessage& message) {
  const auto unmap = message.As<VfioUserDmaUnmap>();
  if (unmap.argsz < sizeof unmap || unmap.flags != 0) {
    return Violate(EINVAL, "DMA at %#x is unmapped with argsz %d, flags %#x", unmap.address,
                   unmap.argsz, unmap.flags);
  }
  const auto found = mappings_.find(unmap.address);
  if (found == mappings_.end() || found->second.size != unmap.size) {
    return Violate(ENOENT, "nothing of %d bytes is mapped at %#x", unmap.size, unmap.address);
  }
  const absl::Status status = served_.device->UnmapDma(unmap.address, unmap.size);
  if (!status.ok()) return Violate(ErrnoOf(status), "DMA stays mapped: %s", status.ToString());
  munmap(found->second.host, found->second.size);
  mappings_.erase(found);
  return VfioUserReply::With(unmap);
}

// ---- Registers ----

VfioUserReply VfioUserSession::RegionAccess(const VfioUserMessage& message) {
  const auto access = message.As<VfioUserRegionAccess>();
  const bool write = message.command() == VfioUserCommand::kRegionWrite;
  std::vector<std::byte> data(message.payload.begin() + sizeof access, message.payload.end());
  uint64_t size = 0;
  if (access.region == VFIO_PCI_CONFIG_REGION_INDEX) size = kConfigSize;
  if (access.region == VFIO_PCI_BAR0_REGION_INDEX) size = bar_size();
  if (access.count == 0 || access.count > kMaxTransfer || access.offset > size ||
      access.count > size - access.offset) {
    return Violate(EINVAL, "%d bytes at %#x are not in region %d", access.count, access.offset,
                   access.region);
  }
  if (write && data.size() != access.count) {
    return Violate(EINVAL, "a write of %d bytes has %d", access.count, data.size());
  }
  data.resize(access.count);
  if (!Access(access.region, access.offset, data, write)) {
    return Violate(EINVAL, "region %d has no registers of %d bytes at %#x", access.region,
                   access.count, access.offset);
  }
  auto reply = VfioUserReply::With(access);
  if (!write) reply.payload.insert(reply.payload.end(), data.begin(), data.end());
  return reply;
}

bool VfioUserSession::Access(uint32_t region, uint64_t offset, std::span<std::byte> data,
                             bool write) {
  const bool is_bar = region == VFIO_PCI_BAR0_REGION_INDEX;
  PciDevice& device = *served_.device;
  if (is_bar && (offset | data.size()) % 4 != 0) return false;
  if (!is_bar && (!std::has_single_bit(data.size()) || data.size() > 4)) return false;
  const size_t step = is_bar ? 4 : data.size();
  if (offset % step != 0) return false;
  for (; !data.empty(); data = data.subspan(step), offset += step) {
    uint32_t value = 0;
    if (write) {
      std::memcpy(&value, data.data(), step);
      is_bar ? device.WriteBar(0, offset, value)
             : WriteConfig(static_cast<uint32_t>(offset), static_cast<uint32_t>(step), value);
    } else {
      value = is_bar ? device.ReadBar(0, offset)
                     : ReadConfig(static_cast<uint32_t>(offset), static_cast<uint32_t>(step));
      std::memcpy(data.data(), &value, step);
    }
  }
  return true;
}

VfioUserReply VfioUserSession::Reset() {
  if (!config_.resets) return Violate(ENOTSUP, "a reset, which the device does not offer");
  return {.error = ErrnoOf(served_.device->Reset())};
}

}  // namespace ringside::testing
