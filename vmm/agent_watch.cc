#include "vmm/agent_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <sys/socket.h>
#include <utility>

#include "absl/strings/str_format.h"
#include "agent/agent_message.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/unix_address.h"
#include "base/unix_socket.h"

namespace ringside {
namespace {

// Bytes of "OK <port>\n", HELLO, an error and DONE, and more than those have.
constexpr size_t kMostSaid = 1280;
constexpr size_t kRandomBytes = 256;

// A question whose answer says that the agent is at work (docs/agent.md, Protocol). Empty: this
// host has no random bytes.
std::string Question(bool to_renew) {
  std::string question = absl::StrFormat("CONNECT %d\n", kAgentPort);
  Encode(HelloMessage{.capabilities = 0}, question);
  if (to_renew) {
    std::array<char, kRandomBytes> bytes;
    if (!FillRandom(std::as_writable_bytes(std::span(bytes))).ok()) return {};
    AppendFrame(AgentType::kEntropy, {bytes.data(), bytes.size()}, question);
  }
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

void AgentWatch::Begin() {
  if (begun_ns_ != 0) return;
  begun_ns_ = MonotonicNs();
  io_thread_.Post(connect_);
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
  const absl::StatusOr<UnixAddress> address = UnixAddress::Of(config_.path);
  UniqueFd fd = NewUnixSocket(SOCK_NONBLOCK);
  if (!address.ok() || !fd.valid()) return {};
  if (connect(fd.get(), address->address(), address->size()) != 0) return {};
  const std::string question = Question(to_renew_);
  const ssize_t sent = send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL);
  return sent > 0 && sent == std::ssize(question) ? std::move(fd) : UniqueFd();
}

void AgentWatch::Read() {
  const bool goes_on = ReadSome() && answered_ns_ == 0;  // an agent says nothing unasked
  const Said said = goes_on ? Parse() : Said::kWrong;
  if (said == Said::kWrong) return io_thread_.Post(gone_);  // not within the connection's own call
  if (said == Said::kAll) Answered();
  if (!is_wanted()) return io_thread_.Post(gone_);
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

AgentWatch::Said AgentWatch::Parse() {
  std::string_view rest = said_;
  const size_t line = rest.find('\n');
  if (line == std::string_view::npos) return Said::kPart;
  if (!rest.starts_with("OK ")) return Said::kWrong;
  rest.remove_prefix(line + 1);
  return ParseAnswers(rest);
}

// To HELLO, ENTROPY if that was asked, which may be refused, and PING.
AgentWatch::Said AgentWatch::ParseAnswers(std::string_view answers) {
  refusal_.clear();
  for (const AgentType asked : {AgentType::kHello, AgentType::kEntropy, AgentType::kPing}) {
    if (asked == AgentType::kEntropy && !to_renew_) continue;
    AgentFrame frame;
    const FrameState state = ReadFrame(answers, frame);
    if (state == FrameState::kPartial) return Said::kPart;
    if (state == FrameState::kBroken) return Said::kWrong;
    const AgentType wanted = asked == AgentType::kHello ? AgentType::kHello : AgentType::kDone;
    if (asked == AgentType::kEntropy && frame.type == AgentType::kError) {
      refusal_ = DecodeError(frame.payload).value_or(ErrorMessage{.text = "no reason"}).text;
    } else if (frame.type != wanted) {
      return Said::kWrong;
    }
    answers.remove_prefix(frame.size());
  }
  return answers.empty() ? Said::kAll : Said::kWrong;
}

void AgentWatch::Answered() {
  answered_ns_ = MonotonicNs();
  if (std::exchange(to_renew_, false) && !refusal_.empty()) {
    config_.log.Log(Severity::kWarning,
                    "the guest's agent cannot renew its random numbers, which other copies of it "
                    "may have, too: %s",
                    refusal_);
  }
  Tell(true);
}

void AgentWatch::Tell(bool up) {
  if (std::exchange(is_up_, up) != up && config_.told) config_.told(up);
}

bool AgentWatch::is_wanted() const {
  return config_.told || (to_renew_ && MonotonicNs() - begun_ns_ < kRenewalLimitNs);
}

void AgentWatch::Gone() {
  if (is_over_) return;
  const bool had_answered = answered_ns_ != 0;
  const int64_t now_ns = MonotonicNs();
  if (had_answered && now_ns - answered_ns_ >= kSteadyNs) delay_ns_ = kFirstDelayNs;
  Drop();
  if (!had_answered) Tell(false);
  if (!is_wanted()) return;
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
