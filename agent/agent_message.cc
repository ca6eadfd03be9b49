#include "agent/agent_message.h"

#include <algorithm>

#include "agent/wire.h"

namespace ringside {
namespace {

constexpr uint32_t kHelloMagic = 0x47415352;  // "RSAG"
constexpr size_t kMostErrorText = 1024;
constexpr size_t kMostEntry = 20 + kMostName + kMostPath;

// The bits of EXEC's flags.
constexpr uint32_t kWithTerminal = 1;
constexpr uint32_t kWithUid = 2;
constexpr uint32_t kWithGid = 4;

// Of a payload; nothing for types that there are not.
std::optional<size_t> MostBytes(AgentType type) {
  switch (type) {
    case AgentType::kHello:
      return 12;
    case AgentType::kError:
      return 8 + kMostErrorText;
    case AgentType::kExec:
      return kMostExec;
    case AgentType::kStdin:
    case AgentType::kStdout:
    case AgentType::kStderr:
    case AgentType::kData:
      return kMostData;
    case AgentType::kDone:
    case AgentType::kStdinEnd:
    case AgentType::kFileEnd:
    case AgentType::kLeave:
    case AgentType::kTreeEnd:
    case AgentType::kPing:
      return 0;
    case AgentType::kSignal:
    case AgentType::kResize:
    case AgentType::kStarted:
    case AgentType::kStdinTaken:
    case AgentType::kShutDown:
      return 4;
    case AgentType::kExit:
    case AgentType::kClock:
      return 8;
    case AgentType::kPut:
    case AgentType::kGet:
      return 4 + kMostPath;
    case AgentType::kEntry:
      return kMostEntry;
    case AgentType::kEntropy:
      return 512;  // of a pool with 256 bits more are of no use
  }
  return std::nullopt;
}

bool IsPath(std::string_view text) {
  return text.starts_with('/') && text.size() <= kMostPath &&
         text.find('\0') == std::string_view::npos;
}

bool IsName(std::string_view text) {
  return text.size() <= kMostName && text != "." && text != ".." &&
         text.find('/') == std::string_view::npos && text.find('\0') == std::string_view::npos;
}

bool IsEntry(const EntryMessage& entry) {
  const bool is_link = entry.kind == EntryKind::kLink;
  if (!is_link && entry.kind != EntryKind::kFile && entry.kind != EntryKind::kDirectory) {
    return false;
  }
  return IsName(entry.name) && entry.target.empty() != is_link &&
         entry.target.size() <= kMostPath && entry.target.find('\0') == std::string_view::npos;
}

void TakeTexts(WireReader& reader, uint32_t count, std::vector<std::string_view>& texts) {
  for (uint32_t i = 0; i < count && !reader.is_short(); ++i) texts.push_back(reader.Text());
}

WireWriter Begin(AgentType type, size_t size, std::string& out) {
  WireWriter writer(out);
  writer.U32(static_cast<uint32_t>(size)).U16(static_cast<uint16_t>(type)).U16(0);
  return writer;
}

size_t SizeOf(const ExecMessage& message) {
  size_t size = 24 + message.directory.size() + 1;
  for (const auto* texts : {&message.arguments, &message.environment}) {
    for (const std::string_view text : *texts) size += text.size() + 1;
  }
  return size;
}

}  // namespace

FrameState ReadFrame(std::string_view bytes, AgentFrame& frame) {
  if (bytes.size() < kFrameHeader) return FrameState::kPartial;
  WireReader reader(bytes);
  const uint32_t length = reader.U32();
  frame.type = static_cast<AgentType>(reader.U16());
  const uint16_t reserved = reader.U16();
  const std::optional<size_t> most = MostBytes(frame.type);
  if (!most || length > *most || reserved != 0) return FrameState::kBroken;
  if (bytes.size() - kFrameHeader < length) return FrameState::kPartial;
  frame.payload = reader.Bytes(length);
  return FrameState::kWhole;
}

void AppendFrame(AgentType type, std::string_view payload, std::string& out) {
  Begin(type, payload.size(), out).Bytes(payload);
}

std::optional<HelloMessage> DecodeHello(std::string_view payload) {
  WireReader reader(payload);
  const uint32_t magic = reader.U32();
  HelloMessage hello;
  hello.version = reader.U16();
  const uint16_t reserved = reader.U16();
  hello.capabilities = reader.U32();
  if (!reader.is_exact() || magic != kHelloMagic || reserved != 0 || hello.version == 0) {
    return std::nullopt;
  }
  return hello;
}

std::optional<ErrorMessage> DecodeError(std::string_view payload) {
  WireReader reader(payload);
  ErrorMessage error;
  error.error = static_cast<int32_t>(reader.U32());
  error.of = static_cast<FaultOf>(reader.U32());
  error.text = reader.Rest();
  const bool is_known = error.of == FaultOf::kRequest || error.of == FaultOf::kProgram;
  if (!reader.is_exact() || !is_known) return std::nullopt;
  return error;
}

std::optional<ExecMessage> DecodeExec(std::string_view payload) {
  WireReader reader(payload);
  ExecMessage exec;
  const uint32_t flags = reader.U32();
  const uint32_t uid = reader.U32();
  const uint32_t gid = reader.U32();
  exec.size.rows = reader.U16();
  exec.size.columns = reader.U16();
  const uint32_t arguments = reader.U32();
  const uint32_t variables = reader.U32();
  exec.with_terminal = (flags & kWithTerminal) != 0;
  if ((flags & kWithUid) != 0) exec.uid = uid;
  if ((flags & kWithGid) != 0) exec.gid = gid;
  TakeTexts(reader, arguments, exec.arguments);
  TakeTexts(reader, variables, exec.environment);
  exec.directory = reader.Text();
  const bool is_known = (flags & ~(kWithTerminal | kWithUid | kWithGid)) == 0;
  if (!reader.is_exact() || !is_known || exec.arguments.empty()) return std::nullopt;
  return exec;
}

std::optional<TerminalSize> DecodeResize(std::string_view payload) {
  WireReader reader(payload);
  TerminalSize size;
  size.rows = reader.U16();
  size.columns = reader.U16();
  return reader.is_exact() ? std::optional(size) : std::nullopt;
}

std::optional<ExitMessage> DecodeExit(std::string_view payload) {
  WireReader reader(payload);
  ExitMessage exit;
  exit.code = reader.U32();
  exit.signal = reader.U32();
  if (!reader.is_exact() || exit.code > 255 || exit.signal > 64) return std::nullopt;
  return exit;
}

std::string NameOfTree(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  std::string name(path.substr(path.rfind('/') + 1));
  return name == "." || name == ".." ? "" : name;
}

std::optional<EntryMessage> DecodeEntry(std::string_view payload) {
  WireReader reader(payload);
  EntryMessage entry;
  entry.kind = static_cast<EntryKind>(reader.U32());
  entry.mode = reader.U32() & 0777;
  entry.size = reader.U64();
  entry.name = reader.Bytes(reader.U32());
  entry.target = reader.Rest();
  return reader.is_exact() && IsEntry(entry) ? std::optional(entry) : std::nullopt;
}

std::optional<GetMessage> DecodeGet(std::string_view payload) {
  WireReader reader(payload);
  GetMessage get;
  const uint32_t flags = reader.U32();
  get.with_directories = flags == 1;
  get.path = reader.Rest();
  return reader.is_exact() && flags <= 1 && IsPath(get.path) ? std::optional(get) : std::nullopt;
}

std::optional<std::string_view> DecodePut(std::string_view payload) {
  return IsPath(payload) ? std::optional(payload) : std::nullopt;
}

std::optional<ShutDownHow> DecodeShutDown(std::string_view payload) {
  const std::optional<uint32_t> number = DecodeNumber(payload);
  if (!number || *number > 1) return std::nullopt;
  return static_cast<ShutDownHow>(*number);
}

std::optional<uint32_t> DecodeNumber(std::string_view payload) {
  WireReader reader(payload);
  const uint32_t number = reader.U32();
  return reader.is_exact() ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> DecodeClock(std::string_view payload) {
  WireReader reader(payload);
  const auto ns = static_cast<int64_t>(reader.U64());
  return reader.is_exact() && ns >= 0 ? std::optional(ns) : std::nullopt;
}

void Encode(const HelloMessage& message, std::string& out) {
  Begin(AgentType::kHello, 12, out)
      .U32(kHelloMagic)
      .U16(message.version)
      .U16(0)
      .U32(message.capabilities);
}

void Encode(const ErrorMessage& message, std::string& out) {
  const std::string_view text = message.text.substr(0, kMostErrorText);
  Begin(AgentType::kError, 8 + text.size(), out)
      .U32(static_cast<uint32_t>(message.error))
      .U32(static_cast<uint32_t>(message.of))
      .Bytes(text);
}

bool Fits(const ExecMessage& message) {
  return SizeOf(message) <= kMostExec;
}

void Encode(const ExecMessage& message, std::string& out) {
  WireWriter writer = Begin(AgentType::kExec, SizeOf(message), out);
  writer
      .U32((message.with_terminal ? kWithTerminal : 0) | (message.uid ? kWithUid : 0) |
           (message.gid ? kWithGid : 0))
      .U32(message.uid.value_or(0))
      .U32(message.gid.value_or(0))
      .U16(message.size.rows)
      .U16(message.size.columns)
      .U32(static_cast<uint32_t>(message.arguments.size()))
      .U32(static_cast<uint32_t>(message.environment.size()));
  for (const std::string_view text : message.arguments) writer.Text(text);
  for (const std::string_view text : message.environment) writer.Text(text);
  writer.Text(message.directory);
}

void Encode(const TerminalSize& message, std::string& out) {
  Begin(AgentType::kResize, 4, out).U16(message.rows).U16(message.columns);
}

void Encode(const ExitMessage& message, std::string& out) {
  Begin(AgentType::kExit, 8, out).U32(message.code).U32(message.signal);
}

void Encode(const EntryMessage& message, std::string& out) {
  Begin(AgentType::kEntry, 20 + message.name.size() + message.target.size(), out)
      .U32(static_cast<uint32_t>(message.kind))
      .U32(message.mode)
      .U64(message.size)
      .U32(static_cast<uint32_t>(message.name.size()))
      .Bytes(message.name)
      .Bytes(message.target);
}

void Encode(const GetMessage& message, std::string& out) {
  Begin(AgentType::kGet, 4 + message.path.size(), out)
      .U32(message.with_directories ? 1 : 0)
      .Bytes(message.path);
}

void Encode(ShutDownHow how, std::string& out) {
  EncodeNumber(AgentType::kShutDown, static_cast<uint32_t>(how), out);
}

void EncodePut(std::string_view path, std::string& out) {
  AppendFrame(AgentType::kPut, path, out);
}

void EncodeNumber(AgentType type, uint32_t number, std::string& out) {
  Begin(type, 4, out).U32(number);
}

void EncodeClock(int64_t ns, std::string& out) {
  Begin(AgentType::kClock, 8, out).U64(static_cast<uint64_t>(ns));
}

}  // namespace ringside
