#include "tests/support/vmm/test_memory_handler.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <utility>

#include "base/pages.h"
#include "base/unix_address.h"

namespace ringside::testing {

TestMemoryHandler::TestMemoryHandler(std::string socket, const std::string& file, Conduct conduct)
    : socket_(std::move(socket)),
      conduct_(std::move(conduct)),
      file_(open(file.c_str(), O_RDONLY | O_CLOEXEC)),
      listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      end_(*EventFd::Create()) {
  unlink(socket_.c_str());
  const UnixAddress address = *UnixAddress::Of(socket_);
  if (!file_.valid() || bind(listener_.get(), address.address(), address.size()) != 0) {
    std::perror("no memory handler");
    std::abort();
  }
  if (conduct_.listen) {
    conduct_.listen(listener_.get());
  } else if (listen(listener_.get(), 1) != 0) {
    std::perror("the memory handler cannot listen");
    std::abort();
  }
  thread_ = std::thread([this] { Run(); });
}

void TestMemoryHandler::Close() {
  end_.Signal();
  if (thread_.joinable()) thread_.join();
}

const std::string& TestMemoryHandler::message() const {
  received_.WaitOrAbort();
  return message_;
}

void TestMemoryHandler::Run() {
  if (Accept() && Receive()) {
    if (conduct_.talks) Talk();
    if (conduct_.hangs_up) connection_ = {};
    while (AwaitOn(userfault_.get(), POLLIN) && Answer()) {
    }
  }
  userfault_ = {};
  connection_ = {};
  listener_ = {};
}

// Not if it is to end first.
bool TestMemoryHandler::AwaitOn(int fd, short events) const {
  pollfd watched[] = {{.fd = end_.fd(), .events = POLLIN, .revents = 0},
                      {.fd = fd, .events = events, .revents = 0}};
  return poll(watched, std::size(watched), -1) > 0 && watched[0].revents == 0;
}

bool TestMemoryHandler::Accept() {
  if (!AwaitOn(listener_.get(), POLLIN)) return false;
  connection_ = UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return connection_.valid() && AwaitOn(connection_.get(), POLLIN);
}

bool TestMemoryHandler::Receive() {
  std::array<char, 4096> text;
  iovec bytes = {.iov_base = text.data(), .iov_len = text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(connection_.get(), &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (got <= 0 || rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return false;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  userfault_ = UniqueFd(fd);
  message_.assign(text.data(), static_cast<size_t>(got));
  received_.Notify();
  return true;
}

void TestMemoryHandler::Talk() const {
  const std::array<char, 4096> nonsense = {};
  while (send(connection_.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL) > 0) {
  }
}

bool TestMemoryHandler::Answer() {
  uffd_msg event;
  if (read(userfault_.get(), &event, sizeof event) != sizeof event) return true;  // it was woken
  if (event.event != UFFD_EVENT_PAGEFAULT) return true;
  if (pages_.load() < conduct_.pages) {
    Give(event.arg.pagefault.address);
    return true;
  }
  refused_.Notify();
  if (conduct_.then == Then::kClose) return false;
  return AwaitOn(-1, 0);
}

void TestMemoryHandler::Give(uint64_t address) {
  std::array<char, kPageSize> page;
  for (const auto& piece : nlohmann::json::parse(message_)) {
    const uint64_t base = piece.at("base_host_virt_addr");
    if (address < base || address - base >= piece.at("size").get<uint64_t>()) continue;
    const uint64_t at = PageDown(address) - base;
    if (conduct_.fill.has_value()) {
      page.fill(*conduct_.fill);
    } else if (pread(file_.get(), page.data(), page.size(),
                     static_cast<off_t>(piece.at("offset").get<uint64_t>() + at)) !=
               std::ssize(page)) {
      std::fputs("the memory's file is too short for its pieces\n", stderr);
      std::abort();
    }
    uffdio_copy copy = {.dst = base + at,
                        .src = reinterpret_cast<uintptr_t>(page.data()),
                        .len = page.size(),
                        .mode = 0,
                        .copy = 0};
    ++pages_;  // first: whoever waits for the page may ask at once
    // Refused where another has asked for the page, too, or the machine is over.
    (void)ioctl(userfault_.get(), UFFDIO_COPY, &copy);
  }
}

}  // namespace ringside::testing
