#include "vfio/vfio_user_session.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <unistd.h>

#include "base/pages.h"
#include "base/status.h"

namespace ringside {
namespace {

// Of an MSI-X table, PCI Local Bus 3.0, section 6.8.2.3.
constexpr uint32_t kMostVectors = PCI_MSIX_FLAGS_QSIZE + 1;

// The server's offsets end up in mmap and in sums of two of them.
constexpr uint64_t kMostOffset = uint64_t{1} << 62;

bool IsWithin(const MappableArea& area, uint64_t size) {
  return area.offset <= size && area.size <= size - area.offset;
}

// "VFIO_USER_DEVICE_GET_REGION_INFO": areas of whole pages, within the region.
bool IsSane(const VfioRegion& region) {
  return region.size <= kMostOffset && region.offset <= kMostOffset &&
         region.offset % kPageSize == 0 &&
         std::ranges::all_of(region.areas, [&](const MappableArea& area) {
           return IsWithin(area, region.size) && area.offset % kPageSize == 0;
         });
}

}  // namespace

VfioUserPayload VfioUserRegionWrite(uint32_t region, uint64_t offset, uint32_t size,
                                    uint32_t value) {
  VfioUserPayload payload;
  AppendTo(payload, VfioUserRegionAccess{.offset = offset, .region = region, .count = size});
  AppendTo(payload, value);
  payload.resize(sizeof(VfioUserRegionAccess) + size);
  return payload;
}

absl::StatusOr<std::shared_ptr<VfioUserSession>> VfioUserSession::Connect(
    const std::string& path, absl::Duration timeout, VfioUserConnection::Handler& handler,
    const EventFd& wake) {
  RINGSIDE_ASSIGN_OR_RETURN(auto connection,
                            VfioUserConnection::Connect(path, timeout, handler, wake));
  return std::shared_ptr<VfioUserSession>(new VfioUserSession(path, std::move(connection)));
}

absl::Status VfioUserSession::Error(const absl::Status& why, std::string_view what) const {
  return {why.code(),
          absl::StrFormat("cannot %s vfio-user device '%s': %s", what, path_, Message(why))};
}

absl::Status VfioUserSession::Misleading(std::string_view what) {
  const auto why = absl::UnavailableError(absl::StrFormat("it gives a wrong answer to '%s'", what));
  connection_->Break(why);
  return Error(why, what);
}

absl::Status VfioUserSession::Negotiate() {
  constexpr char kWhat[] = "agree on a version with";
  const auto answer = connection_->Call(VfioUserCommand::kVersion, VfioUserVersionRequest());
  if (!answer.ok()) {
    const absl::Status why = Error(answer.status(), kWhat);
    return {why.code(), absl::StrFormat("%s; servers take one client at a time", Message(why))};
  }
  const auto capabilities = ParseVfioUserVersion(answer->payload);
  if (!capabilities.ok()) return Error(capabilities.status(), kWhat);
  capabilities_ = *capabilities;
  if (capabilities_.max_fds == 0) {
    return Error(absl::FailedPreconditionError("it takes no descriptors"), "share memory with");
  }
  return absl::OkStatus();
}

absl::StatusOr<VfioUserDeviceInfo> VfioUserSession::GetInfo() {
  constexpr char kWhat[] = "query";
  VfioUserPayload ask;
  AppendTo(ask, VfioUserDeviceInfo{.argsz = sizeof(VfioUserDeviceInfo)});
  const auto answer = connection_->Call(VfioUserCommand::kGetInfo, ask);
  if (!answer.ok()) return Error(answer.status(), kWhat);
  const auto info = HeadOf<VfioUserDeviceInfo>(answer->payload);
  if (!info) return Misleading(kWhat);
  if ((info->flags & VFIO_DEVICE_FLAGS_PCI) == 0 || info->regions <= VFIO_PCI_CONFIG_REGION_INDEX) {
    return Error(absl::FailedPreconditionError("it is no PCI device"), "use");
  }
  return *info;
}

absl::StatusOr<VfioUserRegion> VfioUserSession::GetRegion(uint32_t index) {
  constexpr char kWhat[] = "query a region of";
  const vfio_region_info ask{.index = index};
  VfioUserRegion region;
  absl::Status failure;
  const auto query = [&](void* buffer) {
    vfio_region_info* const info = static_cast<vfio_region_info*>(buffer);
    const std::span room(static_cast<std::byte*>(buffer), info->argsz);
    auto answer = connection_->Call(VfioUserCommand::kGetRegionInfo, room.first(sizeof *info));
    const auto head = answer.ok() ? HeadOf<vfio_region_info>(answer->payload) : std::nullopt;
    if (!answer.ok()) {
      failure = Error(answer.status(), kWhat);
    } else if (!head || head->index != index ||
               answer->payload.size() < std::min<size_t>(head->argsz, room.size())) {
      failure = Misleading(kWhat);
    } else {
      std::ranges::copy(
          std::span(answer->payload).first(std::min(answer->payload.size(), room.size())),
          room.begin());
      region.fd = answer->fds.empty() ? UniqueFd() : std::move(answer->fds.front());
      return 0;
    }
    errno = EIO;
    return -1;
  };
  const auto info = QueryVfioInfo(std::as_bytes(std::span(&ask, 1)), query);
  if (!failure.ok()) return failure;
  if (!info.ok()) return Error(info.status(), kWhat);
  absl::StatusOr<VfioRegion> layout = ParseVfioRegion(*info);
  if (!layout.ok() || !IsSane(*layout)) return Misleading(kWhat);
  region.layout = *std::move(layout);
  if (!region.fd.valid()) region.layout.areas.clear();
  return region;
}

absl::StatusOr<uint32_t> VfioUserSession::GetVectors(const VfioUserDeviceInfo& info) {
  constexpr char kWhat[] = "query the interrupts of";
  if (info.irqs <= VFIO_PCI_MSIX_IRQ_INDEX) return 0;
  VfioUserPayload ask;
  AppendTo(ask, vfio_irq_info{.argsz = sizeof(vfio_irq_info), .index = VFIO_PCI_MSIX_IRQ_INDEX});
  const auto answer = connection_->Call(VfioUserCommand::kGetIrqInfo, ask);
  if (!answer.ok()) return Error(answer.status(), kWhat);
  const auto irq = HeadOf<vfio_irq_info>(answer->payload);
  if (!irq || irq->index != VFIO_PCI_MSIX_IRQ_INDEX || irq->count > kMostVectors) {
    return Misleading(kWhat);
  }
  return (irq->flags & VFIO_IRQ_INFO_EVENTFD) != 0 ? irq->count : 0;
}

absl::StatusOr<uint32_t> VfioUserSession::Read(uint32_t region, uint64_t offset, uint32_t size) {
  constexpr char kWhat[] = "read a register of";
  uint32_t value = 0;
  if (size > sizeof value) return absl::InvalidArgumentError("more than a register");
  const VfioUserRegionAccess access{.offset = offset, .region = region, .count = size};
  VfioUserPayload ask;
  AppendTo(ask, access);
  const auto answer = connection_->Call(VfioUserCommand::kRegionRead, ask);
  if (!answer.ok()) return Error(answer.status(), kWhat);
  const auto head = HeadOf<VfioUserRegionAccess>(answer->payload);
  if (!head || head->count != size || answer->payload.size() != sizeof *head + size) {
    return Misleading(kWhat);
  }
  std::memcpy(&value, answer->payload.data() + sizeof *head, size);
  return value;
}

absl::Status VfioUserSession::Write(uint32_t region, uint64_t offset, uint32_t size,
                                    uint32_t value) {
  if (size > sizeof value) return absl::InvalidArgumentError("more than a register");
  const auto answer = connection_->Call(VfioUserCommand::kRegionWrite,
                                        VfioUserRegionWrite(region, offset, size, value));
  return answer.ok() ? absl::OkStatus() : Error(answer.status(), "write a register of");
}

absl::Status VfioUserSession::MapDma(const DmaMapping& mapping) {
  VfioUserPayload ask;
  AppendTo(ask, VfioUserDmaMap{.argsz = sizeof(VfioUserDmaMap),
                               .flags = kVfioUserDmaRead | kVfioUserDmaWrite,
                               .offset = mapping.fd_offset,
                               .address = mapping.iova,
                               .size = mapping.size});
  const auto answer = connection_->Call(VfioUserCommand::kDmaMap, ask, std::span(&mapping.fd, 1));
  return answer.ok() ? absl::OkStatus() : Error(answer.status(), "share memory with");
}

absl::Status VfioUserSession::UnmapDma(uint64_t iova, uint64_t size) {
  VfioUserPayload ask;
  AppendTo(ask, VfioUserDmaUnmap{.argsz = sizeof(VfioUserDmaUnmap), .address = iova, .size = size});
  const auto answer = connection_->Call(VfioUserCommand::kDmaUnmap, ask);
  return answer.ok() ? absl::OkStatus() : Error(answer.status(), "take memory back from");
}

absl::Status VfioUserSession::Reset() {
  const auto answer = connection_->Call(VfioUserCommand::kReset, {});
  return answer.ok() ? absl::OkStatus() : Error(answer.status(), "reset");
}

}  // namespace ringside
