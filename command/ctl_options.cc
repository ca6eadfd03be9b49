// The subcommands of `ringside ctl`, from the table of calls.
#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"
#include "api/api_call.h"
#include "command/ctl_command.h"

namespace ringside {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --api-sock vm.sock\n"
    "  ringside ctl vm.sock machine\n"
    "  ringside ctl vm.sock disks\n"
    "  ringside ctl vm.sock pause --patience 5s\n"
    "  ringside ctl vm.sock add-iothread --id fast --poll always\n"
    "  ringside ctl vm.sock move-queue disk0 0 --iothread fast\n"
    "  ringside ctl vm.sock shut-down --limit 30s\n"
    "  ringside ctl vm.sock events --from 0\n"
    "  ringside ctl vm.sock statistics --json | jq .disks[0].queues\n\n"
    "On a terminal answers are tables, else JSON.\n\n"
    "Exit codes: 0 done, 1 failure at run time, 2 bad input, or the machine's state does not allow "
    "it.";

std::string FieldHelp(const ApiField& field) {
  std::string help = field.spec.doc;
  const std::string values = PossibleValues(field.spec);
  const bool says_all =
      field.spec.type.kind == OptionKind::kChoice || field.spec.type.kind == OptionKind::kSwitch;
  if (!values.empty() && !says_all) help += " (" + values + ')';
  return help;
}

std::string Upper(std::string name) {
  for (char& letter : name) letter = absl::ascii_toupper(letter);
  return name;
}

void AddField(CLI::App& command, const ApiField& field, bool is_positional, std::string& value) {
  CLI::Option* const option =
      is_positional
          ? command.add_option(Upper(field.spec.name), value, FieldHelp(field))
          : command.add_option(std::string("--") + field.spec.name, value, FieldHelp(field));
  option->required(is_positional || field.spec.is_required);
  option->type_name(is_positional ? "" : ValuePlaceholder(field.spec));
  option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  if (!field.unset.is_null()) option->default_str(ValueText(field.spec, field.unset));
}

}  // namespace

void AddCtlOptions(CLI::App& ctl, CtlOptions& options) {
  ctl.add_option("SOCKET", options.socket, "what 'ringside run' or 'serve' has as --api-sock")
      ->required()
      ->type_name("");
  ctl.require_subcommand(1);
  ctl.footer(kExamples);
  for (const ApiCall& call : ApiCalls()) {
    CLI::App* const command = ctl.add_subcommand(call.name, call.doc);
    auto& fields = options.fields[call.name];
    for (const ApiField& field : call.in_path) {
      AddField(*command, field, true, fields[field.spec.name]);
    }
    if (*call.body != '\0') {
      command
          ->add_option("FILE", fields["FILE"],
                       "JSON, as for --config; /dev/stdin is standard input")
          ->required()
          ->type_name("");
    }
    for (const ApiField& field : call.fields) {
      AddField(*command, field, field.is_word, fields[field.spec.name]);
    }
    command->add_flag("--json", options.json, "print JSON, on a terminal, too");
    if (call.kind == ApiKind::kOperation) {
      command->add_flag("--no-wait", options.no_wait,
                        "do not wait for its end: print the operation instead");
    }
  }
}

}  // namespace ringside
