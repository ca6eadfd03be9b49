// Memory whose pages another process gives, each when it is first touched (userfaultfd(2)). Whoever
// touches a page that is not there yet, in this process or in the kernel on its behalf, waits until
// that process has given it. Should it never do so, Drop lets all of them go.
//
// Threads: any. Ownership: outlives the mappings that are registered: where the last descriptor is
// closed before, the kernel takes missing pages for zeroes without a word.
// Spec: Linux Documentation/admin-guide/mm/userfaultfd.rst.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace ringside {

class Userfault {
 public:
  // PermissionDenied says what to allow this user. Of the events beside page faults those of
  // discarded pages are told (UFFD_FEATURE_EVENT_REMOVE): whoever discards some waits until the
  // other process has read that.
  static absl::StatusOr<Userfault> Create();

  // For the other process. It does not block. Whoever has it can have pages of any mapping of this
  // process given and kept back, not only of those that are registered here.
  int fd() const { return fd_.get(); }
  // A mapping that is anonymous and private, and that nobody has touched.
  absl::Status Register(std::span<std::byte> mapping) const;
  // No page of the mapping is there any more, nor will one be: who waits for one is let go. It is
  // then as a file that has become shorter: the kernel's accesses fail with EFAULT, and the
  // process's own with SIGBUS (base/mapping_guard.h). False: the kernel has no memory for that; try
  // again.
  bool Drop(std::span<std::byte> mapping) const;

 private:
  Userfault(UniqueFd fd, UniqueFd nothing) : fd_(std::move(fd)), nothing_(std::move(nothing)) {}

  UniqueFd fd_;
  UniqueFd nothing_;  // a file of no length, to be mapped where pages are dropped
};

}  // namespace ringside
