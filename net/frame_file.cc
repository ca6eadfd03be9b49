#include "net/frame_file.h"

#include <cerrno>

namespace ringside {
namespace {

// Reads that fail, and not for want of a frame, in one call of Receive.
constexpr int kMaxFailures = 16;

// Of a tap whose interface was removed.
bool IsGone(int error) {
  return error == EBADFD || error == EBADF || error == ENODEV || error == ENXIO;
}

}  // namespace

FrameChannel::Sent FrameFile::Send(std::span<const iovec> frame) {
  while (writev(fd_.get(), frame.data(), static_cast<int>(frame.size())) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Sent::kFull;
    // EIO: the interface is down. EINVAL: the header says what is not so. ENOBUFS, ENOMEM.
    return IsGone(errno) ? Sent::kGone : Sent::kDropped;
  }
  return Sent::kYes;
}

ssize_t FrameFile::Receive(std::span<const iovec> room) {
  for (int failures = 0; failures < kMaxFailures;) {
    const ssize_t size = readv(fd_.get(), room.data(), static_cast<int>(room.size()));
    if (size > 0) return size;
    if (size == 0 || IsGone(errno)) return kGone;
    if (errno == EAGAIN) return kNothing;
    // Any other error (EFAULT, ENOMEM, EIO) is that of one frame. The descriptor has told of those
    // behind it and does so no more.
    if (errno != EINTR) ++failures;
  }
  // An error that stays: the descriptor tells when there is another frame.
  return kNothing;
}

}  // namespace ringside
