#include "vmm/console.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "base/size.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr size_t kInputChunk = 256;

// A second open of the same terminal or pipe that does not block. O_NONBLOCK on the descriptor
// itself would reach the shell and everybody else who shares it.
UniqueFd ReopenNonBlocking(int fd, int access) {
  if (fd < 0) return UniqueFd();
  const std::string path = absl::StrFormat("/proc/self/fd/%d", fd);
  struct stat info;
  const bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  unsigned number = 0;
  const bool is_terminal_master = ioctl(fd, TIOCGPTN, &number) == 0;
  // Files never block, and a second open would begin at their start; one of a terminal's master
  // would be another terminal.
  if (!is_file && !is_terminal_master) {
    UniqueFd reopened(open(path.c_str(), access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (reopened.valid()) return reopened;
  }
  return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

bool NeverBlocks(int fd) {
  struct stat info;
  const int flags = fcntl(fd, F_GETFL);
  return fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || (flags & O_NONBLOCK) != 0);
}

bool MayWaitFor(int fd, int access) {
  if (fd < 0) return false;
  const UniqueFd reopened = ReopenNonBlocking(fd, access);
  struct stat info;
  return fstat(reopened.get(), &info) != 0 || S_ISREG(info.st_mode) || S_ISBLK(info.st_mode) ||
         (fcntl(reopened.get(), F_GETFL) & O_NONBLOCK) == 0;
}

}  // namespace

bool Console::MayWait(const ConsoleConfig& config) {
  return MayWaitFor(config.input_fd, O_RDONLY) || MayWaitFor(config.output_fd, O_WRONLY);
}

Console::Console(const ConsoleConfig& config, const EventFd& interrupt, IoThread& io_thread,
                 Logger log, std::function<void()> spoke)
    : config_(config),
      log_(log),
      io_thread_(io_thread),
      input_(ReopenNonBlocking(config.input_fd, O_RDONLY)),
      output_(ReopenNonBlocking(config.output_fd, O_WRONLY)),
      output_never_blocks_(NeverBlocks(output_.get())),
      patience_(config.detach_key ? timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
                                  : -1),
      interrupt_(interrupt),
      spoke_(std::move(spoke)),
      output_ring_(output_.valid() ? kBufferSize : 0),
      input_watch_(input_.get(), EPOLLIN, [this] { ReadInput(); }),
      output_watch_(output_.get(), EPOLLOUT, [this] { WriteOutput(); }),
      patience_watch_(patience_.get(), EPOLLIN, [this] { LosePatience(); }) {
  NewPort();
}

Console::~Console() {
  Stop();
}

void Console::Start() {
  if (input_.valid()) io_thread_.Post(pass_input_);
}

void Console::Pause(Task& done) {
  {
    const MutexLock lock(mutex_);
    paused_ = true;
    pause_done_ = &done;
  }
  io_thread_.Post(apply_pause_);
}

void Console::Resume() {
  {
    const MutexLock lock(mutex_);
    paused_ = false;
    if (Task* const done = std::exchange(pause_done_, nullptr)) done->Run();
  }
  io_thread_.Post(apply_pause_);
}

// After a Resume that came before it has been here there is nothing to do; what it was called for
// besides does no harm.
void Console::ApplyPause() {
  bool guest_waits = false;
  {
    const MutexLock lock(mutex_);
    holding_ = paused_;
    if (Task* const done = std::exchange(pause_done_, nullptr)) done->Run();
    if (!holding_) guest_waits = TakeGuestWaits();
  }
  if (holding_) return;
  if (guest_waits) serial_->OutputDrained();
  if (input_.valid()) PassInput();
}

// On any thread: the I/O thread keeps from the port until it has seen the Resume.
absl::Status Console::RestorePort(const Serial::State& state) {
  RINGSIDE_RETURN_IF_ERROR(Serial::Check(state));
  NewPort();
  return serial_->Restore(state);
}

void Console::NewPort() {
  serial_.emplace(interrupt_, static_cast<SerialPeer&>(*this));
}

bool Console::Send(std::byte data) {
  if (!spoken_.load(std::memory_order_relaxed) &&
      !spoken_.exchange(true, std::memory_order_relaxed) && spoke_) {
    spoke_();
  }
  if (!output_.valid()) return true;
  bool first = false;
  bool room = false;
  {
    const MutexLock lock(mutex_);
    first = output_count_ == 0;
    if (output_count_ < kBufferSize) {
      output_ring_[(output_head_ + output_count_) % kBufferSize] = data;
      ++output_count_;
    } else {
      ++dropped_;
    }
    room = RoomOrWait();
  }
  if (first) io_thread_.Post(write_output_);
  return room;
}

bool Console::HasRoom() {
  const MutexLock lock(mutex_);
  return RoomOrWait();
}

bool Console::RoomOrWait() {
  guest_waits_ = kBufferSize - output_count_ < Serial::kFifoSize;
  return !guest_waits_;
}

void Console::BeginOutput() {
  output_never_blocks_ ? WriteOutput() : io_thread_.Arm(output_watch_);
}

void Console::WriteOutput() {
  std::span<const std::byte> chunk;
  {
    const MutexLock lock(mutex_);
    chunk = std::span(output_ring_)
                .subspan(output_head_, std::min(output_count_, kBufferSize - output_head_));
    is_writing_ = !chunk.empty();
  }
  // Outside the lock: the guest only appends behind the chunk. A descriptor that might block after
  // all is given a byte at a time, which it has announced room for.
  if (!output_never_blocks_) chunk = chunk.first(std::min<size_t>(chunk.size(), 1));
  if (chunk.empty()) return;
  const ConsoleStatistics done = Write(chunk);

  bool more = false;
  bool guest_waits = false;
  {
    const MutexLock lock(mutex_);
    is_writing_ = false;
    written_ += done.written;
    dropped_ += done.dropped;
    output_head_ = (output_head_ + done.written + done.dropped) % kBufferSize;
    output_count_ -= done.written + done.dropped;
    more = output_count_ > 0;
    if (!more) drained_.notify_all();
    if (!holding_) guest_waits = TakeGuestWaits();
  }
  if (more) io_thread_.Arm(output_watch_);
  if (guest_waits) serial_->OutputDrained();
}

bool Console::TakeGuestWaits() {
  return kBufferSize - output_count_ >= Serial::kFifoSize && std::exchange(guest_waits_, false);
}

// By the file's size as it is now: others may write to it, and may cut it short.
uint64_t Console::OutputRoom() const {
  struct stat info;
  if (config_.output_limit == std::numeric_limits<uint64_t>::max() ||
      fstat(output_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::numeric_limits<uint64_t>::max();
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  return config_.output_limit > size ? config_.output_limit - size : 0;
}

// A file that takes nothing now may take more later, when somebody has made room in it or on its
// disk; what a pipe says whose reader has gone away is the same each time.
ConsoleStatistics Console::Write(std::span<const std::byte> chunk) {
  const uint64_t room = OutputRoom();
  if (room == 0) {
    if (!std::exchange(limit_logged_, true)) {
      log_.Log(Severity::kWarning,
               "%s has reached its limit of %s: what the guest says is lost until it is shorter",
               OutputName(), FormatSize(config_.output_limit));
    }
    return {.dropped = chunk.size()};
  }
  const ssize_t written =
      write(output_.get(), chunk.data(), std::min<uint64_t>(chunk.size(), room));
  if (written >= 0) return {.written = static_cast<uint64_t>(written)};
  const int error = errno;
  if (error == EAGAIN || error == EINTR) return {};
  if (!std::exchange(error_logged_, true)) {
    if (error == EPIPE) {
      log_.Log(Severity::kWarning,
               "%s has lost its reader: what the guest says is lost until there is another",
               OutputName());
    } else {
      log_.Log(Severity::kWarning, "%s; what the guest says is lost until it can be written again",
               Message(ErrnoError(error, "cannot write " + OutputName())));
    }
  }
  return {.dropped = chunk.size()};
}

std::string Console::OutputName() const {
  if (config_.output_name.empty()) return "console output";
  return absl::StrFormat("console output '%s'", config_.output_name);
}

ConsoleStatistics Console::statistics() const {
  const MutexLock lock(mutex_);
  return {.written = written_, .waiting = output_count_, .dropped = dropped_};
}

size_t Console::Flush(absl::Duration limit) {
  const MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limit);
  while (output_count_ > 0 && drained_.wait_until(mutex_, deadline) == std::cv_status::no_timeout) {
  }
  return output_count_;
}

bool Console::IsWriting() const {
  const MutexLock lock(mutex_);
  return is_writing_;
}

void Console::Stop() {
  io_thread_.RunAndWait([this] {
    reading_ = false;
    if (input_.valid()) io_thread_.Disarm(input_watch_);
    if (output_.valid()) io_thread_.Disarm(output_watch_);
    if (patience_.valid()) io_thread_.Disarm(patience_watch_);
  });
}

void Console::InputDrained() {
  io_thread_.Post(pass_input_);
}

void Console::ReadInput() {
  std::array<std::byte, kInputChunk> chunk;
  const ssize_t got = read(input_.get(), chunk.data(), chunk.size());
  // Zero is the end of input; an error other than these two, a terminal that is gone.
  if (got <= 0 && !(got < 0 && (errno == EAGAIN || errno == EINTR))) reading_ = false;
  const std::span typed = std::span(chunk).first(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  auto end = typed.end();
  if (config_.detach_key.has_value()) {
    end = std::ranges::find(typed, std::byte{*config_.detach_key});
  }
  KeepInput({typed.begin(), end});
  if (end != typed.end()) config_.detached();
  PassInput();
}

void Console::KeepInput(std::span<const std::byte> typed) {
  if (discarding_) {
    const size_t room = kBufferSize - std::min(kBufferSize, input_pending_.size());
    typed = typed.first(std::min(typed.size(), room));
  }
  input_pending_.insert(input_pending_.end(), typed.begin(), typed.end());
}

void Console::PassInput() {
  OfferInput();
  AwaitInput();
}

// How much of it the port has taken. What it does not take now it asks for by InputDrained, and is
// offered it then.
size_t Console::OfferInput() {
  const size_t taken = holding_ ? 0 : serial_->Receive(input_pending_);
  input_pending_.erase(input_pending_.begin(),
                       input_pending_.begin() + static_cast<ptrdiff_t>(taken));
  return taken;
}

void Console::AwaitInput() {
  if (!reading_) return;
  if (input_pending_.size() < kBufferSize) discarding_ = false;
  if (input_pending_.size() < kBufferSize || discarding_) {
    io_thread_.Arm(input_watch_);
  } else if (patience_.valid()) {
    WaitForTheGuest();
  }
}

// From now on: it has just taken something, or the buffer has just become full.
void Console::WaitForTheGuest() {
  const itimerspec once = {.it_interval = {}, .it_value = absl::ToTimespec(kInputPatience)};
  timerfd_settime(patience_.get(), 0, &once, nullptr);
  io_thread_.Arm(patience_watch_);
}

void Console::LosePatience() {
  uint64_t times = 0;
  const bool is_over = read(patience_.get(), &times, sizeof times) == sizeof times;
  if (input_pending_.size() < kBufferSize || !reading_) return;
  if (!is_over) return io_thread_.Arm(patience_watch_);
  // It may be this thread that was late: the guest has made room, and its word has not come yet.
  if (OfferInput() > 0) return AwaitInput();
  if (!std::exchange(loss_logged_, true)) {
    log_.Log(Severity::kWarning, "the guest takes no input: what is typed further is lost to it");
  }
  discarding_ = true;
  io_thread_.Arm(input_watch_);
}

}  // namespace ringside
