#include "benchmarks/ceiling_device.h"

#include <array>
#include <bit>
#include <cstring>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/thread.h"

namespace ringside {
namespace {

constexpr uint64_t kMultiQueue = uint64_t{1} << 12;  // section 5.2.3
constexpr size_t kConfigSize = 36;                   // up to num_queues (section 5.2.4)
constexpr size_t kCapacityOffset = 0;
constexpr size_t kQueuesOffset = 34;
constexpr uint64_t kMaxMemory = 1 << 30;  // what one registered buffer may have

}  // namespace

absl::StatusOr<std::unique_ptr<CeilingDevice>> CeilingDevice::Create(const GuestMemory& memory,
                                                                     const Config& config,
                                                                     CeilingCounts& counts) {
  const MemoryRegion* region = memory.Region(0, 1);
  if (memory.regions().size() != 1 || region == nullptr || region->size > kMaxMemory) {
    return BadInput("the ceiling serves guests of at most 1G of memory; give --memory 1G or less");
  }
  std::unique_ptr<CeilingDevice> device(new CeilingDevice(*region, config, counts));
  // An io_uring belongs to the thread that creates it.
  absl::Status status;
  Event ready;
  auto body = [self = device.get(), &status, &ready] {
    status = self->OpenUring();
    const bool ok = status.ok();
    ready.Notify();  // the caller's variables are gone after this
    if (ok) self->Main();
    if (self->has_uring_) io_uring_queue_exit(&self->uring_);
  };
  RINGSIDE_ASSIGN_OR_RETURN(device->thread_, StartThread("ceiling", body));
  ready.Wait();
  if (!status.ok()) return status;
  return device;
}

CeilingDevice::~CeilingDevice() {
  if (!thread_.joinable()) return;
  SetState(State::kQuit);
  thread_.join();
}

uint64_t CeilingDevice::features() const {
  return kVirtioRingIndirectDesc | kVirtioRingEventIdx | (config_.queues > 1 ? kMultiQueue : 0);
}

void CeilingDevice::ReadConfig(uint64_t offset, std::span<std::byte> data) {
  std::array<std::byte, kConfigSize> bytes = {};
  const uint64_t sectors = config_.size / 512;
  std::memcpy(&bytes[kCapacityOffset], &sectors, sizeof sectors);
  std::memcpy(&bytes[kQueuesOffset], &config_.queues, sizeof config_.queues);
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = offset + i < kConfigSize ? bytes[offset + i] : std::byte{0};
  }
}

void CeilingDevice::Activate(uint64_t features, std::span<const QueueSetup> queues,
                             VirtioEvents& events) {
  if ((features & kVirtioRingEventIdx) == 0) return events.NeedsReset("EVENT_IDX is not accepted");
  setups_.assign(queues.begin(), queues.end());
  SetState(State::kActive);
}

void CeilingDevice::Reset(Task& done) {
  if (!active()) return done.Run();  // Activate has refused
  reset_done_ = &done;
  SetState(State::kStopping);
}

void CeilingDevice::SetState(State state) {
  state_.store(state, std::memory_order_release);
  state_.notify_all();
}

