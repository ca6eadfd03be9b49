// See blk_queue.h.

#include "blk_queue.h"

#include <algorithm>
#include <utility>

#include "allocator.h"
#include "console.h"
#include "deadline.h"

namespace guest {
namespace {

template <typename T>
uint64_t AddressOf(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

void BlkRequest::Set(BlkType type, uint64_t sector) {
  header = {.type = type, .reserved = 0, .sector = sector};
  status = kBlkNone;
  used_length = 0;
  data_count = 0;
}

void BlkRequest::AddData(uint64_t address, uint32_t length) {
  const bool from_device = header.type == kBlkRead || header.type == kBlkGetId;
  const Access access = from_device ? Access::kDeviceWrites : Access::kDeviceReads;
  if (data_count < kMaxData) data[data_count++] = {address, length, access};
}

bool BlkQueue::Start(VirtioTransport& transport, uint16_t number, uint32_t processor,
                     const BlkOptions& options) {
  transport_ = &transport;
  number_ = number;
  wait_ = options.wait;
  const uint16_t size = std::min(options.queue_size, transport.MaxQueueSize(number));
  if (size == 0) return Expect("virtio: the queue is there", 1, 0);
  rings_.Init(size, (transport.features() & kFeatureEventIdx) != 0,
              (transport.features() & kFeatureIndirect) != 0);
  if (by_head_ == nullptr) by_head_ = AllocateArray<BlkRequest*>(Virtqueue::kMaxSize);
  std::fill_n(by_head_, Virtqueue::kMaxSize, nullptr);
  in_flight_ = 0;
  interrupt_due_ = false;
  if (!transport.EnableQueue(number, rings_, processor)) return false;
  interrupts_ = &transport.InterruptCounter(number);
  FindNotify();
  return true;
}

void BlkQueue::SetWait(Wait wait) {
  wait_ = wait;
  rings_.SuppressInterrupts();
}

bool BlkQueue::Submit(BlkRequest& request) {
  std::array<Buffer, Virtqueue::kMaxBuffers> chain;
  size_t count = 0;
  chain[count++] = {AddressOf(&request.header), sizeof request.header, Access::kDeviceReads};
  for (size_t i = 0; i < request.data_count; ++i) chain[count++] = request.data[i];
  chain[count++] = {AddressOf(&request.status), 1, Access::kDeviceWrites};
  const int head = rings_.Add({chain.data(), count});
  if (head < 0) return false;
  by_head_[head] = &request;
  if (wait_ == Wait::kInterrupt && in_flight_ == 0) {
    // Asked for before the device can see the request: this interrupt must come.
    interrupts_seen_ = interrupts();
    rings_.RequestInterrupt();
    interrupt_due_ = true;
  }
  ++in_flight_;
  rings_.Publish();
  return true;
}

void BlkQueue::Kick() {
  if (!rings_.KickWanted()) return;
  ++kicks_;
  notify_.Kick();
}

BlkRequest* BlkQueue::NextIfAny() {
  Virtqueue::Used used;
  if (!rings_.TakeUsed(used) || used.head >= rings_.size()) return nullptr;
  BlkRequest* const request = std::exchange(by_head_[used.head], nullptr);
  if (request == nullptr) return nullptr;
  --in_flight_;
  request->used_length = used.length;
  return request;
}

bool BlkQueue::SpinForInterrupt() {
  return SpinUntil([this] { return interrupts() != interrupts_seen_; }) ||
         Expect("disk: an interrupt came", 1, 0);
}

// Looks at the ring only after an interrupt, so that a lost one shows.
bool BlkQueue::WaitForInterrupt() {
  if (interrupt_due_) {
    interrupt_due_ = false;
    return SpinForInterrupt();
  }
  interrupts_seen_ = interrupts();
  rings_.RequestInterrupt();
  return rings_.HasUsed() || SpinForInterrupt();
}

BlkRequest* BlkQueue::Next() {
  if (interrupt_due_ && !WaitForInterrupt()) return nullptr;
  const Deadline deadline(kAllPatience);
  for (;;) {
    if (BlkRequest* const request = NextIfAny()) return request;
    if (deadline.Passed()) {
      Expect("disk: a completion came", 1, 0);
      return nullptr;
    }
    if (wait_ == Wait::kPolled) {
      Pause();
    } else if (!WaitForInterrupt()) {
      return nullptr;
    }
  }
}

BlkStatus BlkQueue::Do(BlkRequest& request) {
  if (!Submit(request)) return kBlkNone;
  Kick();
  const BlkRequest* const done = Next();
  if (done == nullptr || !Expect("disk: the request that completed", AddressOf(&request),
                                 reinterpret_cast<uint64_t>(done))) {
    return kBlkNone;
  }
  return static_cast<BlkStatus>(request.status);
}

}  // namespace guest
