// What the device mapper says of one of its devices: the tables and states that `dmsetup table` and
// `dmsetup status` print.
//
// Threads: any. Spec: linux/dm-ioctl.h; Documentation/admin-guide/device-mapper/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace ringside {

struct DmTarget {
  std::string type;      // "linear", "thin", "crypt"
  uint64_t sectors = 0;  // of 512 bytes
  std::string table;     // its parameters
  std::string status;
};

// Nothing: it may not be asked (who is not root), or there is no such device.
std::optional<std::vector<DmTarget>> ReadDmTargets(dev_t device);

// Of a target of type thin-pool.
struct ThinPool {
  uint64_t used_bytes = 0;
  uint64_t total_bytes = 0;
  double used_metadata = 0;      // the share of it
  bool fails_when_full = false;  // at once; else after a minute of waiting
  bool is_writable = false;      // it is not out of space, nor read-only
};
// Nothing: it is not written as the kernel writes it.
std::optional<ThinPool> ParseThinPool(const DmTarget& target);

// Bytes of a thin volume that have no place in the pool yet.
std::optional<uint64_t> UnmappedBytes(const DmTarget& thin);

}  // namespace ringside
