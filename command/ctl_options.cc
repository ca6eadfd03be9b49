// The subcommands of `ringside ctl`, from the table of calls.
#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "api/api_call.h"
#include "command/ctl_command.h"

namespace ringside {
namespace {

// Each stands below the command that it names, and all below ctl's own help.
constexpr std::array kExamples = {
    "ringside run --kernel vmlinuz --disk path=root.img --api-sock vm.sock",
    "ringside ctl vm.sock machine",
    "ringside ctl vm.sock disks",
    "ringside ctl vm.sock set-config vm.json",
    "ringside ctl vm.sock pause --patience 5s",
    "ringside ctl vm.sock save snap --stop on",
    "ringside ctl vm.sock shut-down --limit 30s",
    "ringside ctl vm.sock events --from 0",
    "ringside ctl vm.sock statistics --json | jq .disks[0].queues",
    "ringside ctl vm.sock resize-disk disk0 --size 20G",
    "ringside ctl vm.sock swap-disk disk0 --to path=new.img,cache=none",
    "ringside ctl vm.sock set-throttle disk0 --iops-total 5000",
    "ringside ctl vm.sock set-link net0 --up off",
    "ringside ctl vm.sock add-iothread --id fast --poll always",
    "ringside ctl vm.sock move-queue disk0 0 --iothread fast",
    "ringside ctl vm.sock exec --command 'sh -c exit\\ 7'",
    "ringside ctl vm.sock copy-in --from /srv/job.py --to /job.py",
    "ringside ctl vm.sock copy-out --from /var/log/syslog --to /tmp/syslog",
};

constexpr char kEnd[] =
    "On a terminal answers are tables, else JSON.\n\n"
    "Exit codes: 0 done, 1 failure at run time, 2 bad input, or the machine's state does not allow "
    "it.";

// Those of a command; of all, if it is empty.
std::string Footer(const std::string& command) {
  const std::string wanted = command.empty() ? "" : " vm.sock " + command;
  std::string examples;
  for (const std::string example : kExamples) {
    if ((example + ' ').find(wanted + ' ') == std::string::npos) continue;
    examples += "  " + example + '\n';
  }
  return examples.empty() ? kEnd : "Examples:\n" + examples + '\n' + kEnd;
}

// The socket comes before the command.
class CtlFormatter final : public CLI::Formatter {
  std::string make_usage(const CLI::App* app, std::string name) const override {
    constexpr std::string_view kCtl = " ctl ";
    const size_t place = name.find(kCtl);
    if (place != std::string::npos) name.insert(place + kCtl.size(), "SOCKET ");
    return CLI::Formatter::make_usage(app, std::move(name));
  }
};

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
  ctl.formatter(std::make_shared<CtlFormatter>());
  ctl.footer(Footer(""));
  for (const ApiCall& call : ApiCalls()) {
    CLI::App* const command = ctl.add_subcommand(call.name, call.doc);
    command->footer(Footer(call.name));
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
