// The part of the table of calls that is asked of the guest's agent (docs/agent.md).
#include "absl/time/time.h"
#include "api/api_call.h"
#include "api/api_handlers.h"
#include "vmm/option_table.h"

namespace ringside {
namespace {

// Of an answer the output and the errors, in base64 at worst, are a third of what an operation may
// leave behind (Operations::kMostKept).
constexpr uint64_t kMostOutput = uint64_t{2} << 20;

// A guest that is asked for a file may send without end.
constexpr uint64_t kMostCopied = uint64_t{1} << 50;

ApiField LimitField(const char* doc, absl::Duration unset) {
  return {
      .spec = {.name = "limit", .type = Time(absl::Milliseconds(1), absl::Hours(24)), .doc = doc},
      .unset = static_cast<uint64_t>(absl::ToInt64Nanoseconds(unset))};
}

std::vector<ApiField> CommandFields() {
  const auto id = [](const char* name, const char* doc) {
    return ApiField{
        .spec = {.name = name, .type = Whole(0, UINT32_MAX), .doc = doc, .unset = "the agent's"}};
  };
  return {
      {.spec = {.name = "command",
                .type = Plain(OptionKind::kWords),
                .doc =
                    "the program and its arguments; words are divided by spaces, and a backslash "
                    "makes a space part of a word",
                .is_required = true}},
      {.spec = {.name = "environment",
                .type = Plain(OptionKind::kWords),
                .doc = "NAME=VALUE, each a word; PATH and HOME are added",
                .unset = "PATH and HOME alone"}},
      {.spec = {.name = "directory", .type = Plain(OptionKind::kPath), .doc = "where it starts"},
       .unset = ""},
      id("uid", "runs it as this user"),
      id("gid", "and as this group"),
      {.spec = {.name = "input", .type = Plain(OptionKind::kText), .doc = "its standard input"},
       .unset = ""},
      {.spec = {.name = "base64",
                .type = Plain(OptionKind::kSwitch),
                .doc = "whether input, output and errors are in base64; otherwise what is no "
                       "UTF-8 of them is replaced"},
       .unset = false},
      LimitField("after which it is ended", absl::Minutes(1)),
      {.spec = {.name = "most-output",
                .type = Size(0, kMostOutput, 1),
                .doc = "what is kept of its output, and of its errors; more is dropped"},
       .unset = kMostOutput / 2}};
}

}  // namespace

std::vector<ApiCall> GuestCalls() {
  const ApiField directories = {.spec = {.name = "directories",
                                         .type = Plain(OptionKind::kSwitch),
                                         .doc = "whether it may be a directory, with all in it"},
                                .unset = false};
  const ApiField limit = LimitField("after which it is given up", absl::Minutes(10));
  const ApiField most = {.spec = {.name = "most-bytes",
                                  .type = Size(0, kMostCopied, 1),
                                  .doc = "of all files together, where each entry of a directory "
                                         "counts as 4K, too; when the guest sends more the copy "
                                         "is given up"},
                         .unset = uint64_t{1} << 30};
  const auto path = [](const char* name, const char* doc) {
    return ApiField{
        .spec = {.name = name, .type = Plain(OptionKind::kPath), .doc = doc, .is_required = true}};
  };
  return {{.name = "agent",
           .method = "GET",
           .path = "/ringside/v1/guest/agent",
           .doc = "Asks the guest's agent whether it is there",
           .kind = ApiKind::kOperation,
           .result = "Agent",
           .asks_guest = true,
           .serve = PingAgent},
          {.name = "exec",
           .method = "POST",
           .path = "/ringside/v1/guest/exec",
           .doc = "Runs a command in the guest and answers with what it has said; 'ringside exec' "
                  "has it on a terminal",
           .kind = ApiKind::kOperation,
           .fields = CommandFields(),
           .result = "CommandEnd",
           .asks_guest = true,
           .serve = ExecInGuest},
          {.name = "copy-in",
           .method = "POST",
           .path = "/ringside/v1/guest/copy-in",
           .doc = "Copies a file into the guest; 'ringside cp' shows its progress",
           .kind = ApiKind::kOperation,
           .fields = {path("from", "on the host, as the machine's process sees it"),
                      path("to", "absolute, in the guest"), directories, limit},
           .asks_guest = true,
           .serve = CopyIn},
          {.name = "copy-out",
           .method = "POST",
           .path = "/ringside/v1/guest/copy-out",
           .doc = "Copies a file out of the guest",
           .kind = ApiKind::kOperation,
           .fields = {path("from", "absolute, in the guest"),
                      path("to", "on the host, as the machine's process sees it"), directories,
                      limit, most},
           .asks_guest = true,
           .serve = CopyOut},
          {.name = "set-clock",
           .method = "PUT",
           .path = "/ringside/v1/guest/clock",
           .doc = "Sets the guest's clock to the host's",
           .kind = ApiKind::kOperation,
           .asks_guest = true,
           .serve = SetGuestClock},
          {.name = "renew-randomness",
           .method = "POST",
           .path = "/ringside/v1/guest/randomness",
           .doc = "Gives the guest's generator random bytes of the host's, and has it seeded anew",
           .kind = ApiKind::kOperation,
           .asks_guest = true,
           .serve = RenewRandomness},
          {.name = "shut-down-guest",
           .method = "POST",
           .path = "/ringside/v1/guest/shut-down",
           .doc = "Has the guest end cleanly, without its power button",
           .kind = ApiKind::kOperation,
           .fields = {{.spec = {.name = "reboot",
                                .type = Plain(OptionKind::kSwitch),
                                .doc = "whether it reboots, which ends the machine, too"},
                       .unset = false}},
           .asks_guest = true,
           .serve = ShutDownGuest}};
}

}  // namespace ringside
