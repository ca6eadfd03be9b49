// Guards the process against a file that it has mapped: a page that the file no longer gives, as it
// was made shorter or its storage fails, is a page of zeroes where it is touched, and whoever made
// the guard is told. Without one the kernel ends the process (SIGBUS; mmap(2), Errors).
//
// Pages are replaced one by one, each as the process touches it. What the kernel itself is to read
// or write at the others goes on failing with EFAULT, so that few zeroes get to a disk in the place
// of a guest's data: those that are copied on their way (O_DIRECT and memory at odd addresses), and
// those of pages that were touched.
//
// The first guard of a process installs a handler of SIGBUS, which stays. What is in no guarded
// mapping goes on to the handler that was there before; whoever installs one later hands on what is
// not his. A thread that touches the mapping must not have blocked the signal: FaultsAllowed.
//
// Threads: any. Ownership: the mapping outlives its guard, and what is told outlives both the guard
// and those who touch the mapping.
#pragma once

#include <csignal>
#include <cstddef>
#include <span>

#include "absl/status/statusor.h"

namespace ringside {

struct GuardedMapping;

class MappingGuard {
 public:
  // Called in the handler, on the thread that has touched a page: it may do what is
  // async-signal-safe (signal-safety(7)).
  using Told = void (*)(void* context);

  static absl::StatusOr<MappingGuard> Of(std::span<std::byte> mapping, Told told, void* context);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&&) = delete;
  ~MappingGuard();

 private:
  explicit MappingGuard(GuardedMapping& mapping) : mapping_(&mapping) {}

  GuardedMapping* mapping_;  // null: moved from
};

// Lets the calling thread, which may have blocked all signals, see the faults of its own.
class FaultsAllowed {
 public:
  FaultsAllowed();
  ~FaultsAllowed();
  FaultsAllowed(const FaultsAllowed&) = delete;
  FaultsAllowed& operator=(const FaultsAllowed&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ringside
