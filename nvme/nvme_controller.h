// An NVMe controller: a thread of its own brings it up, makes and unmakes its queues, hears its
// events, and looks after commands that do not end. I/O never meets that thread.
//
// A command without an answer is aborted; if it still has none the controller is reset and every
// command in flight is sent again, three times in all; then it fails. A controller that cannot be
// reset is cut off from memory, and everything fails. No command is given up before the controller
// is known to reach no memory. One that is gone and may come back (PciDevice::Reset) is waited for
// as long as for a command, and all is sent again. See docs/nvme.md for the times. When the machine
// is over (BlockChannel::Cancel) queues are deleted, and a controller that is slow at that is cut
// off from memory.
//
// Threads: Identify and MapMemory on any but an I/O thread or the controller's; OpenQueue on the
// I/O thread that will use the queue; all else any.
// Ownership: it owns the device and the queues; it goes when all queues are closed.
// Errors: as PciDevice.
// Spec: NVM Express Base Specification 2.0.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/counter.h"
#include "base/fd.h"
#include "base/log_limit.h"
#include "base/sync.h"
#include "nvme/nvme_admin.h"
#include "nvme/nvme_channel.h"
#include "nvme/nvme_device.h"
#include "nvme/nvme_dma.h"
#include "nvme/nvme_queue.h"

namespace ringside {

class NvmeController {
 public:
  static constexpr uint16_t kMaxQueues = 64;  // an I/O thread of each disk takes one

  // How time is counted.
  struct Pace {
    int64_t tick_ns;
    uint32_t ticks_a_timeout;  // of a command
    uint32_t ticks_a_wait;     // for a slot: see NvmeSettings::least_wait
  };
  static Pace PaceOf(const NvmeSettings& settings);

  static absl::StatusOr<std::shared_ptr<NvmeController>> Create(std::unique_ptr<PciDevice> device,
                                                                const NvmeSettings& settings,
                                                                Logger logger);
  ~NvmeController();
  NvmeController(const NvmeController&) = delete;
  NvmeController& operator=(const NvmeController&) = delete;

  absl::StatusOr<NvmeNamespace> Identify(uint32_t nsid);
  // The same memory is mapped once. What it points to stays as long as the controller.
  absl::StatusOr<const IovaOffsets*> MapMemory(std::span<const MemoryRegion> regions);
  // Waits for nobody. A channel on it is to be made at once, or else Close is called.
  absl::StatusOr<NvmeQueue*> OpenQueue(IoThread& io_thread);

  // See BlockDevice::EndSoon. Any thread.
  void EndSoon() {
    ringside::EndSoon(watch_, *device_);
    wake_.Signal();
  }

  const std::string& name() const { return device_->name(); }
  const Logger& logger() const { return log_; }
  // What was written and not flushed may be gone, so no flush may succeed any more.
  const std::atomic<bool>& cache_lost() const { return cache_lost_; }
  uint64_t resets() const { return resets_.Get(); }
  uint64_t lost_interrupts() const { return lost_interrupts_.Get(); }

 private:
  struct Call {
    absl::FunctionRef<void()> function;
    Event over;
  };
  struct MappedMemory {
    const std::byte* host;  // of the first region
    IovaOffsets offsets;
  };

  NvmeController(std::unique_ptr<PciDevice> device, const NvmeSettings& settings, Logger logger,
                 EventFd wake);

  // Create's thread, before the controller's.
  absl::Status SetUpInterrupts();

  // The controller's thread.
  void Run(absl::Status& status, Event& is_up);
  absl::Status SetUp();
  absl::Status BringUp();
  absl::Status MapDoorbells();
  absl::StatusOr<uint16_t> AskForQueues();
  absl::Status SetFeatures();
  absl::StatusOr<NvmeFeatures> IdentifyFeatures();
  absl::StatusOr<NvmeNamespace> IdentifyHere(uint32_t nsid);
  absl::Status NoSuchNamespace(uint32_t nsid);
  void AskForEvent();
  void WaitForSomething();
  void Rest();
  void RunCalls();
  void HearEvents();
  void ChangeQueues();
  absl::Status MakeQueue(NvmeQueue& queue);
  absl::Status DeleteQueue(NvmeQueue& queue);
  void UnmakeQueue(NvmeQueue& queue);
  void CancelQueue(NvmeQueue& queue);
  void BeginTick();
  void CountTicks();
  void Tick();
  void CheckCommands(NvmeQueue& queue);
  void CheckWaiters(NvmeQueue& queue);
  void Recover(const std::string& why);
  absl::Status Restart();
  void EndRecovery();
  bool MayReturn(const absl::Status& status) const;
  void WaitForReturn(const absl::Status& why);
  void TryReturn();
  absl::Status CheckSame();
  absl::Status CheckNamespaces();
  void LoseCache(const char* why);
  void GiveUp(const absl::Status& why);
  void CutOff();
  absl::Status GivenUp() const;
  std::vector<NvmeQueue*> Queues();
  NvmeDoorbell Doorbell(uint16_t queue, bool completion) const;
  void OnControllerThread(absl::FunctionRef<void()> function);

  const std::unique_ptr<PciDevice> device_;
  const NvmeSettings settings_;
  const Logger log_;    // for what is said once
  LogLimit log_limit_;  // for all else: a controller may do it again and again
  const Pace pace_;
  const int64_t open_until_ns_;
  const EventFd wake_;
  std::vector<EventFd> interrupts_;  // by vector; 0 is the admin queue's
  DmaSpace space_;
  std::unique_ptr<NvmeAdmin> admin_;
  DmaBuffer shadows_;  // of doorbells: a page of values, one of event indices; none: not offered
  std::byte* doorbells_ = nullptr;
  NvmeWatch watch_;
  std::atomic<bool> cache_lost_{false};
  Counter resets_;
  Counter lost_interrupts_;

  // The controller's thread only.
  int64_t counted_ns_ = 0;  // ticks are counted until then
  int64_t next_tick_ns_ = 0;
  bool resting_ = false;
  bool away_ = false;  // and waited for
  // While it is brought up anew, and kNever otherwise: when it has to be back, if it was gone, and
  // when all of it is to be over.
  int64_t away_until_ns_ = NvmeAdmin::kNever;
  int64_t recover_until_ns_ = NvmeAdmin::kNever;
  std::map<uint32_t, NvmeNamespace> namespaces_;  // that were asked for, by identifier
  int stops_ = 0;                                 // while its queues were being made, in a row
  std::vector<uint32_t> events_;                  // that have not been told yet
  bool has_cache_ = false;
  bool has_discard_ = false;  // and write zeroes
  uint32_t most_bytes_ = 0;   // of a command

  // Written before the thread tells that it is up.
  uint16_t queue_count_ = 0;
  uint16_t queue_entries_ = 0;
  bool has_shadows_ = false;

  std::atomic<bool> given_up_{false};
  Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Call*> calls_ ABSL_GUARDED_BY(mutex_);
  // Made by any thread, unmade by the controller's.
  std::vector<std::unique_ptr<NvmeQueue>> queues_ ABSL_GUARDED_BY(mutex_);
  Mutex memories_mutex_;  // which is held while the device is waited for; I/O threads take mutex_
  std::vector<std::unique_ptr<MappedMemory>> memories_ ABSL_GUARDED_BY(memories_mutex_);
  std::thread thread_;
};

}  // namespace ringside
