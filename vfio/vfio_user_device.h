// A PCI device that another process offers through a Unix socket: vfio-user, as SPDK's NVMe target,
// libvfio-user and QEMU speak it.
//
// Registers are messages, BARs are the server's memory where it offers that (MapBar), DMA is our
// memory, which the server maps by its descriptor, and an interrupt is an eventfd that the server
// writes. A thread of the device's own reads the socket.
//
// Threads and ownership: as PciDevice; no call is answered by the thread that makes it, so that any
// of them takes up to the time-out, but MaskVector and UnmaskVector, which never wait. SetVectors
// takes -1 for a vector that nobody uses; only when every other is masked does a server that looks
// at the MSI-X enable bit stop to write eventfds.
//
// The server is trusted with the memory that is mapped for it, which nothing can take back from it
// but its end, and with the length of files behind its BARs that cannot be sealed
// (vfio_user_bars.h). It is not trusted to answer, nor with what it answers: a server that breaks
// the protocol counts as gone. Each answer has a time-out, and what takes many has another for all
// of them: kVfioUserLimit.
//
// A server that is gone makes gone_fd readable, and Reset tries once to connect to another at the
// same path. That has to offer the same device: identifiers, class, BARs, vectors. It is given the
// mappings and the vectors, BARs come back to the addresses they had, and then gone_fd is quiet
// again.
//
// Errors: as PciDevice.
// Spec: as vfio_user_protocol.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "vfio/pci_device.h"

namespace ringside {

inline constexpr absl::Duration kVfioUserTimeout = absl::Seconds(5);
// For opening a device, and for all of its vectors: many answers.
inline constexpr absl::Duration kVfioUserLimit = absl::Seconds(15);

struct VfioUserOptions {
  // For the answer to one command.
  absl::Duration timeout = kVfioUserTimeout;
  absl::Duration limit = kVfioUserLimit;
  // Hears why a server is gone. Without {} gcc does not take {} for all of this: the constructor is
  // explicit.
  Logger log{};  // NOLINT(readability-redundant-member-init)
};

// `path`: of the socket, or of a directory with a socket `cntrl` in it, as SPDK makes them.
absl::StatusOr<std::unique_ptr<PciDevice>> OpenVfioUserDevice(const std::string& path,
                                                              const VfioUserOptions& options = {});

}  // namespace ringside
