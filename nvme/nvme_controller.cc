#include "nvme/nvme_controller.h"

#include <algorithm>
#include <linux/pci_regs.h>
#include <poll.h>
#include <utility>

#include "base/clock.h"
#include "base/slow_notice.h"
#include "base/status.h"
#include "base/thread.h"

namespace ringside {
namespace {

constexpr int64_t kMostTickNs = 1'000'000'000;
constexpr int kMostStops = 3;
constexpr int64_t kReturnPeriodNs = 50'000'000;
constexpr absl::Duration kShutdownTime = absl::Seconds(10);
// When the machine is over: what was flushed is durable, and an end without this is no loss of
// power.
constexpr absl::Duration kHurriedShutdownTime = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::shared_ptr<NvmeController>> CreateNvmeController(
    std::unique_ptr<PciDevice> device, const NvmeSettings& settings, Logger logger) {
  return NvmeController::Create(std::move(device), settings, logger);
}

absl::StatusOr<std::shared_ptr<NvmeController>> NvmeController::Create(
    std::unique_ptr<PciDevice> device, const NvmeSettings& settings, Logger logger) {
  const uint32_t class_code = device->ReadConfig(PCI_CLASS_REVISION, 4) >> 8;
  if (class_code != kNvmePciClass) {
    return BadInput(
        "'%s' is no NVMe controller: its PCI class is %06x, not %06x; 'ringside doctor' lists "
        "those of this machine",
        device->name(), class_code, kNvmePciClass);
  }
  const SlowNotice notice(logger, absl::StrFormat("%s to come up, %s at most", device->name(),
                                                  absl::FormatDuration(settings.open_limit)));
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::shared_ptr<NvmeController> controller(
      new NvmeController(std::move(device), settings, logger, std::move(wake)));
  RINGSIDE_RETURN_IF_ERROR(controller->SetUpInterrupts());
  absl::Status status;
  Event is_up;
  NvmeController* const self = controller.get();
  RINGSIDE_ASSIGN_OR_RETURN(
      self->thread_, StartThread("nvme", [self, &status, &is_up] { self->Run(status, is_up); }));
  is_up.Wait();
  RINGSIDE_RETURN_IF_ERROR(status);
  return controller;
}

NvmeController::NvmeController(std::unique_ptr<PciDevice> device, const NvmeSettings& settings,
                               Logger logger, EventFd wake)
    : device_(std::move(device)),
      settings_(settings),
      log_(logger),
      log_limit_(logger),
      pace_(PaceOf(settings)),
      open_until_ns_(MonotonicNs() + absl::ToInt64Nanoseconds(settings.open_limit)),
      wake_(std::move(wake)),
      space_(*device_) {}

NvmeController::Pace NvmeController::PaceOf(const NvmeSettings& settings) {
  constexpr int64_t kTicksATimeout = 8;
  const int64_t timeout_ns = absl::ToInt64Nanoseconds(settings.timeout);
  const int64_t wait_ns = std::max(absl::ToInt64Nanoseconds(settings.least_wait), 4 * timeout_ns);
  const int64_t tick_ns = std::clamp<int64_t>(timeout_ns / kTicksATimeout, 1'000'000, kMostTickNs);
  const auto ticks = [tick_ns](int64_t time_ns) {
    return static_cast<uint32_t>((time_ns + tick_ns - 1) / tick_ns);
  };
  return {.tick_ns = tick_ns, .ticks_a_timeout = ticks(timeout_ns), .ticks_a_wait = ticks(wait_ns)};
}

NvmeController::~NvmeController() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.Signal();
  thread_.join();
}

absl::Status NvmeController::SetUpInterrupts() {
  const uint32_t vectors = std::min<uint32_t>(device_->vectors(), kMaxQueues + 1U);
  if (vectors < 2) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s has %d MSI-X vectors, and 2 are needed; use it through the kernel's "
                        "driver",
                        device_->name(), vectors));
  }
  std::vector<int> fds;
  for (uint32_t i = 0; i < vectors; ++i) {
    RINGSIDE_ASSIGN_OR_RETURN(EventFd interrupt, EventFd::Create());
    fds.push_back(interrupt.fd());
    interrupts_.push_back(std::move(interrupt));
  }
  RINGSIDE_RETURN_IF_ERROR(device_->SetVectors(fds));
  // Those of queues that there are not yet.
  for (uint32_t i = 1; i < vectors; ++i) device_->MaskVector(i);
  return absl::OkStatus();
}

