#include "devices/own_device.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"
#include "devices/posted_work.h"

namespace ringside {

// What the queue keeps in a request that was popped.
class RequestAccess {
 public:
  explicit RequestAccess(Request& request) : request_(request) {}

  void Fill(ChainBuffers& buffers, uint16_t head, uint16_t position) {
    Empty();
    for (const Segment& each : buffers.readable()) {
      request_.readable_.emplace_back(each.host, each.length);
    }
    for (const Segment& each : buffers.writable()) {
      request_.writable_.emplace_back(each.host, each.length);
    }
    request_.head_ = head;
    request_.position_ = position;
  }
  // But for its storage.
  void Empty() {
    request_.readable_.clear();
    request_.writable_.clear();
    request_.head_ = Request::kNone;
  }
  uint16_t head() const { return request_.head_; }
  uint16_t position() const { return request_.position_; }

 private:
  Request& request_;
};

namespace {

// Per turn, so that a greedy guest cannot hog the thread.
constexpr uint64_t kTurnBytes = 64 << 10;
constexpr uint64_t kRingFeatures = kVirtioRingIndirectDesc | kVirtioRingEventIdx;
// Section 2.2: those of a kind of device.
constexpr uint64_t kDeviceFeatures = ((uint64_t{1} << 24) - 1) | ~((uint64_t{1} << 50) - 1);
// Section 4.1.2.1: PCI device IDs from 0x1040 to 0x107f.
constexpr uint16_t kMaxId = 0x3f;
constexpr uint32_t kMaxClass = 0xffffff;

template <typename Byte>
uint64_t Total(std::span<const std::span<Byte>> buffers) {
  uint64_t sum = 0;
  for (const std::span<Byte>& buffer : buffers) sum += buffer.size();
  return sum;
}

}  // namespace

// One at work on its I/O thread.
class OwnDevice::Worker final : public QueueWorker {
 public:
  Worker(Device& device, Queue& queue, const Parts& parts, const QueueSetup& setup,
         uint64_t features);
  Worker(Device& device, Queue& queue, const Parts& parts, const QueueWorker& before);
  ~Worker() override;

  void Run() override;
  // See DeviceQueue.
  bool Pop(Request& request);
  void Push(Request& request, uint32_t written);
  bool PutBack(Request& request);
  void Notify();
  void Fail(std::string_view why);

 private:
  struct Popped {
    DescriptorChain chain;
    RequestKind kind = RequestKind::kOther;
    uint64_t read = 0, room = 0;  // bytes that the device reads, and may write
  };

  void Recall() override;
  void Drains() override { Recall(); }
  bool HasShare();
  bool IsOut(const RequestAccess& request) const;

  Device& device_;
  Queue& own_queue_;
  ChainBuffers buffers_;        // of the chain at hand
  std::vector<Popped> popped_;  // by head
  // What it has popped in which turn of the thread.
  uint64_t turn_ = 0;
  uint16_t turn_requests_ = 0;
  uint64_t turn_bytes_ = 0;
};

// One over the device's life.
class OwnDevice::Queue final : public DeviceQueue {
 public:
  Queue(uint16_t index, IoThread& io_thread) : index_(index), work_(io_thread) {}

  uint16_t index() const override { return index_; }
  bool Pop(Request& request) override { return worker_ != nullptr && worker_->Pop(request); }
  void Push(Request& request, uint32_t written) override {
    if (worker_ != nullptr) worker_->Push(request, written);
  }
  bool PutBack(Request& request) override {
    return worker_ != nullptr && worker_->PutBack(request);
  }
  void Notify() override {
    if (worker_ != nullptr) worker_->Notify();
  }
  void Fail(std::string_view why) override {
    if (worker_ != nullptr) worker_->Fail(why);
  }
  void Post(std::function<void()> function) override { work_.Post(std::move(function)); }

  PostedWork& work() { return work_; }
  void Begin(Worker& worker) { worker_ = &worker; }
  // Another may have begun.
  void End(const Worker& worker) {
    if (worker_ == &worker) worker_ = nullptr;
  }