absl::Status CeilingDevice::OpenUring() {
  if (config_.engine != CeilingEngine::kIoUring) return absl::OkStatus();
  const unsigned entries = std::bit_ceil(unsigned{config_.queues} * kQueueSize);
  const int made = io_uring_queue_init(
      entries, &uring_,
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
  if (made < 0) return ErrnoError(-made, "io_uring cannot be used", "give --engine pread");
  has_uring_ = true;
  if (const int error = io_uring_register_files(&uring_, &config_.fd, 1); error < 0) {
    return ErrnoError(-error, "the file cannot be registered with io_uring");
  }
  const iovec memory = {.iov_base = memory_.host, .iov_len = memory_.size};
  if (const int error = io_uring_register_buffers(&uring_, &memory, 1); error < 0) {
    return ErrnoError(-error, "guest memory cannot be registered with io_uring",
                      "raise the limit of locked memory (ulimit -l) or give less --memory");
  }
  return absl::OkStatus();
}

void CeilingDevice::Main() {
  for (;;) {
    state_.wait(State::kIdle);
    if (state_ == State::kQuit) return;
    Serve();
    SetState(State::kIdle);
    reset_done_->Run();  // the device may be active again from here on
  }
}

void CeilingDevice::Serve() {
  const int64_t before = ThreadCpuNs();
  rings_.clear();
  for (const QueueSetup& setup : setups_) rings_.emplace_back(memory_.host, setup);
  switch (config_.engine) {
    case CeilingEngine::kNull:
      ServeNull();
      break;
    case CeilingEngine::kPread:
      ServePread();
      break;
    case CeilingEngine::kIoUring:
      ServeUring();
      break;
  }
  for (const QueueSetup& setup : setups_) counts_.kicks += setup.kick->Clear();
  counts_.cpu_ns += ThreadCpuNs() - before;
}

void CeilingDevice::ServeNull() {
  BareRequest request;
  while (active()) {
    for (BareRing& ring : rings_) {
      if (!ring.Take(request)) continue;
      do {
        ++counts_.requests;
        ring.Return(request, true);
      } while (ring.Take(request));
      Publish(ring);
    }
  }
}

// Each is published at once: none waits for the next one's system call.
void CeilingDevice::ServePread() {
  BareRequest request;
  while (active()) {
    for (BareRing& ring : rings_) {
      while (ring.Take(request)) {
        const auto offset = static_cast<off_t>(request.offset);
        const ssize_t moved = request.is_write
                                  ? pwrite(config_.fd, request.data, request.length, offset)
                                  : pread(config_.fd, request.data, request.length, offset);
        const bool ok = moved == static_cast<ssize_t>(request.length);
        ++counts_.requests;
        counts_.errors += ok ? 0 : 1;
        ring.Return(request, ok);
        Publish(ring);
      }
    }
  }
}

void CeilingDevice::PushTaken(size_t queue, std::vector<BareRequest>& requests) {
  BareRequest request;
  while (rings_[queue].Take(request)) {
    const size_t slot = queue * kQueueSize + request.head;
    requests[slot] = request;
    io_uring_sqe* entry = io_uring_get_sqe(&uring_);  // there is one for every slot
    io_uring_prep_rw(request.is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED, entry, 0,
                     request.data, request.length, request.offset);
    entry->flags = IOSQE_FIXED_FILE;
    entry->buf_index = 0;
    entry->user_data = slot;
  }
}

// Returns how many there were.
size_t CeilingDevice::ReapUring(const std::vector<BareRequest>& requests) {
  unsigned head, seen = 0;
  io_uring_cqe* completion;
  io_uring_for_each_cqe(&uring_, head, completion) {
    const BareRequest& request = requests[completion->user_data];
    const bool ok = completion->res == static_cast<int32_t>(request.length);
    counts_.errors += ok ? 0 : 1;
    rings_[completion->user_data / kQueueSize].Return(request, ok);
    ++counts_.requests;
    ++seen;
  }
  if (seen > 0) {
    io_uring_cq_advance(&uring_, seen);
    for (BareRing& ring : rings_) Publish(ring);
  }
  return seen;
}

void CeilingDevice::ServeUring() {
  std::vector<BareRequest> requests(rings_.size() * kQueueSize);  // by queue and head
  size_t in_flight = 0;
  // What the kernel still moves when a reset comes is waited for.
  while (active() || in_flight > 0) {
    for (size_t queue = 0; active() && queue < rings_.size(); ++queue) PushTaken(queue, requests);
    // The kernel holds completions back until it is asked; the flag says that there are any.
    if (io_uring_sq_ready(&uring_) > 0 ||
        (IO_URING_READ_ONCE(*uring_.sq.kflags) & IORING_SQ_TASKRUN) != 0) {
      ++counts_.io_uring_enters;
      const int submitted = io_uring_submit_and_get_events(&uring_);  // an error: next time round
      if (submitted > 0) in_flight += static_cast<size_t>(submitted);
    }
    in_flight -= ReapUring(requests);
  }
}

}  // namespace ringside
