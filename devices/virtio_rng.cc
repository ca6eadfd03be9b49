#include "devices/virtio_rng.h"

#include <algorithm>
#include <cerrno>
#include <sys/random.h>

#include "base/status.h"

namespace ringside {
namespace {

// Once a turn has given out this much, the rest is for the next.
constexpr uint64_t kTurnBytes = VirtioRng::kMaxChainBytes;

// Whether all of it was filled. The generator is seeded long before anybody starts a machine, so
// the call does not block.
bool FillRandom(std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t got = getrandom(data, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

class VirtioRng::Queue final : public Source {
 public:
  Queue(const GuestMemory& memory, const QueueSetup& setup, uint64_t features, VirtioEvents& events)
      : Source(setup.kick->fd()),
        call_(*setup.call),
        events_(events),
        queue_(memory, RingLayout(setup, features)) {
    ReportIfBroken();
  }

  VirtioEvents& events() { return events_; }

  bool HasWork() override { return queue_.HasWork(); }

  void Run() override {
    uint64_t given = 0;
    for (uint16_t i = 0; i < queue_.size() && given < kTurnBytes; ++i) {
      DescriptorChain chain;
      if (queue_.Take(std::span(&chain, 1)) == 0 || !queue_.Walk(chain, buffers_)) break;
      const uint32_t written = Fill();
      if (written == 0) break;
      queue_.Return(std::move(chain), written);
      given += written;
    }
    // What was taken in good order is the driver's, also before a chain that was not.
    if (queue_.Publish()) call_.Signal();
    ReportIfBroken();
  }

  void EnableNotify() override { queue_.EnableNotify(); }
  void DisableNotify() override { queue_.DisableNotify(); }

 private:
  // Bytes written to the chain at hand. 0: the queue is broken now.
  uint32_t Fill() {
    uint32_t written = 0;
    for (const Segment& segment : buffers_.writable()) {
      const uint32_t size = std::min(segment.length, kMaxChainBytes - written);
      if (size == 0) break;
      if (!FillRandom(segment.host, size)) {
        queue_.Break("the host gives no random numbers");
        return 0;
      }
      written += size;
    }
    // Section 5.4.6.2: at least one byte.
    if (written == 0) queue_.Break("a request for random numbers has no room for them");
    return written;
  }

  // Once: a broken queue has no work, so nobody comes here again.
  void ReportIfBroken() {
    if (queue_.error() != nullptr) events_.NeedsReset(queue_.error());
  }

  const InterruptLine& call_;
  VirtioEvents& events_;
  Virtqueue queue_;
  ChainBuffers buffers_;  // of the chain at hand
};

VirtioRng::VirtioRng(const GuestMemory& memory, IoThread& io_thread)
    : memory_(memory), io_thread_(io_thread) {}

VirtioRng::~VirtioRng() = default;

// It has no configuration (section 5.4.4).
void VirtioRng::ReadConfig(uint64_t, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});
}

void VirtioRng::Activate(uint64_t features, std::span<const QueueSetup> queues,
                         VirtioEvents& events) {
  if (queues.empty()) return;  // a driver that wants nothing of it
  queue_ = std::make_unique<Queue>(memory_, queues[0], features, events);
  io_thread_.Post(start_);
}

void VirtioRng::Reset(Task& done) {
  reset_done_ = &done;
  io_thread_.Post(stop_);
}

void VirtioRng::Start() {
  const absl::Status status = io_thread_.Attach(*queue_, Phase::kSubmit);
  attached_ = status.ok();
  if (!attached_) queue_->events().NeedsReset(Message(status));
}

void VirtioRng::Stop() {
  if (attached_) io_thread_.Detach(*queue_);
  attached_ = false;
  queue_.reset();
  reset_done_->Run();  // the device may be activated, or gone, from here on
}

}  // namespace ringside
