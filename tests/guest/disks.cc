// See disks.h.

#include "disks.h"

#include <array>

#include "virtio_search.h"

namespace guest {
namespace {

constexpr size_t kMaxDisks = 8;

constinit std::array<VirtioBlk, kMaxDisks> disks;

}  // namespace

std::span<VirtioBlk> Disks() {
  static bool searched = false;
  static size_t count = 0;
  if (!searched) count = OpenAll<VirtioBlk>(VirtioId::kBlock, disks);
  searched = true;
  return {disks.data(), count};
}

}  // namespace guest
