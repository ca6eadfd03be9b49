// What PID 1 does for a guest that has nothing else for it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/unique_fd.h"

namespace ringside {

// Mounts /proc, /sys, /dev and /dev/pts where they are missing. What fails is said, and is no
// reason not to go on.
void MountBasics();

// The ACPI power button: an input device. It appears once its driver is loaded, so it is looked for
// each second of the first minute.
class GuestPowerButton {
 public:
  // Without `is_wanted` there is none.
  explicit GuestPowerButton(bool is_wanted);

  int fd() const { return fd_.get(); }
  bool WasPressed(int64_t now_ns);
  std::optional<int64_t> deadline_ns() const { return look_at_ns_; }

 private:
  void Look(int64_t now_ns);

  UniqueFd fd_;
  std::optional<int64_t> look_at_ns_;
  int looks_ = 0;
};

}  // namespace ringside
