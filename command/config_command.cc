#include "command/config_command.h"

#include <iostream>

#include "command/exit_codes.h"
#include "command/option_help.h"
#include "vmm/options.h"

namespace ringside {

int ConfigCommand(const ConfigCommandOptions& options, LogSink& log) {
  if (options.schema == options.markdown) {
    log.Log(Severity::kError, "config prints one thing: give --schema or --markdown");
    return kExitBadInput;
  }
  std::cout << (options.schema ? OptionSchema().dump(2) + '\n' : OptionsMarkdown()) << std::flush;
  if (std::cout) return kExitOk;
  log.Log(Severity::kError, "config cannot write to stdout");
  return kExitFailure;
}

}  // namespace ringside