 private:
  const uint16_t index_;
  PostedWork work_;
  Worker* worker_ = nullptr;  // of the thread on which the work runs
};

OwnDevice::Worker::Worker(Device& device, Queue& queue, const Parts& parts, const QueueSetup& setup,
                          uint64_t features)
    : QueueWorker(parts, setup, features),
      device_(device),
      own_queue_(queue),
      popped_(this->queue().size()) {
  queue.Begin(*this);
}

OwnDevice::Worker::Worker(Device& device, Queue& queue, const Parts& parts,
                          const QueueWorker& before)
    : QueueWorker(parts, before),
      device_(device),
      own_queue_(queue),
      popped_(this->queue().size()) {
  queue.Begin(*this);
}

OwnDevice::Worker::~Worker() {
  own_queue_.End(*this);
}

void OwnDevice::Worker::Run() {
  device_.Run(own_queue_);
}

void OwnDevice::Worker::Recall() {
  device_.Recall(own_queue_);
}

// Whether this turn may take one more.
bool OwnDevice::Worker::HasShare() {
  const uint64_t turn = parts().io_thread.stats().turns.Get();
  if (std::exchange(turn_, turn) != turn) {
    turn_requests_ = 0;
    turn_bytes_ = 0;
  }
  return turn_requests_ < turn_requests() && turn_bytes_ < kTurnBytes;
}

bool OwnDevice::Worker::Pop(Request& request) {
  if (!takes() || queue().error() != nullptr || !HasShare()) return false;
  LatencyTrace* const trace = this->trace();
  if (trace != nullptr) trace->Seen();
  DescriptorChain chain;
  if (TakeChains(std::span(&chain, 1)) == 0 || !queue().Walk(chain, buffers_)) {
    // What was taken in good order is the driver's, also before a chain that was not.
    if (queue().error() != nullptr && queue().HasUnshown()) Show();
    ReportIfBroken();
    return false;
  }
  const uint16_t head = chain.head();
  RequestAccess(request).Fill(buffers_, head, queue().position());
  const uint64_t read = Total(request.readable());
  const uint64_t room = Total(request.writable());
  const RequestKind kind = room > read ? RequestKind::kRead : RequestKind::kWrite;
  if (trace != nullptr) {
    trace->Taken(head, kind, read + room);
    trace->SubmitNow(head);
  }
  popped_[head] = {std::move(chain), kind, read, room};
  ++turn_requests_;
  turn_bytes_ += read + room;
  Begins();
  return true;
}

// Whether the queue has popped it. An embedder may have given it one of another queue, or again.
bool OwnDevice::Worker::IsOut(const RequestAccess& request) const {
  return request.head() < popped_.size() && popped_[request.head()].chain.valid();
}

void OwnDevice::Worker::Push(Request& request, uint32_t written) {
  RequestAccess access(request);
  if (!IsOut(access)) return;
  auto [chain, kind, read, room] = std::move(popped_[access.head()]);
  const auto filled = static_cast<uint32_t>(std::min<uint64_t>(written, room));
  access.Empty();
  QueueStats& stats = parts().stats;
  (kind == RequestKind::kRead ? stats.reads : stats.writes).Add();
  stats.bytes_read.Add(filled);
  stats.bytes_written.Add(read);
  Ends();
  // The rings of a queue that is stopped are the driver's, those of a broken one are not to be
  // trusted.
  if (stopped() || queue().error() != nullptr) return TellIfIdle();
  Answer(std::move(chain), filled);
}

bool OwnDevice::Worker::PutBack(Request& request) {
  RequestAccess access(request);
  if (!IsOut(access) || access.position() != queue().position()) return false;
  queue().PutBack(std::move(popped_[access.head()].chain));
  access.Empty();
  Ends();
  if (!takes()) TellIfIdle();
  return true;
}

void OwnDevice::Worker::Notify() {
  if (stopped() || queue().error() != nullptr) return;
  if (queue().HasUnshown()) Show();
}

void OwnDevice::Worker::Fail(std::string_view why) {
  if (stopped() || queue().error() != nullptr) return;
  Notify();
  queue().Break("its device cannot go on");
  parts().events.NeedsReset(why);
}

absl::Status OwnDevice::Check(const Device& device) {
  if (device.id() < 1 || device.id() > kMaxId) {
    return BadInput("virtio device ID %d is out of range: there are 1 to %d", device.id(), kMaxId);
  }
  if (device.pci_class() > kMaxClass) {
    return BadInput("PCI class %#x is out of range: a class has 24 bits", device.pci_class());
  }
  if (const uint64_t others = device.features() & ~kDeviceFeatures; others != 0) {
    return BadInput("features %#x are not the device's to offer: it has bits 0 to 23 and 50 to 63",
                    others);
  }
  if (device.queue_count() < 1 || device.queue_count() > kMaxQueues) {
    return BadInput("%d queues are out of range: a device has 1 to %d", device.queue_count(),
                    kMaxQueues);
  }
  if (!std::has_single_bit(device.queue_size()) || device.queue_size() > Virtqueue::kMaxSize) {
    return BadInput("a queue size of %d is out of range: it is a power of two up to %d",
                    device.queue_size(), Virtqueue::kMaxSize);
  }
  return absl::OkStatus();
}

OwnDevice::OwnDevice(std::unique_ptr<Device> device, const GuestMemory& memory,
                     const std::vector<IoThread*>& io_threads, bool trace_latency)
    : QueuedDevice(memory, io_threads,
                   {.count = device->queue_count(),
                    .size = device->queue_size(),
                    .trace_latency = trace_latency}),
      device_(std::move(device)) {
  for (uint16_t i = 0; i < queue_count(); ++i) {
    own_queues_.push_back(std::make_unique<Queue>(i, io_thread(i)));
  }
}

OwnDevice::~OwnDevice() {
  // What was posted uses the device.
  for (const auto& queue : own_queues_) queue->work().Close();
  device_.reset();
}

void OwnDevice::Forget(IoThread& forgotten) {
  for (const auto& queue : own_queues_) {
    if (queue->work().RunsOn(forgotten)) queue->work().MoveTo(io_thread(queue->index()));
  }
}

uint64_t OwnDevice::features() const {
  return device_->features() | kRingFeatures;
}

void OwnDevice::ReadConfig(uint64_t offset, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});
  device_->ReadConfig(offset, data);
}

void OwnDevice::WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t) {
  device_->WriteConfig(offset, data);
}

std::unique_ptr<QueueWorker> OwnDevice::NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                                  const QueueSetup& setup, uint64_t features) {
  own_queues_[queue]->work().MoveTo(parts.io_thread);
  return std::make_unique<Worker>(*device_, *own_queues_[queue], parts, setup, features);
}

std::unique_ptr<QueueWorker> OwnDevice::NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                                   QueueWorker& before) {
  own_queues_[queue]->work().MoveTo(parts.io_thread);
  return std::make_unique<Worker>(*device_, *own_queues_[queue], parts, before);
}

}  // namespace ringside
