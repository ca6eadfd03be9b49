#include "devices/virtio_rng.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/random.h"
#include "devices/answering_queue.h"

namespace ringside {
namespace {

class RngQueue final : public AnsweringQueue {
 public:
  using AnsweringQueue::AnsweringQueue;

 private:
  uint32_t Serve(ChainBuffers& buffers) override {
    const auto total = static_cast<uint32_t>(
        std::min<uint64_t>(TotalLength(buffers.writable()), VirtioRng::kMaxChainBytes));
    uint32_t written = 0;
    std::span<const std::byte> left;  // of the pool
    for (const Segment& segment : buffers.writable()) {
      std::span room(segment.host, segment.length);
      while (!room.empty() && written < total) {
        if (left.empty()) {
          const auto next = std::span(pool_).first(std::min(kPool, total - written));
          if (!FillRandom(next).ok()) {
            queue().Break("the host gives no random numbers");
            return 0;
          }
          left = next;
        }
        const size_t size = std::min(room.size(), left.size());
        std::memcpy(room.data(), left.data(), size);
        room = room.subspan(size);
        left = left.subspan(size);
        written += static_cast<uint32_t>(size);
      }
    }
    explicit_bzero(pool_.data(), kPool);  // they are the guest's alone
    // Section 5.4.6.2: at least one byte.
    if (written == 0) queue().Break("a request for random numbers has no room for them");
    return written;
  }

  // The kernel is asked for so many bytes at once, however many buffers a guest makes of them.
  static constexpr uint32_t kPool = 4096;
  std::array<std::byte, kPool> pool_;
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
