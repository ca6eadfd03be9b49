#include "vmm/memory_handler.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/unix_connect.h"

namespace ringside {
namespace {

constexpr absl::Duration kConnectLimit = absl::Seconds(5);
constexpr absl::Duration kEndLimit = absl::Seconds(1);
constexpr int kRetryMs = 100;

absl::Status NotConnected(int error, const std::string& path) {
  const std::string what = absl::StrFormat("cannot reach a memory handler at '%s'", path);
  if (error == EAGAIN) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: it takes nobody within %s; start one for each machine", what,
                        absl::FormatDuration(kConnectLimit)));
  }
  return absl::FailedPreconditionError(
      ErrnoError(error, what, "start the handler first, and give restore-handler its socket")
          .message());
}

// The names and their order are Firecracker's; page_size_kib, which has bytes too, is for handlers
// that know no page_size.
std::string Piece(const std::byte* host, uint64_t size, uint64_t offset) {
  return absl::StrFormat(
      R"({"base_host_virt_addr":%d,"size":%d,"offset":%d,"page_size":%d,"page_size_kib":%d})",
      reinterpret_cast<uintptr_t>(host), size, offset, kPageSize, kPageSize);
}

// Whoever drops the memory knows that already.
void Touched(void*) {}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryHandler>> MemoryHandler::Connect(const GuestMemory& memory,
                                                                      Request request) {
  RINGSIDE_ASSIGN_OR_RETURN(
      UniqueFd socket, ConnectUnix(request.path, kConnectLimit,
                                   [&](int error) { return NotConnected(error, request.path); }));
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<MemoryHandler> handler(
      new MemoryHandler(memory, std::move(request), std::move(socket), std::move(wake)));
  RINGSIDE_RETURN_IF_ERROR(handler->MapTrailer());
  RINGSIDE_RETURN_IF_ERROR(handler->Guard());
  return handler;
}

// The kernel notes who called listen(2) (unix(7), SO_PEERCRED). No end is seen of this process's
// own threads, nor of a process in a PID namespace that is not under this one's.
UniqueFd MemoryHandler::ProcessBehind(const UniqueFd& socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  if (peer.pid <= 0 || peer.pid == getpid()) return {};
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

absl::Status MemoryHandler::Begin() {
  RINGSIDE_RETURN_IF_ERROR(HandOver());
  const absl::Duration patience = request_.patience;
  SetDeadline(MonotonicNs() + absl::ToInt64Nanoseconds(patience),
              absl::FailedPreconditionError(absl::StrFormat(
                  "the memory handler at '%s' has not given within %s what the machine needs to go "
                  "on: have it answer page faults with '%s'",
                  request_.path, absl::FormatDuration(patience), request_.file)));
  RINGSIDE_ASSIGN_OR_RETURN(thread_, StartThread("memory-handler", [this] { Watch(); }));
  const FaultsAllowed faults;
  const std::string_view wrong = WrongWithTrailer(request_.image, trailer_);
  RINGSIDE_RETURN_IF_ERROR(Loss());
  if (wrong.empty()) return absl::OkStatus();
  return BadInput("the memory that the handler at '%s' gives %s: have it serve '%s'", request_.path,
                  wrong, request_.file);
}

absl::Status MemoryHandler::MapTrailer() {
  void* page = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return ErrnoError(errno, "cannot map a page");
  trailer_ = {static_cast<std::byte*>(page), kPageSize};
  return memory_.userfault()->Register(trailer_);
}

absl::Status MemoryHandler::Guard() {
  const auto guard = [this](std::span<std::byte> mapping) -> absl::Status {
    RINGSIDE_ASSIGN_OR_RETURN(MappingGuard guarded, MappingGuard::Of(mapping, Touched, nullptr));
    guards_.push_back(std::move(guarded));
    return absl::OkStatus();
  };
  for (const MemoryRegion& region : memory_.regions()) {
    RINGSIDE_RETURN_IF_ERROR(guard({region.host, region.size}));
  }
  return guard(trailer_);
}

std::string MemoryHandler::Pieces() const {
  std::string pieces = "[";
  uint64_t offset = 0;
  for (const MemoryRegion& region : memory_.regions()) {
    absl::StrAppend(&pieces, Piece(region.host, region.size, offset), ",");
    offset += region.size;
  }
  return absl::StrCat(pieces, Piece(trailer_.data(), trailer_.size(), offset), "]");
}

absl::Status MemoryHandler::HandOver() const {
  std::string pieces = Pieces();
  iovec bytes = {.iov_base = pieces.data(), .iov_len = pieces.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int userfault = memory_.userfault()->fd();
  std::memcpy(CMSG_DATA(rights), &userfault, sizeof userfault);
  ssize_t sent;
  do {
    sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == std::ssize(pieces)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      ErrnoError(sent < 0 ? errno : EMSGSIZE,
                 absl::StrFormat("cannot hand memory over to the handler at '%s'", request_.path),
                 "start it anew, as it takes no message")
          .message());
}

MemoryHandler::~MemoryHandler() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
  }
  wake_.Signal();
  if (thread_.joinable()) thread_.join();
  guards_.clear();
  if (!trailer_.empty()) munmap(trailer_.data(), trailer_.size());
}

