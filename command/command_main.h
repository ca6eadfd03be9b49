// The ringside command: parses the command line and hands over to a subcommand.
#pragma once

#include "command/run_command.h"

namespace ringside {

// What main() is to return. `companion`: see RunCommand.
int CommandMain(int argc, char** argv, RunCompanion* companion = nullptr);

}  // namespace ringside
