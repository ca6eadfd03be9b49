// Anybody's bytes as the frames of a host and of a guest's agent: what is taken for a message can
// be encoded, and then it is the same bytes again. Then the same bytes as a client of an agent's
// connection, which runs no command and writes into a directory of its own; its answers are frames.
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/socket.h>

#include "agent/agent_message.h"
#include "agent/guest/agent_connection.h"
#include "agent/guest/guest_system.h"

namespace ringside {

// Instead of those of the agent: nothing of this host may change, whatever the bytes ask for. A
// process with the number cannot be, so signals reach nobody.
AgentFault StartChild(const ExecMessage& command, const rlimit& files, GuestChild& child,
                      FaultOf& of) {
  of = FaultOf::kProgram;
  if (command.arguments.front().empty() || files.rlim_cur != 0) return {ENOENT, "refused"};
  child.pid = 2'000'000'000;
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return {errno, "no sockets"};
  }
  child.in = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  if (command.directory.empty()) {
    if (write(theirs.get(), "words", 5) != 5) return {errno, "no room"};
    child.out = UniqueFd(fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
  } else {
    child.out = UniqueFd(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  }
  return {};
}
void SetTerminalSize(int, TerminalSize) {}
AgentFault SetClock(int64_t ns) {
  return ns % 2 == 0 ? AgentFault{} : AgentFault{EPERM, "refused"};
}
AgentFault AddEntropy(std::string_view) {
  return {};
}

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

bool IsWithin(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

template <typename Message>
void CheckSame(const std::optional<Message>& message, std::string_view payload) {
  if (!message) return;
  std::string again;
  Encode(*message, again);
  Require(std::string_view(again).substr(kFrameHeader) == payload);
}

void CheckCommand(std::string_view payload) {
  const std::optional<ExecMessage> command = DecodeExec(payload);
  if (!command) return;
  Require(Fits(*command) && !command->arguments.empty());
  for (const std::string_view text : command->arguments) Require(IsWithin(text, payload));
  std::string again;
  Encode(*command, again);
  // Numbers of a user that was not given are not kept.
  Require(again.size() == kFrameHeader + payload.size());
  CheckSame(DecodeExec(std::string_view(again).substr(kFrameHeader)),
            std::string_view(again).substr(kFrameHeader));
}

void CheckEntry(std::string_view payload) {
  const std::optional<EntryMessage> entry = DecodeEntry(payload);
  if (!entry) return;
  Require(entry->name.find('/') == std::string_view::npos && entry->name != "..");
  Require(entry->mode <= 0777 && IsWithin(entry->name, payload));
  Require(IsWithin(entry->target, payload));
}

void Check(const AgentFrame& frame) {
  const std::string_view payload = frame.payload;
  switch (frame.type) {
    case AgentType::kHello:
      CheckSame(DecodeHello(payload), payload);
      break;
    case AgentType::kError:
      CheckSame(DecodeError(payload), payload);
      break;
    case AgentType::kExec:
      CheckCommand(payload);
      break;
    case AgentType::kResize:
      CheckSame(DecodeResize(payload), payload);
      break;
    case AgentType::kExit:
      CheckSame(DecodeExit(payload), payload);
      break;
    case AgentType::kEntry:
      CheckEntry(payload);
      break;
    case AgentType::kGet:
      CheckSame(DecodeGet(payload), payload);
      break;
    case AgentType::kShutDown:
      CheckSame(DecodeShutDown(payload), payload);
      break;
    case AgentType::kPut:
      if (const auto path = DecodePut(payload)) Require(*path == payload);
      break;
    case AgentType::kClock:
      if (const auto ns = DecodeClock(payload)) Require(*ns >= 0);
      break;
    default:
      if (DecodeNumber(payload)) Require(payload.size() == 4);
  }
}

// A directory for trees, made when one is asked for.
class Place {
 public:
  ~Place() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() {
    if (!path_.empty()) return path_;
    path_ = std::filesystem::temp_directory_path() / "agent-fuzz-XXXXXX";
    Require(mkdtemp(path_.data()) != nullptr);
    return path_;
  }

 private:
  std::string path_;
};

// The same bytes, but that each tree goes to or comes from that directory.
std::string InPlace(std::string_view bytes, Place& place) {
  std::string out;
  AgentFrame frame;
  while (ReadFrame(bytes, frame) == FrameState::kWhole) {
    const bool is_put = frame.type == AgentType::kPut && DecodePut(frame.payload);
    if (is_put) {
      EncodePut(place.path() + (frame.payload.size() % 2 == 0 ? "" : "/top"), out);
    } else if (const auto get = DecodeGet(frame.payload); frame.type == AgentType::kGet && get) {
      Encode(GetMessage{.with_directories = get->with_directories, .path = place.path()}, out);
    } else {
      out.append(bytes.substr(0, frame.size()));
    }
    bytes.remove_prefix(frame.size());
  }
  return out.append(bytes);
}

// Reads what the connection says, as long as it does.
void Drain(int fd, std::string& said) {
  std::array<char, 65536> data;
  ssize_t got;
  while ((got = recv(fd, data.data(), data.size(), MSG_DONTWAIT)) > 0) {
    said.append(data.data(), static_cast<size_t>(got));
    AgentFrame frame;
    while (ReadFrame(said, frame) == FrameState::kWhole) said.erase(0, frame.size());
    Require(ReadFrame(said, frame) == FrameState::kPartial);
  }
}

void BeAClient(std::string_view bytes) {
  std::array<int, 2> ends;
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  Place place;
  const UniqueFd client(ends[0]);
  AgentState agent;
  int64_t now_ns = 0;
  AgentConnection connection(UniqueFd(ends[1]), false, agent, now_ns);
  std::string input, said;
  Encode(HelloMessage{}, input);
  input += InPlace(bytes, place);
  const ssize_t sent = send(client.get(), input.data(), input.size(), MSG_NOSIGNAL);
  Require(sent == static_cast<ssize_t>(input.size()));
  for (int turn = 0; turn < 8 && !connection.is_over(); ++turn) {
    std::vector<pollfd> polls;
    connection.AddPolls(polls);
    Require(!polls.empty() && polls[0].fd == ends[1]);
    connection.Turn(static_cast<short>(POLLIN & polls[0].events), now_ns += 1'000'000);
    Drain(client.get(), said);
    if (connection.session() != nullptr && turn == 4) connection.session()->Reaped(0, now_ns);
  }
}

}  // namespace
}  // namespace ringside

// As the agent's main does: a command may be gone before its input.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  std::signal(SIGPIPE, SIG_IGN);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringside::BeAClient(std::string_view(reinterpret_cast<const char*>(data), size));
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ringside::AgentFrame frame;
  while (ringside::ReadFrame(bytes, frame) == ringside::FrameState::kWhole) {
    ringside::Require(frame.size() <= bytes.size());
    ringside::Check(frame);
    bytes.remove_prefix(frame.size());
  }
  return 0;
}
