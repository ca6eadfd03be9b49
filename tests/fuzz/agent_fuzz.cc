// Anybody's bytes as the frames of a host and of a guest's agent. What is taken for a message can
// be encoded, and then it is the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/agent_message.h"

namespace ringside {
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

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ringside::AgentFrame frame;
  while (ringside::ReadFrame(bytes, frame) == ringside::FrameState::kWhole) {
    ringside::Require(frame.size() <= bytes.size());
    ringside::Check(frame);
    bytes.remove_prefix(frame.size());
  }
  return 0;
}
