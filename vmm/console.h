// The outer end of COM1: moves bytes between the serial port and two descriptors of the embedder.
//
// Threads: bytes from the guest are taken on vCPU threads into a bounded buffer and written by the
// I/O thread, so a reader who does not read stalls neither a vCPU nor the machine's end: the
// guest's transmitter just stays busy. What a file does not take, since its disk is full or it has
// reached its limit, is dropped and counted, and the log says so once. Input is read by the I/O
// thread and kept until the port takes it, so that the detach key is found even while the guest
// does not listen. Whoever types more than is kept has to wait, but where there is a detach key
// only as long as the guest takes something: else the key would stay behind what nobody reads.
// While it is paused the port changes nothing, and the descriptors are read and written as ever.
//
// Ownership: descriptors stay the embedder's and stay open while the console exists.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sync.h"
#include "devices/pausable.h"
#include "devices/serial.h"
#include "poll/io_thread.h"
#include "ringside/statistics.h"

namespace ringside {

class Console final : public Pausable, private SerialPeer {
 public:
  static constexpr size_t kBufferSize = 64 << 10;  // each way
  // A guest that takes none of a full buffer for so long loses what is typed from then on.
  static constexpr absl::Duration kInputPatience = absl::Milliseconds(500);

  // `interrupt` and `io_thread` outlive the console, and so does what the log leads to. `spoke` is
  // called once, on the thread of the vCPU that has sent the guest's first byte; it must not wait.
  Console(const ConsoleConfig& config, const EventFd& interrupt, IoThread& io_thread,
          Logger log = Logger(), std::function<void()> spoke = {});
  ~Console() override;

  // Whether a descriptor of its may hold the I/O thread for longer than a moment: one of a file,
  // whose storage may hang, or one that cannot be made not to block.
  static bool MayWait(const ConsoleConfig& config);

  Serial& serial() { return *serial_; }
  // Begins to read input.
  void Start();
  void Pause(Task& done) override;
  void Resume() override;
  // While it is paused. The port is made anew; what waits on its way from and to the descriptors
  // stays. Serial::Check says what is refused; nothing has changed then.
  absl::Status RestorePort(const Serial::State& state);
  // Whether the guest has sent anything yet. Any thread.
  bool spoken() const { return spoken_.load(std::memory_order_relaxed); }
  // Waits until all output is written, or for `limit` at most; returns the bytes still unwritten.
  size_t Flush(absl::Duration limit);
  // Whether a write has not come back yet. Any thread.
  bool IsWriting() const;
  // For a line of the log. "console output", and its name if it has one.
  std::string OutputName() const;
  // Any thread.
  ConsoleStatistics statistics() const;
  // Lets go of the descriptors. Blocks until the I/O thread has done so.
  void Stop();

 private:
  class Watch final : public FdWatch {
   public:
    Watch(int fd, uint32_t events, std::function<void()> ready)
        : FdWatch(fd, events), ready_(std::move(ready)) {}
    void Ready() override { ready_(); }

   private:
    const std::function<void()> ready_;
  };

  // SerialPeer, on vCPU threads.
  bool Send(std::byte data) override;
  bool HasRoom() override;
  void InputDrained() override;

  // On the I/O thread.
  void ReadInput();
  void KeepInput(std::span<const std::byte> typed);
  void PassInput();
  size_t OfferInput();
  void AwaitInput();
  void WaitForTheGuest();
  void LosePatience();
  void ApplyPause();
  void NewPort();
  void BeginOutput();
  void WriteOutput();
  // How many bytes more the output may get.
  uint64_t OutputRoom() const;
  // Of the bytes at the chunk's beginning, how many are written, and how many have to be dropped.
  ConsoleStatistics Write(std::span<const std::byte> chunk);

  // Whether the guest is to be told that there is room again.
  bool TakeGuestWaits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a whole FIFO fits; if not, the guest is told when it does.
  bool RoomOrWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ConsoleConfig config_;
  const Logger log_;
  IoThread& io_thread_;
  const UniqueFd input_;
  const UniqueFd output_;
  const bool output_never_blocks_;
  const UniqueFd patience_;  // a timer, where there is a detach key
  const EventFd& interrupt_;
  const std::function<void()> spoke_;
  std::optional<Serial> serial_;

  std::atomic<bool> spoken_{false};

  mutable Mutex mutex_;
  std::condition_variable_any drained_;                         // output_count_ is 0
  std::vector<std::byte> output_ring_ ABSL_GUARDED_BY(mutex_);  // of kBufferSize
  size_t output_head_ ABSL_GUARDED_BY(mutex_) = 0;              // of the oldest byte
  size_t output_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool guest_waits_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;         // from Pause to Resume
  Task* pause_done_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: it has run

  // The I/O thread's own: what the log has been told.
  bool limit_logged_ = false;
  bool error_logged_ = false;
  bool loss_logged_ = false;
  // Likewise: input that the port has not taken yet.
  std::vector<std::byte> input_pending_;
  bool reading_ = true;      // until end of file or Stop
  bool holding_ = false;     // as paused_ was when this thread last looked: the port is left alone
  bool discarding_ = false;  // what input_pending_ has no room for; the detach key is looked for

  Watch input_watch_;
  Watch output_watch_;
  Watch patience_watch_;
  TaskTo<Console, &Console::PassInput> pass_input_{*this};
  TaskTo<Console, &Console::BeginOutput> write_output_{*this};
  TaskTo<Console, &Console::ApplyPause> apply_pause_{*this};
};

}  // namespace ringside
