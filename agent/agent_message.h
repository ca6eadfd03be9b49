// What a host and the agent in a guest say to each other: docs/agent.md has the protocol.
//
// A message is a frame: the payload's length (32 bits), its type (16 bits), 16 bits of zero, and
// the payload; all numbers are little-endian. Decoding is pure. It takes any bytes, allocates at
// most in proportion to them, and what it returns points into them. Neither this nor its source
// uses Abseil, because the agent, which has to be small, is built from them too.
//
// Threads: any; there is no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

inline constexpr uint32_t kAgentPort = 5005;  // of AF_VSOCK, where the agent listens
inline constexpr uint16_t kAgentVersion = 1;
inline constexpr size_t kFrameHeader = 8;         // bytes
inline constexpr size_t kMostData = 32 << 10;     // bytes of a payload that is data
inline constexpr size_t kMostExec = 256 << 10;    // bytes of a command, its environment included
inline constexpr size_t kStdinWindow = 64 << 10;  // bytes that a client may send ahead of a command
inline constexpr size_t kMostName = 255;          // bytes of one component of a path
inline constexpr size_t kMostPath = 4095;         // bytes
inline constexpr size_t kMostTreeDepth = 128;     // directories in each other

enum class AgentType : uint16_t {
  kHello = 1,  // both: the first of each side
  kError,      // agent
  kDone,       // agent

  kExec = 16,   // client
  kStdin,       // client
  kStdinEnd,    // client
  kSignal,      // client
  kResize,      // client
  kStarted,     // agent
  kStdout,      // agent
  kStderr,      // agent
  kStdinTaken,  // agent
  kExit,        // agent

  kPut = 32,  // client; a tree follows
  kGet,       // client; the agent answers with a tree
  kEntry,     // both, as are the next four: the parts of a tree
  kData,
  kFileEnd,
  kLeave,
  kTreeEnd,

  kClock = 48,  // client
  kEntropy,     // client
  kShutDown,    // client
  kPing,        // client
};

// Who can do what: the bits of HelloMessage::capabilities.
enum AgentCapability : uint32_t {
  kCanExec = 1,
  kCanCopy = 2,
  kCanSetClock = 4,
  kCanAddEntropy = 8,
  kCanShutDown = 16,
};
inline constexpr uint32_t kAgentCapabilities =
    kCanExec | kCanCopy | kCanSetClock | kCanAddEntropy | kCanShutDown;

struct AgentFrame {
  AgentType type{};
  std::string_view payload;
  size_t size() const { return kFrameHeader + payload.size(); }
};

enum class FrameState { kWhole, kPartial, kBroken };
// The frame that `bytes` begin with. It is broken if no more bytes can make a frame of it: its type
// is unknown, its length above what the type may have, or its reserved bits are set.
FrameState ReadFrame(std::string_view bytes, AgentFrame& frame);
void AppendFrame(AgentType type, std::string_view payload, std::string& out);

struct HelloMessage {
  uint16_t version = kAgentVersion;
  uint32_t capabilities = kAgentCapabilities;
};

// Whose fault an error is: what `ringside exec` makes its exit code of.
enum class FaultOf : uint32_t { kRequest, kProgram };

struct ErrorMessage {
  int32_t error = 0;  // Linux's number
  FaultOf of = FaultOf::kRequest;
  std::string_view text;  // of the guest's choice: nothing to print as it is
};

struct TerminalSize {
  uint16_t rows = 24;
  uint16_t columns = 80;
};

// A command. Each argument, each NAME=VALUE and the directory is without NUL; the directory is
// empty for the agent's own.
struct ExecMessage {
  bool with_terminal = false;
  TerminalSize size;            // of that
  std::optional<uint32_t> uid;  // unset: the agent's own
  std::optional<uint32_t> gid;
  std::vector<std::string_view> arguments;  // at least one
  std::vector<std::string_view> environment;
  std::string_view directory;
};

// Either a code or, if that is not 0, a signal.
struct ExitMessage {
  uint32_t code = 0;
  uint32_t signal = 0;
};

enum class EntryKind : uint32_t { kFile = 1, kDirectory, kLink };

// A file, which DATA and FILE_END follow; a directory, whose entries follow, and LEAVE; or a
// symbolic link.
struct EntryMessage {
  EntryKind kind = EntryKind::kFile;
  uint32_t mode = 0600;  // permissions: the lowest nine bits
  uint64_t size = 0;     // of a file, as it was: to show progress, and for nothing else
  // One component of a path, never "." or "..". Empty: the tree's receiver says it.
  std::string_view name;
  std::string_view target;  // of a link
};

struct GetMessage {
  bool with_directories = false;
  std::string_view path;  // absolute
};

enum class ShutDownHow : uint32_t { kPowerOff, kReboot };

// Nothing if the payload is not exactly one message of the kind.
std::optional<HelloMessage> DecodeHello(std::string_view payload);
std::optional<ErrorMessage> DecodeError(std::string_view payload);
std::optional<ExecMessage> DecodeExec(std::string_view payload);
std::optional<TerminalSize> DecodeResize(std::string_view payload);
std::optional<ExitMessage> DecodeExit(std::string_view payload);
// The name that the tree at a path gets in a receiver's directory. Empty: it has none of its own.
std::string NameOfTree(std::string_view path);
std::optional<EntryMessage> DecodeEntry(std::string_view payload);
std::optional<GetMessage> DecodeGet(std::string_view payload);
std::optional<std::string_view> DecodePut(std::string_view payload);  // the path
std::optional<ShutDownHow> DecodeShutDown(std::string_view payload);
// SIGNAL's number, STARTED's process id, STDIN_TAKEN's bytes.
std::optional<uint32_t> DecodeNumber(std::string_view payload);
std::optional<int64_t> DecodeClock(std::string_view payload);  // nanoseconds since 1970

// Appends the message's frame.
void Encode(const HelloMessage& message, std::string& out);
void Encode(const ErrorMessage& message, std::string& out);  // of its text as much as fits
void Encode(const ExecMessage& message, std::string& out);
void Encode(const TerminalSize& message, std::string& out);
void Encode(const ExitMessage& message, std::string& out);
void Encode(const EntryMessage& message, std::string& out);
void Encode(const GetMessage& message, std::string& out);
void Encode(ShutDownHow how, std::string& out);
void EncodePut(std::string_view path, std::string& out);
void EncodeNumber(AgentType type, uint32_t number, std::string& out);
void EncodeClock(int64_t ns, std::string& out);

// Whether the message fits its frame: commands are as long as their user makes them.
bool Fits(const ExecMessage& message);

}  // namespace ringside