void NvmeController::Run(absl::Status& status, Event& is_up) {
  status = SetUp();
  BeginTick();
  const bool ok = status.ok();
  is_up.Notify();  // the caller's variables are gone after this
  while (ok) {
    WaitForSomething();
    {
      const MutexLock lock(mutex_);
      if (stop_) break;
    }
    RunCalls();
    if (away_) {
      TryReturn();
    } else if (!given_up_) {
      admin_->Poll();
      HearEvents();
    }
    ChangeQueues();
    if (MonotonicNs() >= next_tick_ns_) Tick();
  }
  ChangeQueues();
  if (admin_ != nullptr) admin_->ShutDown(watch_.ends() ? kHurriedShutdownTime : kShutdownTime);
}

void NvmeController::WaitForSomething() {
  int timeout_ms = -1;
  if (!resting_) {
    const int64_t left_ns = next_tick_ns_ - MonotonicNs();
    timeout_ms = left_ns <= 0 ? 0 : static_cast<int>(left_ns / 1'000'000 + 1);
  }
  if (away_) timeout_ms = static_cast<int>(kReturnPeriodNs / 1'000'000);
  const bool works = !away_ && !given_up_;
  if (works && !events_.empty()) timeout_ms = 0;  // told of while another answer was waited for
  const bool is_told = works && !watch_.ends();
  pollfd fds[] = {{.fd = wake_.fd(), .events = POLLIN},
                  {.fd = interrupts_[0].fd(), .events = POLLIN},
                  {.fd = is_told ? device_->gone_fd() : -1, .events = POLLIN}};
  poll(fds, std::size(fds), timeout_ms);
  wake_.Clear();
  interrupts_[0].Clear();
  if (resting_) {
    resting_ = false;
    device_->MaskVector(0);  // each tick looks
    watch_.asleep.store(false, std::memory_order_relaxed);
    BeginTick();
  }
  if (fds[2].revents != 0) Recover("it is gone");
}

// What has passed until now is not counted.
void NvmeController::BeginTick() {
  counted_ns_ = MonotonicNs();
  next_tick_ns_ = counted_ns_ + pace_.tick_ns;
}

// Called once per tick. When nothing is in flight it says that it will sleep, and sleeps a tick
// later if that is still so. In between every channel that sends something sees what it has said,
// or its store of `sent_at` is seen here: no store takes a tick to be visible, and so the senders
// need no fence. They wake this thread when they find it asleep.
void NvmeController::Rest() {
  const uint32_t now = watch_.tick.load(std::memory_order_relaxed);
  const auto queues = Queues();
  const bool busy = std::ranges::any_of(queues, [now](NvmeQueue* queue) {
    return queue->AnyInFlightFor(0, now) || queue->waits_since().load() != 0;
  });
  // What is in force later only makes this thread tick once more.
  if (!busy) resting_ = watch_.asleep.load(std::memory_order_relaxed) && device_->UnmaskVector(0);
  watch_.asleep.store(!busy, std::memory_order_relaxed);
  // A whole tick, however long the one that ends here has taken.
  if (!busy) BeginTick();
}

void NvmeController::OnControllerThread(absl::FunctionRef<void()> function) {
  Call call = {.function = function, .over = {}};
  {
    const MutexLock lock(mutex_);
    calls_.push_back(&call);
  }
  wake_.Signal();
  call.over.Wait();
}

