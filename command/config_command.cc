#include "command/config_command.h"

#include <algorithm>
#include <array>

#include "api/openapi.h"
#include "command/exit_codes.h"
#include "command/option_help.h"
#include "command/standard_output.h"
#include "vmm/json_text.h"
#include "vmm/metric_table.h"
#include "vmm/options.h"

namespace ringside {

std::span<const ConfigDocument> ConfigDocuments() {
  static constexpr std::array<ConfigDocument, 4> kDocuments = {{
      {"--schema", "a JSON Schema of the file that 'ringside run --config' reads",
       [] { return JsonDocument(OptionSchema()); }},
      {"--markdown", "all options, as docs/options.md", [] { return OptionsMarkdown(); }},
      {"--metrics", "all metrics, as docs/metrics.md", [] { return MetricsMarkdown(); }},
      {"--openapi", "the calls of a control socket, as docs/openapi.json",
       [] { return JsonDocument(OpenApiDocument()); }},
  }};
  return kDocuments;
}

int ConfigCommand(const std::vector<std::string>& flags, LogSink& log) {
  const auto documents = ConfigDocuments();
  if (flags.size() != 1) {
    std::vector<const char*> choices;
    for (const ConfigDocument& each : documents) choices.push_back(each.flag);
    log.Log(Severity::kError, "config prints one thing: give " + JoinChoices(choices));
    return kExitBadInput;
  }
  const auto wanted = std::ranges::find_if(
      documents, [&](const ConfigDocument& each) { return flags.front() == each.flag; });
  return Finish(WriteToStdout(wanted->make()), log);
}

}  // namespace ringside
