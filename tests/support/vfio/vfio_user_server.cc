#include "tests/support/vfio/vfio_user_server.h"

#include <array>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/thread.h"
#include "tests/support/descriptors.h"
#include "tests/support/nvme/nvme_model_spec.h"
#include "tests/support/vfio/vfio_user_session.h"

namespace ringside::testing {
namespace {

// Of what a talkative server sends.
constexpr uint16_t kOwnId = 0x7a17;

UniqueFd Listen(const std::string& path) {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) Must(-1, "a path too long for a socket");
  path.copy(address.sun_path, path.size());
  UniqueFd listener(Must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  unlink(path.c_str());
  Must(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  Must(listen(listener.get(), 8), "listen");
  return listener;
}

// A command that a client has to refuse: nothing is mapped without its descriptor.
bool SendOwnCommand(int socket) {
  struct {
    VfioUserHeader header;
    VfioUserDmaAccess access;
  } message = {.header = {.id = kOwnId,
                          .command = static_cast<uint16_t>(VfioUserCommand::kDmaRead),
                          .size = sizeof message,
                          .flags = kVfioUserTypeCommand,
                          .error = 0},
               .access = {.address = 0, .count = 4}};
  return send(socket, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
}

}  // namespace

VfioUserServer::VfioUserServer(const std::string& path, Attach attach,
                               const VfioUserServerConfig& config)
    : config_(config),
      attach_(std::move(attach)),
      listener_(Listen(path)),
      stop_(EventFd::Create().value()) {
  thread_ = StartThread("vfio-user", [this] { Serve(); }).value();
}

VfioUserServer::VfioUserServer(const std::string& path, NvmeModel& model,
                               const VfioUserServerConfig& config)
    : VfioUserServer(
          path,
          [&model] {
            VfioUserServed served = {.device = model.Attach()};
            served.bar_fd = model.bar_fd();
            served.mappable = nvme::kDoorbells;
            return served;
          },
          config) {}

VfioUserServer::~VfioUserServer() {
  stop_.Signal();
  thread_.join();
}

void VfioUserServer::Pause() {
  is_paused_ = true;
}

void VfioUserServer::Resume() {
  is_paused_ = false;
}

void VfioUserServer::SetDelay(absl::Duration delay) {
  delay_ns_ = absl::ToInt64Nanoseconds(delay);
}

void VfioUserServer::WaitBeforeAnswer() const {
  WaitForFd(stop_.fd(), POLLIN, absl::Nanoseconds(delay_ns_.load()));
  while (is_paused_ && !WaitForFd(stop_.fd(), POLLIN, absl::Milliseconds(1))) {
  }
}

void VfioUserServer::DieAfter(uint32_t messages) {
  const MutexLock lock(mutex_);
  messages_left_ = messages;
}

void VfioUserServer::Refuse(VfioUserCommand command, int error) {
  const MutexLock lock(mutex_);
  refused_[command] = error;
}

void VfioUserServer::SetTalkative(bool talkative) {
  const MutexLock lock(mutex_);
  is_talkative_ = talkative;
}

std::vector<std::string> VfioUserServer::violations() const {
  const MutexLock lock(mutex_);
  return violations_;
}

uint64_t VfioUserServer::received(VfioUserCommand command) const {
  const MutexLock lock(mutex_);
  const auto found = received_.find(command);
  return found == received_.end() ? 0 : found->second;
}

uint32_t VfioUserServer::clients() const {
  const MutexLock lock(mutex_);
  return clients_;
}

bool VfioUserServer::has_client() const {
  const MutexLock lock(mutex_);
  return session_ != nullptr;
}

size_t VfioUserServer::mappings() const {
  const MutexLock lock(mutex_);
  return session_ == nullptr ? 0 : session_->mappings();
}

size_t VfioUserServer::assigned() const {
  const MutexLock lock(mutex_);
  return session_ == nullptr ? 0 : session_->assigned();
}

void VfioUserServer::Serve() {
  while (true) {
    std::array<pollfd, 2> watched = {pollfd{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                     pollfd{.fd = stop_.fd(), .events = POLLIN, .revents = 0}};
    if (poll(watched.data(), watched.size(), -1) <= 0) continue;
    if (watched[1].revents != 0) break;
    const UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) continue;
    const timeval limit = {.tv_sec = 10, .tv_usec = 0};
    Must(setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), "SO_SNDTIMEO");
    ServeClient(socket.get());
    const MutexLock lock(mutex_);
    session_.reset();
    if (messages_left_ == 0) break;
  }
  listener_ = UniqueFd();
}

void VfioUserServer::ServeClient(int socket) {
  {
    const MutexLock lock(mutex_);
    VfioUserServed served = attach_();
    if (served.device == nullptr) Must(-1, "the device has a handle already");
    session_ = std::make_unique<VfioUserSession>(config_, std::move(served), violations_);
    expects_reply_ = false;
    ++clients_;
  }
  VfioUserMessage message;
  std::string wrong;
  while (ReceiveVfioUser(socket, stop_.fd(), message, wrong)) {
    WaitBeforeAnswer();
    if (!Answer(socket, message)) return;
  }
  if (wrong.empty()) return;
  const MutexLock lock(mutex_);
  violations_.push_back(wrong);
}

bool VfioUserServer::Answer(int socket, const VfioUserMessage& message) {
  const MutexLock lock(mutex_);
  if ((message.header.flags & kVfioUserTypeMask) == kVfioUserTypeReply) {
    TakeReply(message);
    return true;
  }
  if (messages_left_ == 0) return false;
  if (messages_left_ != UINT32_MAX) --messages_left_;
  ++received_[message.command()];
  const int refused = refused_[message.command()];
  const VfioUserReply reply =
      refused != 0 ? VfioUserReply{.error = refused} : session_->Handle(message);
  if (is_talkative_ && message.command() != VfioUserCommand::kVersion && !expects_reply_) {
    if (!SendOwnCommand(socket)) return false;
    expects_reply_ = true;
  }
  if (session_->is_over()) return false;
  return !message.wants_reply() || SendVfioUser(socket, message.header, reply);
}

void VfioUserServer::TakeReply(const VfioUserMessage& message) {
  const VfioUserHeader& header = message.header;
  const bool is_refusal = header.id == kOwnId && message.command() == VfioUserCommand::kDmaRead &&
                          header.flags == (kVfioUserTypeReply | kVfioUserError) &&
                          message.payload.empty() && message.fds.empty();
  if (!expects_reply_) {
    violations_.push_back("a reply to nothing");
  } else if (!is_refusal) {
    violations_.push_back("a DMA read of what is not mapped is not refused in the right way");
  }
  expects_reply_ = false;
}

}  // namespace ringside::testing
