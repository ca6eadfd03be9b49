// `ringside image`: making images, looking at them, writing overlays into their bases or out as one
// image, and incremental backups.
#pragma once

#include <string>
#include <vector>

#include "ringside/log.h"

namespace CLI {
class App;
}

namespace ringside {

// What was given; each subcommand has some of it.
struct ImageCommandOptions {
  std::string file;  // the image or overlay that it is about
  std::string output;
  std::vector<std::string> bases;
  std::vector<std::string> deltas;
  std::string size;
  std::string preallocation = "off";
  std::string onto;
  bool digest = false;
  bool durable = false;
  bool full = false;
  bool unsafe = false;
  bool json = false;
};

void AddImageOptions(CLI::App& image, ImageCommandOptions& options);
// What was done goes to stdout, as a line or as JSON; how far it has come to stderr, if that is a
// terminal. `check` returns 3 if something is wrong with the file; otherwise exit codes are those
// of exit_codes.h.
int ImageCommand(const CLI::App& image, const ImageCommandOptions& options, LogSink& log);

}  // namespace ringside