void MemoryHandler::IsMade() {
  SetDeadline(INT64_MAX, absl::OkStatus());
}

void MemoryHandler::EndSoon() {
  SetDeadline(MonotonicNs() + absl::ToInt64Nanoseconds(kEndLimit),
              absl::FailedPreconditionError(absl::StrFormat(
                  "the machine is over, and its memory handler at '%s' has not given all that was "
                  "asked for",
                  request_.path)));
}

void MemoryHandler::SetDeadline(int64_t monotonic_ns, absl::Status then) {
  const MutexLock lock(mutex_);
  deadline_ns_ = monotonic_ns;
  at_deadline_ = std::move(then);
  wake_.Signal();
}

void MemoryHandler::Forget() {
  const MutexLock telling(telling_);
  const MutexLock lock(mutex_);
  tells_ = false;
}

absl::Status MemoryHandler::Loss() const {
  const MutexLock lock(mutex_);
  return loss_;
}

void MemoryHandler::Watch() {
  // Not POLLIN: what the handler sends is nobody's.
  pollfd handler = {.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  std::string_view when_gone = "has closed its connection";
  for (;;) {
    pollfd watched[] = {handler, {.fd = wake_.fd(), .events = POLLIN, .revents = 0}};
    const bool any = poll(watched, std::size(watched), UntilDeadline()) > 0;
    wake_.Clear();
    {
      const MutexLock lock(mutex_);
      if (stops_) return;
    }
    const bool is_gone = any && watched[0].revents != 0;
    if (is_gone && handler.fd != process_.get() && process_.valid()) {
      handler = {.fd = process_.get(), .events = POLLIN, .revents = 0};
      when_gone = "has ended";
      continue;
    }
    absl::Status why = Due(is_gone ? when_gone : "");
    if (!why.ok()) return Lose(std::move(why));
  }
}

int MemoryHandler::UntilDeadline() const {
  const MutexLock lock(mutex_);
  if (deadline_ns_ == INT64_MAX) return -1;
  const int64_t left_ms = (deadline_ns_ - MonotonicNs()) / 1'000'000 + 1;
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, INT_MAX));
}

absl::Status MemoryHandler::Due(std::string_view gone) const {
  if (!gone.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the memory handler at '%s' %s under the machine that it gives memory: keep it running "
        "until the machine has ended",
        request_.path, gone));
  }
  const MutexLock lock(mutex_);
  return MonotonicNs() < deadline_ns_ ? absl::OkStatus() : at_deadline_;
}

void MemoryHandler::Lose(absl::Status why) {
  {
    const MutexLock telling(telling_);
    bool tells;
    {
      const MutexLock lock(mutex_);
      loss_ = std::move(why);
      tells = tells_;
    }
    if (tells) request_.lost();
  }
  // Even if the kernel has no memory to split mappings with, it will once others have given up.
  while (!memory_.Drop() || !memory_.userfault()->Drop(trailer_)) poll(nullptr, 0, kRetryMs);
}

}  // namespace ringside
