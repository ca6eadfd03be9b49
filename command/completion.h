// Completion of the command's words in a shell.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace ringside {

// A script for bash (zsh: after bashcompinit) that knows the words of `app`, whose subcommands and
// options are all there. Options whose values are named "a|b|c" have those completed, others files.
std::string CompletionScript(const CLI::App& app);

}  // namespace ringside
