#include "agent/guest/agent_connection.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>

#include "agent/guest/guest_system.h"

namespace ringside {
namespace {

constexpr size_t kMostQueued = 64 << 10;  // bytes, before more is produced
constexpr size_t kMostInput = kFrameHeader + kMostExec;
constexpr size_t kMostGreeting = 32;
constexpr int64_t kAskWithinNs = 10'000'000'000;  // for the first request
constexpr int64_t kLingerNs = 1'000'000'000;      // for the client to close its end

}  // namespace

AgentConnection::AgentConnection(UniqueFd fd, bool with_greeting, AgentState& agent, int64_t now_ns)
    : fd_(std::move(fd)),
      agent_(agent),
      state_(with_greeting ? State::kGreeting : State::kHello),
      ask_by_ns_(now_ns + kAskWithinNs),
      last_turn_ns_(now_ns) {
  if (!with_greeting) Encode(HelloMessage{}, out_);
}

// A command's client is heard however much it has not read: its signals matter then, too, and its
// window bounds the rest. What comes at the end is dropped: closing a socket with bytes that were
// not read resets it, and could take from the client what it has not read. Other requests wait
// until their answers have room.
bool AgentConnection::WantsInput() const {
  if (state_ == State::kGet) return false;
  return state_ == State::kExec || state_ == State::kClosing || out_.size() < kMostQueued;
}

void AgentConnection::AddPolls(std::vector<pollfd>& polls) const {
  const int in = WantsInput() ? POLLIN : 0;
  const int out = out_.empty() && !get_ ? 0 : POLLOUT;
  // The client's end of the stream is its departure, whatever is still to be read.
  polls.push_back({fd_.get(), static_cast<short>(in | out | POLLRDHUP), 0});
  if (session_ && state_ == State::kExec) session_->AddPolls(polls, out_.size() < kMostQueued);
}

std::optional<int64_t> AgentConnection::deadline_ns() const {
  if (close_at_ns_) return close_at_ns_;
  if (ask_by_ns_) return ask_by_ns_;
  if (!session_ || state_ != State::kExec || out_.size() >= kMostQueued) return std::nullopt;
  return session_->deadline_ns();
}

std::optional<int64_t> AgentConnection::idle_since_ns() const {
  const bool is_idle = state_ == State::kIdle && !ask_by_ns_ && in_.empty() && out_.empty();
  return is_idle ? std::optional(last_turn_ns_) : std::nullopt;
}

void AgentConnection::Turn(short revents, int64_t now_ns) {
  last_turn_ns_ = now_ns;
  if ((revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0) {
    is_over_ = true;
    return;
  }
  if ((revents & POLLIN) != 0) Read();
  if (is_over_) return;
  if (session_ && state_ == State::kExec) session_->Turn(out_, kMostQueued, now_ns);
  if (session_ && session_->is_over()) {
    session_.reset();
    state_ = State::kClosing;
  }
  if (get_) StepGet();
  if (ask_by_ns_ && now_ns >= *ask_by_ns_) Break("nothing was asked for");
  if (!out_.empty()) Write();
  CloseIfDue(now_ns);
}

void AgentConnection::CloseIfDue(int64_t now_ns) {
  if (state_ != State::kClosing || !out_.empty()) return;
  if (!close_at_ns_) close_at_ns_ = now_ns + kLingerNs;
  if (now_ns >= *close_at_ns_) is_over_ = true;
}

void AgentConnection::Read() {
  std::array<char, kMostData> data;
  const ssize_t got = recv(fd_.get(), data.data(), data.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    is_over_ = true;
    return;
  }
  if (state_ == State::kClosing) return;
  in_.append(data.data(), static_cast<size_t>(got));
  TakeInput();
}

void AgentConnection::Write() {
  const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) {
    out_.erase(0, static_cast<size_t>(sent));
  } else if (errno != EAGAIN && errno != EINTR) {
    is_over_ = true;
  }
}

void AgentConnection::TakeInput() {
  if (state_ == State::kGreeting && !TakeGreeting()) return;
  size_t taken = 0;
  while (state_ != State::kClosing && state_ != State::kGet) {
    AgentFrame frame;
    const FrameState found = ReadFrame(std::string_view(in_).substr(taken), frame);
    if (found == FrameState::kBroken) Break("what was sent is no message");
    if (found != FrameState::kWhole) break;
    Take(frame);
    taken += frame.size();
  }
  in_.erase(0, taken);
  if (in_.size() > kMostInput) Break("what was sent is no message");
}

// Firecracker's convention for vsock behind a Unix socket.
bool AgentConnection::TakeGreeting() {
  constexpr std::string_view kConnect = "CONNECT ";
  const size_t end = in_.find('\n');
  if (end == std::string::npos && in_.size() < kMostGreeting) return false;
  if (end == std::string::npos || !in_.starts_with(kConnect)) {
    is_over_ = true;
    return false;
  }
  out_ += "OK " + in_.substr(kConnect.size(), end - kConnect.size()) + "\n";
  in_.erase(0, end + 1);
  Encode(HelloMessage{}, out_);
  state_ = State::kHello;
  return true;
}

void AgentConnection::Take(const AgentFrame& frame) {
  switch (state_) {
    case State::kHello:
      if (frame.type != AgentType::kHello || !DecodeHello(frame.payload)) {
        Break("the first message is no hello");
      } else {
        state_ = State::kIdle;
      }
      return;
    case State::kIdle:
      TakeRequest(frame);
      return;
    case State::kExec:
      TakeOfCommand(frame);
      return;
    case State::kPut:
    case State::kPutFailed:
      TakeOfTree(frame);
      return;
    default:
      Break("a message is out of order");
  }
}

void AgentConnection::TakeRequest(const AgentFrame& frame) {
  ask_by_ns_.reset();
  switch (frame.type) {
    case AgentType::kExec:
      StartCommand(frame);
      return;
    case AgentType::kPut:
      StartPut(frame);
      return;
    case AgentType::kGet:
      StartGet(frame);
      return;
    case AgentType::kPing:
      Answer({});
      return;
    case AgentType::kClock:
      if (const auto ns = DecodeClock(frame.payload)) {
        Answer(SetClock(*ns));
        return;
      }
      break;
    case AgentType::kEntropy:
      Answer(AddEntropy(frame.payload));
      return;
    case AgentType::kShutDown:
      if (const auto how = DecodeShutDown(frame.payload)) {
        agent_.shut_down = how;
        Answer({});
        return;
      }
      break;
    default:
      break;
  }
  Break("a message is malformed or out of order");
}

void AgentConnection::StartCommand(const AgentFrame& frame) {
  const std::optional<ExecMessage> command = DecodeExec(frame.payload);
  if (!command) {
    Break("a message is malformed or out of order");
    return;
  }
  GuestChild child;
  FaultOf of = FaultOf::kRequest;
  if (const AgentFault fault = StartChild(*command, agent_.files, child, of)) {
    Answer(fault, of);
    return;
  }
  EncodeNumber(AgentType::kStarted, static_cast<uint32_t>(child.pid), out_);
  session_ = std::make_unique<ExecSession>(std::move(child), command->with_terminal);
  state_ = State::kExec;
}

void AgentConnection::TakeOfCommand(const AgentFrame& frame) {
  bool is_fine = false;
  switch (frame.type) {
    case AgentType::kStdin:
      is_fine = session_->TakeStdin(frame.payload);
      break;
    case AgentType::kStdinEnd:
      is_fine = session_->EndStdin();
      break;
    case AgentType::kSignal:
      if (const auto number = DecodeNumber(frame.payload)) is_fine = session_->Signal(*number);
      break;
    case AgentType::kResize:
      if (const auto size = DecodeResize(frame.payload)) {
        session_->Resize(*size);
        is_fine = true;
      }
      break;
    default:
      break;
  }
  if (!is_fine) Break("a message is malformed or out of order");
}

void AgentConnection::StartPut(const AgentFrame& frame) {
  const std::optional<std::string_view> path = DecodePut(frame.payload);
  if (!path) {
    Break("a message is malformed or out of order");
    return;
  }
  put_ = std::make_unique<TreeWriter>();
  state_ = State::kPut;
  if (const AgentFault fault = put_->Open(*path)) {
    state_ = State::kPutFailed;
    Answer(fault);
  }
}

void AgentConnection::TakeOfTree(const AgentFrame& frame) {
  if (state_ == State::kPut) {
    const AgentFault fault = put_->Take(frame);
    if (fault.error == EPROTO) {
      Break(fault.text);
      return;
    }
    if (fault) {
      state_ = State::kPutFailed;
      Answer(fault);
    } else if (put_->is_complete()) {
      Answer({});
    }
  }
  if (state_ == State::kPutFailed) put_.reset();  // nothing half done stays for long
  if (frame.type != AgentType::kTreeEnd) return;
  put_.reset();
  state_ = State::kIdle;
}

void AgentConnection::StartGet(const AgentFrame& frame) {
  const std::optional<GetMessage> get = DecodeGet(frame.payload);
  if (!get) {
    Break("a message is malformed or out of order");
    return;
  }
  get_ = std::make_unique<TreeReader>();
  get_->Open(get->path, get->with_directories);
  state_ = State::kGet;
}

void AgentConnection::StepGet() {
  while (get_ && out_.size() < kMostQueued) {
    const AgentFault fault = get_->Step(out_);
    if (fault) Answer(fault);
    if (!fault && !get_->is_complete()) continue;
    get_.reset();
    state_ = State::kIdle;
    TakeInput();  // what came behind the request
  }
}

void AgentConnection::Answer(const AgentFault& fault, FaultOf of) {
  if (!fault) {
    AppendFrame(AgentType::kDone, {}, out_);
  } else {
    Encode(ErrorMessage{.error = fault.error, .of = of, .text = fault.text}, out_);
  }
}

void AgentConnection::Break(std::string_view why) {
  Answer({EPROTO, std::string(why)});
  state_ = State::kClosing;
  ask_by_ns_.reset();
}

}  // namespace ringside
