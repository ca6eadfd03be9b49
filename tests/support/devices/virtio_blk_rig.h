// A queue of a virtio-blk device as its driver has it.
#pragma once

#include <atomic>
#include <gtest/gtest.h>
#include <string_view>

#include "base/fd.h"
#include "devices/virtio_device.h"
#include "tests/support/devices/blk_driver.h"
#include "tests/support/wait.h"

namespace ringside::testing {

class IgnoredVirtioEvents final : public VirtioEvents {
 public:
  void ConfigChanged() override {}
  void NeedsReset(std::string_view) override {}
};

class QueueRig {
 public:
  QueueRig(const GuestMemory& memory, const BlkDriver::Options& options)
      : driver(memory, options), kick(*EventFd::Create()), call(*EventFd::Create()) {
    line_.Connect(&call);
  }
  QueueSetup Setup(uint16_t index) { return driver.queue().Setup(index, kick, line_); }
  FakeDriver& queue() { return driver.queue(); }

  void Publish() {
    queue().Publish();
    if (queue().NeedsKick()) kick.Signal();
  }
  // The next used element, which comes.
  UsedElement Wait() {
    if (!SpinUntil([&] { return queue().HasUsed(); })) {
      ADD_FAILURE() << "a request was never answered";
      return {.head = 0xffffffff};
    }
    return *queue().TakeUsed();
  }
  // Of a request that was just added: its status.
  int Run(uint16_t head) {
    Publish();
    const UsedElement used = Wait();
    EXPECT_EQ(used.head, head);
    written = used.written;
    return used.head == head ? driver.status(head) : -1;
  }

  BlkDriver driver;
  EventFd kick;
  EventFd call;
  uint32_t written = 0;  // by the last Run

 private:
  std::atomic<uint8_t> isr_{0};
  InterruptLine line_{isr_, 1};
};

}  // namespace ringside::testing
