#include "agent/client.h"

#include "base/printable.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr size_t kMostQueued = 256 << 10;  // bytes, before they are sent

absl::Status CheckPath(std::string_view path) {
  const bool is_path = path.starts_with('/') && path.size() <= kMostPath &&
                       path.find('\0') == std::string_view::npos;
  if (is_path) return absl::OkStatus();
  return BadInput("'%s' is no absolute path in a guest; give such as /tmp/file", Printable(path));
}

}  // namespace

absl::Status StatusOfFault(const AgentFault& fault) {
  if (!fault) return absl::OkStatus();
  return {absl::ErrnoToStatusCode(fault.error), Printable(fault.text)};
}

absl::StatusOr<AgentClient> AgentClient::Connect(const std::string& path, uint32_t port,
                                                 const AgentTime& time) {
  RINGSIDE_ASSIGN_OR_RETURN(AgentChannel channel, AgentChannel::Connect(path, port, time));
  return AgentClient(std::move(channel));
}

absl::Status AgentClient::Ask() {
  RINGSIDE_RETURN_IF_ERROR(channel_.FlushAll());
  return channel_.ReceiveDone();
}

absl::Status AgentClient::Ping() {
  AppendFrame(AgentType::kPing, {}, channel_.out());
  return Ask();
}

absl::Status AgentClient::SetClock(absl::Time now) {
  EncodeClock(absl::ToUnixNanos(now), channel_.out());
  return Ask();
}

absl::Status AgentClient::AddEntropy(std::string_view bytes) {
  constexpr size_t kMost = 512;
  if (bytes.size() > kMost)
    return BadInput("%d bytes are more than the %d of one call", bytes.size(), kMost);
  AppendFrame(AgentType::kEntropy, bytes, channel_.out());
  return Ask();
}

absl::Status AgentClient::ShutDown(ShutDownHow how) {
  Encode(how, channel_.out());
  return Ask();
}

absl::Status AgentClient::Put(TreeReader& tree, std::string_view path, const Progress& progress) {
  RINGSIDE_RETURN_IF_ERROR(CheckPath(path));
  std::string& out = channel_.out();
  EncodePut(path, out);
  while (!tree.is_complete()) {
    RINGSIDE_RETURN_IF_ERROR(StatusOfFault(tree.Step(out)));
    progress(tree.file_read(), tree.file_size());
    if (out.size() < kMostQueued && !tree.is_complete()) continue;
    RINGSIDE_RETURN_IF_ERROR(channel_.FlushAll());
    // An error comes early; what is still to be sent would be dropped.
    RINGSIDE_RETURN_IF_ERROR(channel_.Fill());
    RINGSIDE_ASSIGN_OR_RETURN(const std::optional<AgentFrame> early, channel_.Next());
    if (early && early->type == AgentType::kError) return StatusOfError(*early);
    if (early && tree.is_complete() && early->type == AgentType::kDone) return absl::OkStatus();
    if (early) return AgentBroke("an answer out of order");
  }
  return channel_.ReceiveDone();
}

absl::Status AgentClient::Get(std::string_view path, bool with_directories,
                              const std::function<absl::Status(const AgentFrame&)>& take) {
  RINGSIDE_RETURN_IF_ERROR(CheckPath(path));
  Encode(GetMessage{.with_directories = with_directories, .path = path}, channel_.out());
  RINGSIDE_RETURN_IF_ERROR(channel_.FlushAll());
  for (;;) {
    RINGSIDE_ASSIGN_OR_RETURN(const AgentFrame frame, channel_.Receive());
    if (frame.type == AgentType::kError) return StatusOfError(frame);
    RINGSIDE_RETURN_IF_ERROR(take(frame));
    if (frame.type == AgentType::kTreeEnd) return absl::OkStatus();
  }
}

}  // namespace ringside
