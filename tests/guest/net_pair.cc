// See net_pair.h.

#include "net_pair.h"

#include <cstring>

#include "allocator.h"

namespace guest {
namespace {

constexpr uint16_t kGathered = 0xffff;  // slot of a frame whose buffers have been given back

}  // namespace

bool NetPair::Start(VirtioTransport& transport, uint16_t number, uint32_t processor,
                    const NetOptions& options) {
  if (gathered_ == nullptr) gathered_ = AllocateArray<uint8_t>(kMaxFrame);
  const QueuePairOptions pair = {
      .queue_size = options.queue_size,
      .receive_bytes = options.small_buffers ? kSmallBufferBytes : kBufferBytes,
      .transmit_bytes = kBufferBytes,
      .wait = options.wait,
      .buffers = options.buffers};
  return QueuePair::Start(transport, static_cast<uint16_t>(2 * number), processor, pair);
}

bool NetPair::TakeReceived(NetFrame& frame) {
  uint32_t length = 0;
  if (!TakeBuffer(frame.slot, length)) return false;
  const uint64_t buffer = ReceiveBuffer(frame.slot);
  const uint16_t buffers = reinterpret_cast<const NetHeader*>(buffer)->buffers;
  if (length < sizeof(NetHeader) || buffers == 0) {
    AddFault();
    length = sizeof(NetHeader);
  }
  frame.data = reinterpret_cast<const uint8_t*>(buffer + sizeof(NetHeader));
  frame.length = length - sizeof(NetHeader);
  return buffers <= 1 || Gather(frame, length, buffers);
}

// The frame's other buffers are there: the device shows them with its first (section 5.1.6.4).
bool NetPair::Gather(NetFrame& frame, uint32_t first_length, uint16_t buffers) {
  uint64_t length = first_length - sizeof(NetHeader);
  std::memcpy(gathered_, frame.data, length);
  GiveBack(frame);
  for (uint16_t i = 1; i < buffers; ++i) {
    uint16_t slot = 0;
    uint32_t more = 0;
    if (!TakeBuffer(slot, more) || length + more > kMaxFrame) {
      AddFault();
      return false;
    }
    std::memcpy(gathered_ + length, reinterpret_cast<const void*>(ReceiveBuffer(slot)), more);
    length += more;
    GiveBuffer(slot);
  }
  frame = {.data = gathered_, .length = length, .slot = kGathered};
  return true;
}

void NetPair::GiveBack(const NetFrame& frame) {
  if (frame.slot != kGathered) GiveBuffer(frame.slot);
}

}  // namespace guest
