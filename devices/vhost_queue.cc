#include "devices/vhost_queue.h"

#include <poll.h>

#include "base/status.h"

namespace ringside {

VhostQueue::VhostQueue(const Parts& parts, const NetPort& port, const Kernel& kernel,
                       const QueueSetup& setup, uint64_t features)
    : QueueWorker(parts, setup, features, QueueSignal::Hold::kNever,
                  &kernel.vhost.broken(kernel.ring)),
      port_(port),
      kernel_(kernel),
      setup_(setup),
      features_(features),
      next_(setup.next) {}

VhostQueue::VhostQueue(const Parts& parts, const VhostQueue& before)
    : QueueWorker(parts, before),
      port_(before.port_),
      kernel_(before.kernel_),
      setup_(before.setup_),
      features_(before.features_),
      next_(before.next_) {}

void VhostQueue::Resume() {
  if (queue().error() != nullptr) return;
  const GuestMemory& memory = parts().memory;
  WriteLog* const log = memory.write_log();
  const Virtqueue::Areas areas = Virtqueue::AreasOf(memory, RingLayout(setup_, features_));
  // First, as the kernel tells nobody of what it has done before.
  setup_.call->Observe(this);
  const absl::Status status =
      kernel_.vhost.Start(kernel_.ring,
                          {.features = features_,
                           .size = setup_.size,
                           .next = next_,
                           .descriptors = areas.descriptors,
                           .available = areas.available,
                           .used = areas.used,
                           .used_address = setup_.device_area,
                           .log = log != nullptr ? log->words().data() : nullptr,
                           .kick = setup_.kick},
                          memory.regions());
  if (!status.ok()) {
    setup_.call->Observe(nullptr);
    // The kernel takes no tap that was removed: the driver finds a link that is down.
    return IsTapGone() ? port_.owner.NetworkGone(parts().events)
                       : parts().events.NeedsReset(Message(status));
  }
  if (kernel_.ring == VhostNet::kReceive && kernel_.vhost.changes_fd() >= 0) {
    io_thread().Arm(changes_);
  }
}

void VhostQueue::End() {
  io_thread().Disarm(changes_);
  if (!kernel_.vhost.started(kernel_.ring)) return;
  next_ = kernel_.vhost.Stop(kernel_.ring);
  // Last, likewise.
  setup_.call->Observe(nullptr);
}

void VhostQueue::Written() {
  if (!kernel_.vhost.TakeBroken(kernel_.ring)) return;
  // The kernel calls a ring broken, too, whose frames it can send nowhere.
  if (IsTapGone()) return port_.owner.NetworkGone(parts().events);
  End();
  queue().Break("the host's kernel (vhost-net) finds that the ring is broken");
  ReportIfBroken();
}

// A descriptor of one that is no more says so for ever.
bool VhostQueue::IsTapGone() const {
  pollfd tap = {.fd = kernel_.tap_fd, .events = 0, .revents = 0};
  return poll(&tap, 1, 0) > 0;
}

void VhostQueue::LookForTap() {
  kernel_.vhost.TakeChanges();
  if (!IsTapGone()) return io_thread().Arm(changes_);
  port_.owner.NetworkGone(parts().events);
}

}  // namespace ringside
