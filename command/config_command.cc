#include "command/config_command.h"

#include "command/exit_codes.h"
#include "command/option_help.h"
#include "command/standard_output.h"
#include "vmm/options.h"

namespace ringside {

int ConfigCommand(const ConfigCommandOptions& options, LogSink& log) {
  if (options.schema == options.markdown) {
    log.Log(Severity::kError, "config prints one thing: give --schema or --markdown");
    return kExitBadInput;
  }
  return Finish(WriteToStdout(options.schema ? OptionSchema().dump(2) + '\n' : OptionsMarkdown()),
                log);
}

}  // namespace ringside
