#include "command/completion.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace ringside {
namespace {

constexpr char kScript[] =
    R"(# Completion of ringside for bash; for zsh after: autoload -U bashcompinit; bashcompinit
_ringside() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} at=ringside words= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${COMP_WORDS[i]}" in
            $COMMANDS) at+=" ${COMP_WORDS[i]}" ;;
        esac
    done
    COMPREPLY=()
    case "$at $prev" in
$VALUES    esac
    case "$at" in
$WORDS    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _ringside ringside
)";

struct Parts {
  std::vector<std::string> commands;  // "ringside ctl pause"
  std::string values;                 // what follows an option
  std::string words;                  // what stands in a command
};

void Collect(const CLI::App& app, const std::string& path, Parts& parts) {
  std::vector<std::string> words, with_files;
  for (const CLI::App* command : app.get_subcommands({})) {
    words.push_back(command->get_name());
    parts.commands.push_back(absl::StrCat("\"", path, " ", command->get_name(), "\""));
    Collect(*command, absl::StrCat(path, " ", command->get_name()), parts);
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string flag = "--" + option->get_lnames().front();
    words.push_back(flag);
    const std::string after = absl::StrCat("\"", path, " ", flag, "\"");
    const std::string type = option->get_type_name();
    if (type.find('|') != std::string::npos && type.find('=') == std::string::npos) {
      absl::StrAppend(&parts.values, "        ", after, ") words=\"",
                      absl::StrReplaceAll(type, {{"|", " "}, {"[", ""}, {"]", ""}}),
                      "\"; COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n");
    } else if (option->get_expected_max() > 0) {
      with_files.push_back(after);
    }
  }
  if (!with_files.empty()) {
    absl::StrAppend(&parts.values, "        ", absl::StrJoin(with_files, " | "), ") return ;;\n");
  }
  absl::StrAppend(&parts.words, "        \"", path, "\") words=\"", absl::StrJoin(words, " "),
                  "\" ;;\n");
}

}  // namespace

std::string CompletionScript(const CLI::App& app) {
  Parts parts;
  Collect(app, "ringside", parts);
  return absl::StrReplaceAll(kScript, {{"$COMMANDS", absl::StrJoin(parts.commands, " | ")},
                                       {"$VALUES", parts.values},
                                       {"$WORDS", parts.words}});
}

}  // namespace ringside
