// The subcommands of `ringside image`, as the user gives them.
#include <CLI/CLI.hpp>

#include "command/image_command.h"

namespace ringside {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  ringside image create --size 10G disk.img\n"
    "  ringside image create --base golden.img --digest vm1.cow\n"
    "  ringside image info vm1.cow --json | jq .data_bytes\n"
    "  ringside image check --base golden.img vm1.cow\n"
    "  ringside image flatten --base golden.img vm1.cow vm1.img\n"
    "  ringside image commit --base golden.img vm1.cow\n"
    "  ringside image diff vm1.cow monday.backup\n"
    "  ringside image apply copy-of-golden.img monday.backup tuesday.backup\n"
    "  ringside image apply --base golden.img restored.cow monday.backup tuesday.backup\n\n"
    "None of them can run while a machine has the files, but for info. One that was killed is "
    "given "
    "again, and goes on.\n\n"
    "Exit codes: 0 done, 1 failure at run time or a damaged file, 2 bad input, or a file is in use "
    "or not the one that is needed; check: 3 something is wrong with the file.";

CLI::App* AddVerb(CLI::App& image, const char* name, const char* doc, const char* file,
                  const char* file_doc, ImageCommandOptions& options) {
  CLI::App* const verb = image.add_subcommand(name, doc);
  verb->add_option(file, options.file, file_doc)->required()->type_name("");
  verb->add_flag("--json", options.json, "print what was done as JSON");
  return verb;
}

void AddBases(CLI::App& verb, ImageCommandOptions& options, const char* doc) {
  verb.add_option("--base", options.bases, doc)
      ->type_name("FILE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // those are positional
}

}  // namespace

void AddImageOptions(CLI::App& image, ImageCommandOptions& options) {
  constexpr char kChain[] =
      "what it stands on: a raw image; given again for each overlay between, bottom first";
  image.require_subcommand(1);
  image.footer(kExamples);

  CLI::App* verb = AddVerb(image, "create", "make a raw image, or with --base an overlay", "FILE",
                           "the new file", options);
  verb->add_option("--size", options.size,
                   "how large the disk is; of an overlay, if not as its base")
      ->type_name("SIZE");
  verb->add_option("--prealloc", options.preallocation,
                   "of a raw image: off, falloc keeps its space, full writes it, too")
      ->type_name("[off|falloc|full]");
  AddBases(*verb, options, kChain);
  verb->add_flag("--digest", options.digest,
                 "sum the base, so that it is known wherever it is moved");
  verb->add_flag("--sync", options.durable,
                 "have it survive a power cut at once; else its first flush sees to that");

  AddVerb(image, "info", "say what a file is and what it has", "FILE", "any file", options);

  verb = AddVerb(image, "check", "say whether anything is wrong with an overlay or a backup",
                 "FILE", "an overlay, or what diff has written", options);
  AddBases(*verb, options, kChain);
  verb->add_flag("--digest", options.digest, "read the base, too, and compare its digest");

  verb = AddVerb(image, "rebase", "have an overlay accept a base that was moved or copied", "FILE",
                 "the overlay", options);
  AddBases(*verb, options, kChain);
  verb->add_flag("--unsafe", options.unsafe,
                 "without comparing digests: you know that it holds the same");

  verb = AddVerb(image, "commit", "write an overlay into what it stands on, and empty it", "FILE",
                 "the overlay", options);
  AddBases(*verb, options, kChain);

  verb = AddVerb(image, "flatten", "write an overlay and its bases as one raw image with holes",
                 "FILE", "the overlay", options);
  verb->add_option("IMAGE", options.output, "the new image")->required()->type_name("");
  AddBases(*verb, options, kChain);

  verb = AddVerb(image, "diff", "back up what has changed on an overlay since the last backup",
                 "FILE", "the overlay", options);
  verb->add_option("BACKUP", options.output, "the new file")->required()->type_name("");
  AddBases(*verb, options, kChain);
  verb->add_flag("--full", options.full, "all of the disk, its bases' part, too");

  verb = AddVerb(image, "apply", "write backups onto an image or an overlay", "FILE",
                 "a raw image, or with --base an overlay", options);
  verb->add_option("BACKUP", options.deltas, "what diff has written, oldest first")
      ->required()
      ->type_name("");
  AddBases(*verb, options, "what the overlay stands on");
  verb->add_option("--onto", options.onto,
                   "the point that the raw image is at, if not that of its base")
      ->type_name("POINT");
}

}  // namespace ringside
