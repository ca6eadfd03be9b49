#include "devices/virtio_rng.h"

#include <algorithm>

#include "base/random.h"
#include "devices/answering_queue.h"

namespace ringside {
namespace {

class RngQueue final : public AnsweringQueue {
 public:
  using AnsweringQueue::AnsweringQueue;

 private:
  uint32_t Serve(ChainBuffers& buffers) override {
    uint32_t written = 0;
    for (const Segment& segment : buffers.writable()) {
      const uint32_t size = std::min(segment.length, VirtioRng::kMaxChainBytes - written);
      if (size == 0) break;
      if (!FillRandom({segment.host, size}).ok()) {
        queue().Break("the host gives no random numbers");
        return 0;
      }
      written += size;
    }
    // Section 5.4.6.2: at least one byte.
    if (written == 0) queue().Break("a request for random numbers has no room for them");
    return written;
  }
};

}  // namespace

std::unique_ptr<QueueWorker> VirtioRng::NewWorker(uint16_t, const QueueWorker::Parts& parts,
                                                  const QueueSetup& setup, uint64_t features) {
  return std::make_unique<RngQueue>(parts, setup, features);
}

std::unique_ptr<QueueWorker> VirtioRng::NextWorker(uint16_t, const QueueWorker::Parts& parts,
                                                   QueueWorker& before) {
  return std::make_unique<RngQueue>(parts, before);
}

// It has no configuration (section 5.4.4).
void VirtioRng::ReadConfig(uint64_t, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});
}

}  // namespace ringside
