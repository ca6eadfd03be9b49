// Hears from the kernel that a block device of the host has changed, as when it has grown: by its
// uevents, which any user of the host may listen to. In a network namespace of their own there are
// none, and nobody is told.
//
// Threads: the function is called on the I/O thread; the end on any but that.
// Ownership: the I/O thread outlives it.
// Spec: Documentation/core-api/kobject.rst; netlink(7) under NETLINK_KOBJECT_UEVENT.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "poll/io_thread.h"

namespace ringside {

// The number (dev_t) of the block device that this uevent says has changed, if it says that.
std::optional<uint64_t> ChangedBlockDevice(std::string_view uevent);

class HostDeviceWatch {
 public:
  // `changed` gets the device's number; 0: it may be any, as there was more to hear than could be.
  static absl::StatusOr<std::unique_ptr<HostDeviceWatch>> Create(
      IoThread& io_thread, std::function<void(uint64_t)> changed);
  // The function is not being called, and will not be.
  ~HostDeviceWatch();
  HostDeviceWatch(const HostDeviceWatch&) = delete;
  HostDeviceWatch& operator=(const HostDeviceWatch&) = delete;

 private:
  class Watch final : public FdWatch {
   public:
    Watch(int fd, HostDeviceWatch& owner) : FdWatch(fd, EPOLLIN), owner_(owner) {}
    void Ready() override { owner_.Hear(); }

   private:
    HostDeviceWatch& owner_;
  };

  HostDeviceWatch(IoThread& io_thread, UniqueFd socket, std::function<void(uint64_t)> changed);
  void Arm() { io_thread_.Arm(watch_); }
  void Hear();

  IoThread& io_thread_;
  const UniqueFd socket_;
  const std::function<void(uint64_t)> changed_;
  Watch watch_;
  TaskTo<HostDeviceWatch, &HostDeviceWatch::Arm> arm_{*this};
};

}  // namespace ringside
