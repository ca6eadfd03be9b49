// Hostile drivers of a vsock, as hostile.h has them of disks: each behaviour runs against a vsock
// that is up; whatever it does, the vsock must work again after a reset. To show that, a program of
// the host echoes what comes to kVsockMirrorPort (vsock_guest.py).

#ifndef RINGSIDE_TESTS_GUEST_HOSTILE_VSOCK_H_
#define RINGSIDE_TESTS_GUEST_HOSTILE_VSOCK_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "random.h"
#include "virtio_vsock.h"

namespace guest {

class HostileVsock {
 public:
  HostileVsock(VirtioVsock& vsock, uint64_t seed) : vsock_(vsock), random_(seed) {}

  VirtioVsock& vsock() { return vsock_; }
  Random& random() { return random_; }
  VsockPair& pair() { return vsock_.pair(); }
  bool NeedsReset() { return vsock_.transport().NeedsReset(); }

  // As a driver has them: an empty packet out, at any slot that is free. Null if none is.
  VsockHeader* Next(uint16_t& slot);
  // Takes what has come, of which the ports that the host uses are remembered, and gives the
  // buffers back.
  void Drain();
  // One of the ports that were seen, or of a few others.
  uint32_t AnyPort();
  VsockHeader AnyHeader();

 private:
  VirtioVsock& vsock_;
  uint32_t ports_[16] = {};
  size_t next_port_ = 0;
  uint16_t next_slot_ = 0;
  uint16_t under_way_ = 0;
  Random random_;
};

struct VsockBehaviour {
  std::string_view name;
  // False after a FAIL line.
  bool (*run)(HostileVsock& target);
};

std::span<const VsockBehaviour> VsockBehaviours();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_HOSTILE_VSOCK_H_
