// A vfio-user device with its server, in a directory of the test's own.
#pragma once

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "base/status.h"
#include "tests/support/directories.h"
#include "tests/support/vfio/scripted_vfio_user_server.h"
#include "tests/support/wait.h"
#include "vfio/vfio_user_device.h"

namespace ringside::testing {

// Memory with a descriptor.
struct SharedMemory {
  explicit SharedMemory(size_t bytes)
      : fd(Must(memfd_create("memory", MFD_CLOEXEC), "memfd_create")), size(bytes) {
    Must(ftruncate(fd.get(), static_cast<off_t>(bytes)), "ftruncate");
    void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (pages == MAP_FAILED) std::abort();
    data = static_cast<std::byte*>(pages);
  }
  ~SharedMemory() { munmap(data, size); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  DmaMapping At(uint64_t iova) const {
    return {.host = data, .size = size, .iova = iova, .fd = fd.get(), .fd_offset = 0};
  }

  UniqueFd fd;
  size_t size;
  std::byte* data;
};

class VfioUserTest : public ::testing::Test {
 protected:
  void Serve(ScriptedVfioUserServer::Script script = {}) {
    server_ = std::make_unique<ScriptedVfioUserServer>(path_, std::move(script));
  }
  absl::Status Open(absl::Duration timeout = kWaitLimit) {
    auto device = OpenVfioUserDevice(path_, {.timeout = timeout});
    if (!device.ok()) return device.status();
    device_ = *std::move(device);
    return absl::OkStatus();
  }
  bool IsGone(absl::Duration limit = absl::ZeroDuration()) const {
    return WaitForFd(device_->gone_fd(), POLLIN, limit);
  }
  // As many as there are, all set.
  std::vector<EventFd> SetVectors(uint32_t count) {
    std::vector<EventFd> events;
    std::vector<int> fds;
    for (uint32_t i = 0; i < count; ++i) {
      events.push_back(*EventFd::Create());
      fds.push_back(events.back().fd());
    }
    const absl::Status status = device_->SetVectors(fds);
    EXPECT_TRUE(status.ok()) << status;
    return events;
  }

  TempDirectory directory_;
  const std::string path_ = directory_ / "socket";
  std::unique_ptr<ScriptedVfioUserServer> server_;
  std::unique_ptr<PciDevice> device_;
};

}  // namespace ringside::testing
