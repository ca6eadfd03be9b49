// What is asked of the guest's agent, through the machine's own vsock.
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "api/api_handlers.h"
#include "api/operations.h"
#include "base/status.h"
#include "ringside/guest_agent.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

// Of the output and of the errors of a command: both are a third of what is kept of results, as
// they are in base64 when they are longest.
constexpr size_t kMostText = Operations::kMostKept / 6;

absl::StatusOr<GuestAgent> AgentOf(MachineControl& control) {
  RINGSIDE_RETURN_IF_ERROR(control.machine().status());
  const std::optional<VsockConfig> vsock = control.options().machine.vsock;
  if (vsock) return GuestAgent(vsock->path);
  return absl::FailedPreconditionError(
      "the machine has no vsock, by which its guest's agent is reached: give it --vsock");
}

std::vector<std::string> WordsOf(const ApiArguments& given, const char* name) {
  return given.Has(name) ? given.Get(name).get<std::vector<std::string>>()
                         : std::vector<std::string>();
}

std::optional<uint32_t> IdOf(const ApiArguments& given, const char* name) {
  if (!given.Has(name)) return std::nullopt;
  return static_cast<uint32_t>(given.Whole(name));
}

absl::StatusOr<std::string> InputOf(const ApiArguments& given) {
  std::string text = given.Text("input");
  if (!given.Switch("base64")) return text;
  std::string bytes;
  if (absl::Base64Unescape(text, &bytes)) return bytes;
  return BadInput("input is not base64, though base64 is true");
}

const char* HowName(GuestCommandEnd::How how) {
  switch (how) {
    case GuestCommandEnd::How::kExited:
      return "exited";
    case GuestCommandEnd::How::kKilled:
      return "killed";
    case GuestCommandEnd::How::kTimedOut:
      return "timed-out";
  }
  return "?";
}

// Bytes that one of a text takes in JSON at the most (RFC 8259, section 7). Where it is no UTF-8,
// of which JSON has nothing else, three stand in its place.
size_t MostInJson(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x80) return 3;
  if (absl::StrContains("\b\t\n\f\r\"\\", c)) return 2;
  return byte < 0x20 ? 6 : 1;
}

// What does not fit into kMostText as JSON is cut, so that it does.
std::string CutForJson(std::string text, bool& was_cut) {
  if (text.size() <= kMostText / 6) return text;
  const size_t size = JsonText(text).size();
  if (size <= kMostText) return text;
  size_t taken = 0;
  for (size_t room = kMostText - 2; MostInJson(text[taken]) <= room; ++taken) {
    room -= MostInJson(text[taken]);
  }
  text.resize(taken);
  was_cut = true;
  return text;
}

Json CommandEndJson(GuestCommandEnd end, bool base64) {
  const auto bytes = [&](std::string text) {
    return base64 ? absl::Base64Escape(text) : CutForJson(std::move(text), end.was_cut);
  };
  Json output = bytes(std::move(end.output));
  Json errors = bytes(std::move(end.errors));
  return {{"how", HowName(end.how)},
          {"code", static_cast<uint64_t>(end.code)},
          {"signal", static_cast<uint64_t>(end.signal)},
          {"output", std::move(output)},
          {"errors", std::move(errors)},
          {"was_cut", end.was_cut}};
}

}  // namespace

Json CommandEndSample() {
  return CommandEndJson({}, false);
}

absl::StatusOr<Json> PingAgent(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgent agent, AgentOf(control));
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgentVersion version, agent.Ping());
  return Json{{"protocol", version.protocol}, {"capabilities", version.capabilities}};
}

absl::StatusOr<Json> ExecInGuest(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgent agent, AgentOf(control));
  RINGSIDE_ASSIGN_OR_RETURN(std::string input, InputOf(given));
  RINGSIDE_ASSIGN_OR_RETURN(GuestCommandEnd end,
                            agent.Exec({.arguments = WordsOf(given, "command"),
                                        .environment = WordsOf(given, "environment"),
                                        .directory = given.Text("directory"),
                                        .uid = IdOf(given, "uid"),
                                        .gid = IdOf(given, "gid"),
                                        .input = std::move(input),
                                        .limit = given.Time("limit"),
                                        .most_output = given.Whole("most-output")}));
  return CommandEndJson(std::move(end), given.Switch("base64"));
}

absl::StatusOr<Json> CopyIn(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgent agent, AgentOf(control));
  RINGSIDE_RETURN_IF_ERROR(agent.CopyIn(given.Text("from"), given.Text("to"),
                                        given.Switch("directories"), given.Time("limit")));
  return Json();
}

absl::StatusOr<Json> CopyOut(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgent agent, AgentOf(control));
  RINGSIDE_RETURN_IF_ERROR(agent.CopyOut(given.Text("from"), given.Text("to"),
                                         given.Switch("directories"), given.Time("limit"),
                                         given.Whole("most-bytes")));
  return Json();
}

absl::StatusOr<Json> SetGuestClock(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgent agent, AgentOf(control));
  RINGSIDE_RETURN_IF_ERROR(agent.SetClock(absl::Now()));
  return Json();
}

absl::StatusOr<Json> RenewRandomness(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgent agent, AgentOf(control));
  RINGSIDE_RETURN_IF_ERROR(agent.RenewRandomness());
  return Json();
}

absl::StatusOr<Json> ShutDownGuest(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(const GuestAgent agent, AgentOf(control));
  RINGSIDE_RETURN_IF_ERROR(agent.ShutDown(given.Switch("reboot")));
  return Json();
}

}  // namespace ringside