void NvmeController::RunCalls() {
  std::vector<Call*> calls;
  {
    const MutexLock lock(mutex_);
    calls.swap(calls_);
  }
  for (Call* call : calls) {
    call->function();
    call->over.Notify();
  }
}

absl::StatusOr<const IovaOffsets*> NvmeController::MapMemory(
    std::span<const MemoryRegion> regions) {
  const MutexLock lock(memories_mutex_);
  for (const auto& memory : memories_) {
    if (!regions.empty() && memory->host == regions.front().host) return &memory->offsets;
  }
  if (given_up_) return GivenUp();
  RINGSIDE_ASSIGN_OR_RETURN(IovaOffsets offsets, space_.MapMemory(regions));
  const std::byte* host = regions.empty() ? nullptr : regions.front().host;
  memories_.push_back(
      std::make_unique<MappedMemory>(MappedMemory{.host = host, .offsets = std::move(offsets)}));
  return &memories_.back()->offsets;
}

std::vector<NvmeQueue*> NvmeController::Queues() {
  const MutexLock lock(mutex_);
  std::vector<NvmeQueue*> queues;
  queues.reserve(queues_.size());
  for (const auto& queue : queues_) queues.push_back(queue.get());
  return queues;
}

absl::StatusOr<NvmeQueue*> NvmeController::OpenQueue(IoThread& io_thread) {
  // The device is told of it by MakeQueue: that is not for an I/O thread to wait for.
  RINGSIDE_ASSIGN_OR_RETURN(DmaBuffer memory, DmaBuffer::Create(sizeof(NvmeQueue::Memory)));
  const MutexLock lock(mutex_);
  uint16_t id = 1;
  while (std::ranges::any_of(queues_, [id](const auto& queue) { return queue->id() == id; })) ++id;
  if (id > queue_count_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s has %d queues, all in use; give its disks fewer I/O threads", name(), queue_count_));
  }
  queues_.push_back(
      std::make_unique<NvmeQueue>(NvmeQueue::Parts{.id = id,
                                                   .entries = queue_entries_,
                                                   .submission_doorbell = Doorbell(id, false),
                                                   .completion_doorbell = Doorbell(id, true),
                                                   .interrupt = interrupts_[id].fd(),
                                                   .device = *device_,
                                                   .watch = watch_,
                                                   .control = wake_},
                                  std::move(memory), io_thread));
  wake_.Signal();
  return queues_.back().get();
}

NvmeDoorbell NvmeController::Doorbell(uint16_t queue, bool completion) const {
  const uint64_t offset =
      nvme::DoorbellOffset(queue, completion, admin_->capabilities().doorbell_stride());
  auto* reg = reinterpret_cast<uint32_t*>(doorbells_ + offset);
  if (!has_shadows_) return {reg, nullptr, nullptr};
  std::byte* shadow = shadows_.data() + offset;
  return {reg, reinterpret_cast<uint32_t*>(shadow),
          reinterpret_cast<uint32_t*>(shadow + nvme::kPageSize)};
}

// Makes those that are new, or have gone with a reset, and unmakes those that are closed: as many
// as there is time for until commands are to be looked after again, one at least, and the others
// later.
void NvmeController::ChangeQueues() {
  bool changed = false;
  for (NvmeQueue* queue : Queues()) {
    if (changed && MonotonicNs() >= next_tick_ns_) return wake_.Signal();
    if (queue->closed()) {
      UnmakeQueue(*queue);
      changed = true;
      continue;
    }
    if (queue->cancelled() && !queue->failed) {
      CancelQueue(*queue);
      continue;
    }
    if (queue->created || queue->failed || away_) continue;
    changed = true;
    const absl::Status status = given_up_ ? GivenUp() : MakeQueue(*queue);
    if (MayReturn(status)) return Recover(std::string(Message(status)));
    if (absl::IsDeadlineExceeded(status)) {
      // It has stopped again while it was brought up.
      if (++stops_ > kMostStops) return GiveUp(status);
      return Recover(std::string(Message(status)));
    }
    queue->created = status.ok();
    queue->failed = !status.ok();
    if (queue->failed && !given_up_) log_limit_.Log(Severity::kError, "%s", Message(status));
    CountTicks();  // what is sent now is no older for the time that this has taken
    queue->OnIoThread(
        [&](NvmeChannel& channel) { queue->created ? channel.Thaw() : channel.Fail(); });
  }
  const auto is_done = [](const NvmeQueue* queue) { return queue->created || queue->failed; };
  if (!away_ && std::ranges::all_of(Queues(), is_done)) EndRecovery();
}

