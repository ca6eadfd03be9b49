#include "command/exec_command.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "agent/agent_channel.h"
#include "agent/exec_client.h"
#include "base/log.h"
#include "base/status.h"
#include "command/agent_socket.h"
#include "command/exec_pump.h"
#include "command/terminal.h"

namespace ringside {
namespace {

constexpr int kExitCannotRun = 126;
constexpr int kExitNotFound = 127;

constexpr char kHelp[] =
    "The agent, ringside-agent, has to run in the guest. SIGINT, SIGTERM and SIGHUP go to the "
    "command; SIGQUIT ends 'ringside exec', and with it the command.\n\n"
    "Examples:\n"
    "  ringside exec --vsock vm.vsock -- uname -r\n"
    "  ringside exec --vsock vm.vsock -it -- /bin/sh\n"
    "  tar c data | ringside exec --vsock vm.vsock -i -- tar x -C /srv\n"
    "  ringside exec --vsock vm.vsock --env LANG=C --workdir /srv --user 1000:1000 -- ./work\n\n"
    "Exit codes: the command's, 128 + n if signal n ended it, 125 'ringside exec' failed, 126 the "
    "command cannot be run, 127 it is not there.";

absl::StatusOr<uint32_t> ParseId(std::string_view text, const std::string& user) {
  uint32_t id = 0;
  if (absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &id)) return id;
  return BadInput("--user '%s' is not UID or UID:GID, for example 1000:1000", user);
}

absl::Status ReadUser(const std::string& user, ExecMessage& command) {
  if (user.empty()) return absl::OkStatus();
  const std::string_view text = user;
  const size_t colon = text.find(':');
  RINGSIDE_ASSIGN_OR_RETURN(command.uid, ParseId(text.substr(0, colon), user));
  if (colon == std::string_view::npos) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(command.gid, ParseId(text.substr(colon + 1), user));
  return absl::OkStatus();
}

// It points into the options.
absl::StatusOr<ExecMessage> CommandOf(const ExecOptions& options) {
  ExecMessage command = {.with_terminal = options.terminal, .directory = options.directory};
  RINGSIDE_RETURN_IF_ERROR(ReadUser(options.user, command));
  ReadTerminalSize(command.size);
  command.arguments.assign(options.command.begin(), options.command.end());
  for (const std::string& variable : options.environment) {
    if (variable.find('=') == std::string::npos || variable.starts_with('=')) {
      return BadInput("--env '%s' is not NAME=VALUE", variable);
    }
    command.environment.push_back(variable);
  }
  return command;
}

absl::StatusOr<int> Execute(const ExecOptions& options, FaultOf& of) {
  RINGSIDE_ASSIGN_OR_RETURN(ExecMessage command, CommandOf(options));
  std::string terminal_type;
  const char* const type = getenv("TERM");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (options.terminal && type != nullptr) {
    terminal_type = std::string("TERM=") + type;
    command.environment.insert(command.environment.begin(), terminal_type);
  }
  RINGSIDE_ASSIGN_OR_RETURN(AgentChannel channel,
                            AgentChannel::Connect(options.vsock, options.port, {}));
  RINGSIDE_ASSIGN_OR_RETURN(ExecClient client, ExecClient::Start(std::move(channel), command, of));
  // A terminal's input stays open: its end would be a ^D that nobody typed.
  if (!options.interactive && !options.terminal) client.EndInput();
  ExecPump pump(std::move(client), options.interactive);
  std::unique_ptr<RawTerminal> raw;
  if (options.terminal && options.interactive) raw = RawTerminal::Enter(STDIN_FILENO);
  return pump.Run();
}

}  // namespace

void AddExecOptions(CLI::App& exec, ExecOptions& options) {
  AddAgentSocket(exec, options.vsock, options.port);
  exec.add_flag("-t,--terminal", options.terminal, "give the command a terminal");
  exec.add_flag("-i,--interactive", options.interactive,
                "pass standard input on; without it the command has none");
  exec.add_option("--env", options.environment,
                  "a variable of the command's environment; may be given several times")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  exec.add_option("--workdir", options.directory, "the directory that it starts in")
      ->type_name("DIR");
  exec.add_option("--user", options.user, "run it as this user, by number")->type_name("UID[:GID]");
  exec.add_option("CMD", options.command, "the command and its arguments, behind --")
      ->required()
      ->type_name("");
  exec.footer(kHelp);
}

int ExecCommand(const ExecOptions& options, LogSink& log) {
  FaultOf of = FaultOf::kRequest;
  const absl::StatusOr<int> code = Execute(options, of);
  if (code.ok()) return *code;
  log.Log(Severity::kError, Message(code.status()));
  if (of != FaultOf::kProgram) return kExitExecFailed;
  return absl::IsNotFound(code.status()) ? kExitNotFound : kExitCannotRun;
}

}  // namespace ringside
