// A session's interrupts: "VFIO_USER_DEVICE_SET_IRQS", and the MSI-X capability.
#include <cerrno>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>

#include "tests/support/vfio/vfio_user_session.h"

namespace ringside::testing {
namespace {

constexpr uint32_t kMsix = 0x40;  // the capability, in configuration space

bool IsEventfd(int fd) {
  char path[64] = {};
  if (readlink(absl::StrFormat("/proc/self/fd/%d", fd).c_str(), path, sizeof path - 1) < 0) {
    return false;
  }
  return std::string_view(path) == "anon_inode:[eventfd]";
}

}  // namespace

VfioUserReply VfioUserSession::SetIrqs(const VfioUserMessage& message) {
  const auto set = message.As<vfio_irq_set>();
  const uint32_t data = set.flags & VFIO_IRQ_SET_DATA_TYPE_MASK;
  const uint32_t action = set.flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
  if (set.argsz != message.payload.size() || set.argsz != sizeof set ||
      set.index != VFIO_PCI_MSIX_IRQ_INDEX || set.start > eventfds_.size() ||
      set.count > eventfds_.size() - set.start) {
    return Violate(EINVAL, "vectors %d and on, %d of them, of interrupt %d are set with %d bytes",
                   set.start, set.count, set.index, set.argsz);
  }
  if ((set.flags & ~(data | action)) != 0) Violate(0, "SET_IRQS has the flags %#x", set.flags);
  if (data != VFIO_IRQ_SET_DATA_EVENTFD && !message.fds.empty()) {
    Violate(0, "SET_IRQS without DATA_EVENTFD comes with descriptors");
  }
  switch (action | data) {
    case VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD:
      return SetEventfds(set.start, set.count, message.fds);
    case VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE:
      if (set.start != 0 || set.count != 0) break;
      for (UniqueFd& each : eventfds_) each = UniqueFd();
      return ApplyVectors();
    default:
      break;
  }
  return Violate(EINVAL, "SET_IRQS with the flags %#x for %d vectors is nothing that is done here",
                 set.flags, set.count);
}

VfioUserReply VfioUserSession::SetEventfds(uint32_t start, uint32_t count,
                                           const std::vector<UniqueFd>& fds) {
  if (count == 0 || (!fds.empty() && fds.size() != count)) {
    return Violate(EINVAL, "%d vectors are set with %d descriptors", count, fds.size());
  }
  for (size_t i = 0; i < count; ++i) {
    UniqueFd kept;
    if (!fds.empty()) {
      if (!IsEventfd(fds[i].get())) return Violate(EINVAL, "vector %d: no eventfd", start + i);
      kept = UniqueFd(fcntl(fds[i].get(), F_DUPFD_CLOEXEC, 0));
    }
    eventfds_[start + i] = std::move(kept);
  }
  return ApplyVectors();
}

VfioUserReply VfioUserSession::ApplyVectors() {
  std::vector<int> fds;
  if (msix_enabled()) {
    for (const UniqueFd& each : eventfds_) fds.push_back(each.get());
  }
  return {.error = served_.device->SetVectors(fds).ok() ? 0 : EIO};
}

// PCI Local Bus 3.0, section 6.8.2.3: of what there is only the enable bit and the function's mask
// may be written.
uint32_t VfioUserSession::ReadConfig(uint32_t offset, uint32_t size) {
  uint32_t value = served_.device->ReadConfig(offset, size);
  if (!config_.msix_control) return value;
  const std::map<uint32_t, uint32_t> bytes = {
      {PCI_STATUS, PCI_STATUS_CAP_LIST},
      {PCI_CAPABILITY_LIST, kMsix},
      {kMsix, PCI_CAP_ID_MSIX},
      {kMsix + 2, served_.device->vectors() - 1},
      {kMsix + 3, msix_control_},
      // The table and the pending bits are in a BAR that nobody needs: there are eventfds.
      {kMsix + 4, 4},
      {kMsix + 8, 5},
  };
  for (uint32_t i = 0; i < size; ++i) {
    const auto byte = bytes.find(offset + i);
    if (byte != bytes.end()) value |= byte->second << 8 * i;
  }
  return value;
}

void VfioUserSession::WriteConfig(uint32_t offset, uint32_t size, uint32_t value) {
  if (!config_.msix_control || offset < kMsix || offset >= kMsix + 12) {
    return served_.device->WriteConfig(offset, size, value);
  }
  constexpr uint32_t kHigh = kMsix + 3;
  if (offset > kHigh || offset + size <= kHigh) return;
  msix_control_ = static_cast<uint8_t>(value >> 8 * (kHigh - offset) & 0xc0);
  ApplyVectors();
}

}  // namespace ringside::testing