absl::Status NvmeController::MakeQueue(NvmeQueue& queue) {
  RINGSIDE_RETURN_IF_ERROR(queue.Map(space_));
  // What an earlier queue of this number has left there would be taken for news, or hide it.
  queue.parts().submission_doorbell.ClearShadow();
  queue.parts().completion_doorbell.ClearShadow();
  const uint32_t shape = uint32_t{queue.id()} | (queue.parts().entries - 1U) << 16;
  const auto iova_of = [&](const auto& ring) { return queue.IovaOf(&ring); };
  RINGSIDE_RETURN_IF_ERROR(admin_
                               ->Execute({.opcode = static_cast<uint8_t>(nvme::AdminOp::kCreateCq),
                                          .prp1 = iova_of(queue.memory().completions),
                                          .cdw10 = shape,
                                          .cdw11 = nvme::kQueueContiguous | nvme::kQueueInterrupts |
                                                   uint32_t{queue.id()} << 16})
                               .status());
  return admin_
      ->Execute({.opcode = static_cast<uint8_t>(nvme::AdminOp::kCreateSq),
                 .prp1 = iova_of(queue.memory().submissions),
                 .cdw10 = shape,
                 .cdw11 = nvme::kQueueContiguous | uint32_t{queue.id()} << 16})
      .status();
}

absl::Status NvmeController::DeleteQueue(NvmeQueue& queue) {
  for (const nvme::AdminOp op : {nvme::AdminOp::kDeleteSq, nvme::AdminOp::kDeleteCq}) {
    RINGSIDE_RETURN_IF_ERROR(
        admin_->Execute({.opcode = static_cast<uint8_t>(op), .cdw10 = queue.id()}).status());
  }
  return absl::OkStatus();
}

// Section 3.3.1.3.1: once its submission queue is deleted, commands in flight reach no memory.
void NvmeController::CancelQueue(NvmeQueue& queue) {
  queue.OnIoThread([](NvmeChannel& channel) { channel.Freeze(); });
  const absl::Status status = away_           ? absl::UnavailableError(name() + " is away")
                              : queue.created ? DeleteQueue(queue)
                                              : absl::OkStatus();
  if (!status.ok()) {
    log_limit_.Log(Severity::kWarning, "%s: the machine is over: cutting it off from memory",
                   Message(status));
    return CutOff();
  }
  queue.created = false;
  queue.failed = true;
  queue.OnIoThread([](NvmeChannel& channel) { channel.Fail(); });
}

void NvmeController::UnmakeQueue(NvmeQueue& queue) {
  if (queue.created && !given_up_) {
    const absl::Status status = DeleteQueue(queue);
    // The controller may still write there.
    if (!status.ok()) Recover(std::string(Message(status)));
  }
  device_->MaskVector(queue.id());
  // Its memory is unmapped behind the lock: an I/O thread that opens a queue does not wait for
  // that.
  std::unique_ptr<NvmeQueue> unmade;
  const MutexLock lock(mutex_);
  const auto place = std::ranges::find(queues_, &queue, &std::unique_ptr<NvmeQueue>::get);
  unmade = std::move(*place);
  queues_.erase(place);
}

}  // namespace ringside
