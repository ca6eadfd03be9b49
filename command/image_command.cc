#include "command/image_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "base/size.h"
#include "base/status.h"
#include "command/exit_codes.h"
#include "command/image_report.h"
#include "command/progress_bar.h"
#include "command/standard_output.h"
#include "image/backup.h"
#include "image/commit.h"
#include "image/create.h"
#include "image/inspect.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

constexpr int kExitWrong = 3;  // check has found something

// What a subcommand has to say when it is done.
struct Answer {
  Json json;
  std::string text;
  int exit_code = kExitOk;
};
using Verb = absl::StatusOr<Answer> (*)(const ImageCommandOptions& options, Progress& progress);

absl::StatusOr<Answer> Create(const ImageCommandOptions& given, Progress& progress) {
  constexpr std::array<std::string_view, 3> kPreallocations = {"off", "falloc", "full"};
  const auto found = std::ranges::find(kPreallocations, given.preallocation);
  if (found == kPreallocations.end()) {
    return BadInput("--prealloc '%s' is unknown: give off, falloc or full", given.preallocation);
  }
  CreateOptions options = {
      .file = given.file,
      .bases = given.bases,
      .preallocation = static_cast<Preallocation>(found - kPreallocations.begin()),
      .digest = given.digest,
      .durable = given.durable};
  if (!given.size.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(options.size, ParseSize(given.size));
  }
  RINGSIDE_ASSIGN_OR_RETURN(const CreateResult result, CreateImage(options, progress));
  return Answer{.json = CreateJson(result),
                .text = absl::StrFormat("made %s of %s\n", result.id ? "an overlay" : "a raw image",
                                        FormatSize(result.size))};
}

absl::StatusOr<Answer> Info(const ImageCommandOptions& given, Progress&) {
  RINGSIDE_ASSIGN_OR_RETURN(const ImageInfo info, Inspect(given.file));
  return Answer{.json = InfoJson(info), .text = InfoText(info)};
}

absl::StatusOr<Answer> Check(const ImageCommandOptions& given, Progress& progress) {
  if (given.digest && given.bases.empty()) return BadInput("--digest is of a base: give --base");
  RINGSIDE_ASSIGN_OR_RETURN(
      const std::vector<CheckFinding> findings,
      CheckImage({.file = given.file, .bases = given.bases, .digest = given.digest}, progress));
  return Answer{.json = CheckJson(findings),
                .text = CheckText(findings),
                .exit_code = IsSound(findings) ? kExitOk : kExitWrong};
}

Chain::Names NamesOf(const ImageCommandOptions& given) {
  return {.bases = given.bases, .top = given.file};
}

absl::StatusOr<Answer> Rebase(const ImageCommandOptions& given, Progress& progress) {
  if (given.bases.empty()) return BadInput("rebase needs the overlay's new base: give --base");
  RINGSIDE_ASSIGN_OR_RETURN(const RebaseResult result,
                            Rebase(NamesOf(given), given.unsafe, progress));
  const char* const how = result.was_the_same    ? "it was its base already"
                          : result.digest_agrees ? "the digests agree"
                                                 : "nothing was compared";
  return Answer{
      .json = {{"was_the_same", result.was_the_same}, {"digest_agrees", result.digest_agrees}},
      .text = absl::StrFormat("the overlay has this base now: %s\n", how)};
}

absl::StatusOr<Answer> Commit(const ImageCommandOptions& given, Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const CommitResult result, ringside::Commit(NamesOf(given), progress));
  return Answer{
      .json = {{"data_bytes", result.data_bytes},
               {"zero_bytes", result.zero_bytes},
               {"was_resumed", result.was_resumed}},
      .text = absl::StrFormat("wrote %s of data and %s of zeroes to the base%s\n",
                              FormatSize(result.data_bytes), FormatSize(result.zero_bytes),
                              result.was_resumed ? ", and so finished a commit that had "
                                                   "been cut off"
                                                 : "")};
}

absl::StatusOr<Answer> Flatten(const ImageCommandOptions& given, Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const FlattenResult result,
                            ringside::Flatten(NamesOf(given), given.output, progress));
  return Answer{
      .json = {{"size", result.disk_bytes}, {"bytes_on_host", result.bytes_on_host}},
      .text = absl::StrFormat("made a raw image of %s, which takes %s\n",
                              FormatSize(result.disk_bytes), FormatSize(result.bytes_on_host))};
}

absl::StatusOr<Answer> Diff(const ImageCommandOptions& given, Progress& progress) {
  if (given.full && given.bases.empty()) {
    return BadInput("--full has what the overlay stands on, too: give --base");
  }
  RINGSIDE_ASSIGN_OR_RETURN(const DiffResult result,
                            ringside::Diff(NamesOf(given), given.full, given.output, progress));
  return Answer{.json = DiffJson(result), .text = DiffText(result)};
}

absl::StatusOr<OverlayId> ReadPoint(const std::string& text) {
  OverlayId point = {};
  if (text.empty()) return point;
  const bool is_hex = std::ranges::all_of(
      text, [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
  if (!is_hex || text.size() != 2 * point.size()) {
    return BadInput("--onto '%s' is no point: that has %d hexadecimal digits", text,
                    2 * point.size());
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::ranges::copy(bytes, point.begin());
  return point;
}

absl::StatusOr<Answer> Apply(const ImageCommandOptions& given, Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const OverlayId onto, ReadPoint(given.onto));
  RINGSIDE_ASSIGN_OR_RETURN(
      const ApplyResult result,
      ringside::Apply(
          {.image = given.file, .bases = given.bases, .deltas = given.deltas, .onto = onto},
          progress));
  return Answer{
      .json = ApplyJson(result),
      .text = absl::StrFormat("applied %d of %d backups: %s of data, %s of zeroes\n",
                              result.applied, given.deltas.size(), FormatSize(result.data_bytes),
                              FormatSize(result.zero_bytes))};
}

struct NamedVerb {
  const char* name;
  Verb verb;
};
constexpr std::array<NamedVerb, 8> kVerbs = {{{"create", Create},
                                              {"info", Info},
                                              {"check", Check},
                                              {"rebase", Rebase},
                                              {"commit", Commit},
                                              {"flatten", Flatten},
                                              {"diff", Diff},
                                              {"apply", Apply}}};

}  // namespace

int ImageCommand(const CLI::App& image, const ImageCommandOptions& options, LogSink& log) {
  const std::string name = image.get_subcommands().front()->get_name();
  const auto verb =
      std::ranges::find_if(kVerbs, [&](const NamedVerb& each) { return name == each.name; });
  absl::StatusOr<Answer> answer = absl::UnknownError("");
  {
    ProgressBar progress(STDERR_FILENO);
    answer = verb->verb(options, progress);
  }
  if (!answer.ok()) return Finish(answer.status(), log);
  const std::string text = options.json ? JsonDocument(answer->json) : answer->text;
  if (const absl::Status written = WriteToStdout(text); !written.ok()) return Finish(written, log);
  return answer->exit_code;
}

}  // namespace ringside
