// The guest's memory as a device sees it: regions of guest physical addresses, each a host mapping
// that knows its descriptor and offset, so that another process or a DMA engine can be given it.
//
// Threads: its regions are immutable, so any thread may look up addresses; the bytes themselves are
// shared with the guest, which may change them at any time: read once into a local, then check.
// Ownership: owns mappings and descriptor; must outlive all that uses its pointers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/memory_region.h"
#include "base/userfault.h"
#include "devices/write_log.h"
#include "ringside/config.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RINGSIDE_THREAD_SANITIZER
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif
#endif

namespace ringside {

// A copy of what the guest has there now. What is checked is what is used: the compiler may not
// read the original a second time.
template <typename T>
T ReadOnce(const std::byte* host) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, host, sizeof value);
  if constexpr (std::is_integral_v<T>) {
    asm volatile("" : "+r"(value));
  } else {
    asm volatile("" : "+m"(value));
  }
  return value;
}

class GuestMemory {
 public:
  struct Range {
    uint64_t guest_address;
    uint64_t size;
  };
  // Ranges are page-aligned, ascending and do not overlap. Memory is zero and takes no host memory
  // until touched, and then of the host's NUMA nodes `nodes`, as BindMemory of base/host_nodes.h.
  // HugePages::k2M: sizes are multiples of theirs, and all pages are reserved here, or with nodes
  // taken; what there are too few of is an error.
  static absl::StatusOr<std::unique_ptr<GuestMemory>> Create(
      std::span<const Range> ranges, std::span<const int> nodes = {},
      HugePages huge_pages = HugePages::kOff);
  // The same, over a file that has the ranges one behind the other: what the guest does not change
  // is the file's page, shared with all who have mapped it, and what it changes is its own. The
  // file outlives this, and its content stays as it is. Nothing that shares or pins memory may be
  // given it. Of a file of huge pages, what might be changed is reserved as above.
  static absl::StatusOr<std::unique_ptr<GuestMemory>> CopyOnWrite(const UniqueFd& file,
                                                                  std::span<const Range> ranges,
                                                                  std::span<const int> nodes = {});
  // The same, but that another process gives each page when it is first touched: the one that is
  // handed userfault()'s descriptor. Until then whoever touches memory waits.
  static absl::StatusOr<std::unique_ptr<GuestMemory>> OnDemand(std::span<const Range> ranges,
                                                               std::span<const int> nodes = {});
  ~GuestMemory();
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;

  std::span<const MemoryRegion> regions() const { return regions_; }
  // Whether a change is seen through the regions' descriptor.
  bool is_shared() const { return is_shared_.load(std::memory_order_relaxed); }
  // Of shared memory that nobody reads or writes meanwhile: from then on what changes is this
  // mapping's own, as if it had been made by CopyOnWrite, and what the descriptor shows stays,
  // sealed. Huge pages are reserved again. On an error all is as before.
  absl::Status Freeze();
  // Null: no other process gives it.
  const Userfault* userfault() const { return userfault_.has_value() ? &*userfault_ : nullptr; }
  // Of memory on demand: as Userfault::Drop, of all of it.
  bool Drop() const;

  // Whether what devices write is noted from now on; what was noted before is forgotten. While all
  // of them rest: each queue's way to its rest and back orders this with what it does.
  void NoteWrites(bool on);
  // Null: nothing is noted. It lives as long as the memory.
  WriteLog* write_log() const { return write_log_.load(std::memory_order_relaxed); }
  // A device says so before it, or the host for it, writes there.
  void Writes(const std::byte* host, uint64_t length) const {
    if (WriteLog* const log = write_log(); log != nullptr) [[unlikely]]
      log->Note(host, length);
  }

  // Whoever shows the guest something, and whoever looks at what the guest has written after it,
  // say so: the guest uses the same memory with devices on several threads, one after the other,
  // and ThreadSanitizer does not see the guest between them. Nothing in other builds.
  void ShownToGuest() const {
#ifdef RINGSIDE_THREAD_SANITIZER
    __tsan_release(const_cast<GuestMemory*>(this));
#endif
  }
  void HeardFromGuest() const {
#ifdef RINGSIDE_THREAD_SANITIZER
    __tsan_acquire(const_cast<GuestMemory*>(this));
#endif
  }

  // The host's view of [address, address + length), or null if any byte of it is not memory of one
  // region. Guest-controlled arguments are welcome: nothing here overflows.
  std::byte* At(uint64_t address, uint64_t length) const {
    const MemoryRegion* region = Region(address, length);
    return region == nullptr ? nullptr : region->At(address);
  }
  // The region that holds all of it, or null.
  const MemoryRegion* Region(uint64_t address, uint64_t length) const {
    for (const MemoryRegion& region : regions_) {
      if (region.Contains(address, length)) return &region;
    }
    return nullptr;
  }

 private:
  GuestMemory(bool is_shared, std::span<const int> nodes, HugePages huge_pages)
      : is_shared_(is_shared), nodes_(nodes.begin(), nodes.end()), huge_pages_(huge_pages) {}
  // Of a file, or where there is none, of nothing but zeroes.
  absl::Status Map(const UniqueFd& file, std::span<const Range> ranges);
  absl::StatusOr<void*> Map(int fd, uint64_t offset, uint64_t size, bool is_shared) const;
  // Asks the kernel for the pages that the mapping is to have.
  absl::Status ChoosePages(void* host, uint64_t size) const;
  // All regions, in the place of what is mapped there.
  absl::Status MapAgain(bool is_shared);

  UniqueFd fd_;  // none: another's, or no file
  std::optional<Userfault> userfault_;
  std::atomic<bool> is_shared_;  // atomic: Freeze does not wait for those who ask
  const std::vector<int> nodes_;
  const HugePages huge_pages_;
  uint64_t size_ = 0;  // bytes of all regions
  std::vector<MemoryRegion> regions_;
  std::unique_ptr<WriteLog> writes_;  // made when it is first asked for
  std::atomic<WriteLog*> write_log_ = nullptr;
};

}  // namespace ringside
