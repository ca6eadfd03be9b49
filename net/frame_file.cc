#include "net/frame_file.h"

#include <cerrno>

namespace ringside {
namespace {

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
  while (true) {
    const ssize_t size = readv(fd_.get(), room.data(), static_cast<int>(room.size()));
    if (size > 0) return size;
    if (size == 0 || IsGone(errno)) return kGone;
    // EAGAIN most often. Whatever else it is, the descriptor tells of the next frame.
    if (errno != EINTR) return kNothing;
  }
}

}  // namespace ringside
