#include "command/config_command.h"

#include "command/exit_codes.h"
#include "command/option_help.h"
#include "command/standard_output.h"
#include "vmm/metric_table.h"
#include "vmm/options.h"

namespace ringside {

int ConfigCommand(const ConfigCommandOptions& options, LogSink& log) {
  if (options.schema + options.markdown + options.metrics != 1) {
    log.Log(Severity::kError, "config prints one thing: give --schema, --markdown or --metrics");
    return kExitBadInput;
  }
  if (options.metrics) return Finish(WriteToStdout(MetricsMarkdown()), log);
  return Finish(WriteToStdout(options.schema ? OptionSchema().dump(2) + '\n' : OptionsMarkdown()),
                log);
}

}  // namespace ringside
