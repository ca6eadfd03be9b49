#include "vmm/agent_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <sys/socket.h>
#include <utility>

#include "absl/strings/str_format.h"
#include "agent/agent_message.h"
#include "base/clock.h"
#include "base/unix_address.h"

namespace ringside {
namespace {

constexpr size_t kMostSaid =
    256;  // bytes of "OK <port>\n", HELLO and DONE, and more than those have

// A question whose answer says that the agent is at work (docs/agent.md, Protocol).
std::string Question() {
  std::string question = absl::StrFormat("CONNECT %d\n", kAgentPort);
  Encode(HelloMessage{.capabilities = 0}, question);
  AppendFrame(AgentType::kPing, {}, question);
  return question;
}

}  // namespace

AgentWatch::~AgentWatch() {
  io_thread_.RunAndWait([this] {
    is_over_ = true;
    Drop();
  });
  // What was posted before may run after that, and does nothing; it has run when this has.
  io_thread_.RunAndWait([] {});
}

void AgentWatch::Connect() {
  if (is_over_) return;
  UniqueFd fd = Ask();
  if (!fd.valid()) return Gone();
  connection_.emplace(std::move(fd), *this);
  io_thread_.Arm(*connection_);
}

// Without waiting; no descriptor if nobody can be asked now.
UniqueFd AgentWatch::Ask() const {
  const absl::StatusOr<UnixAddress> address = UnixAddress::Of(path_);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address.ok() || !fd.valid()) return {};
  if (connect(fd.get(), address->address(), address->size()) != 0) return {};
  const std::string question = Question();
  const ssize_t sent = send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL);
  return sent == std::ssize(question) ? std::move(fd) : UniqueFd();
}

void AgentWatch::Read() {
  const bool goes_on = ReadSome() && answered_ns_ == 0;  // an agent says nothing unasked
  const Said said = goes_on ? Parse() : Said::kWrong;
  if (said == Said::kWrong) return io_thread_.Post(gone_);  // not within the connection's own call
  if (said == Said::kAll) Answered();
  io_thread_.Arm(*connection_);
}

// False at the connection's end.
bool AgentWatch::ReadSome() {
  std::array<char, kMostSaid> some;
  const ssize_t got = recv(connection_->fd(), some.data(), some.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  said_.append(some.data(), static_cast<size_t>(got));
  return got > 0 && said_.size() <= kMostSaid;
}

AgentWatch::Said AgentWatch::Parse() const {
  std::string_view rest = said_;
  const size_t line = rest.find('\n');
  if (line == std::string_view::npos) return Said::kPart;
  if (!rest.starts_with("OK ")) return Said::kWrong;
  rest.remove_prefix(line + 1);
  for (const AgentType wanted : {AgentType::kHello, AgentType::kDone}) {
    AgentFrame frame;
    const FrameState state = ReadFrame(rest, frame);
    if (state == FrameState::kPartial) return Said::kPart;
    if (state == FrameState::kBroken || frame.type != wanted) return Said::kWrong;
    rest.remove_prefix(frame.size());
  }
  return rest.empty() ? Said::kAll : Said::kWrong;
}

void AgentWatch::Answered() {
  answered_ns_ = MonotonicNs();
  if (!std::exchange(is_up_, true)) told_(true);
}

void AgentWatch::Gone() {
  if (is_over_) return;
  const bool had_answered = answered_ns_ != 0;
  const int64_t now_ns = MonotonicNs();
  if (had_answered && now_ns - answered_ns_ >= kSteadyNs) delay_ns_ = kFirstDelayNs;
  Drop();
  if (!had_answered && std::exchange(is_up_, false)) told_(false);
  io_thread_.Arm(again_, now_ns + delay_ns_);
  delay_ns_ = std::min(delay_ns_ + delay_ns_ / 4, kLastDelayNs);
}

void AgentWatch::Drop() {
  if (connection_) io_thread_.Disarm(*connection_);
  io_thread_.Disarm(again_);
  connection_.reset();
  said_.clear();
  answered_ns_ = 0;
}

}  // namespace ringside
