#include "command/command_main.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <fcntl.h>
#include <spdlog/details/os.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "command/completion.h"
#include "command/config_command.h"
#include "command/cp_command.h"
#include "command/ctl_command.h"
#include "command/doctor_command.h"
#include "command/exec_command.h"
#include "command/exit_codes.h"
#include "command/image_command.h"
#include "command/line_writer.h"
#include "command/option_help.h"
#include "command/report_command.h"
#include "command/run_command.h"
#include "command/snapshot_command.h"
#include "command/standard_output.h"

namespace ringside {
namespace {

constexpr char kExitCodes[] =
    "Exit codes: 0 the guest powered off, 1 failure at run time, 2 bad input, 3 the guest asked "
    "for a reboot, 4 the guest crashed, 128 + n ended by signal n (the second one at once).";

constexpr char kReportHelp[] =
    "The stages of a request, each from one stamp to the next:\n"
    "  seen->taken           it waits for those before it, and its descriptor chain is read\n"
    "  taken->submitted      it waits for those behind it in its batch\n"
    "  submitted->completed  the host's storage has it\n"
    "  completed->published  it waits for the others that completed, and is shown in the used "
    "ring\n"
    "  published->interrupt  the interrupt is signalled, where the driver wants one\n\n"
    "Examples:\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --trace-latency trace.jsonl\n"
    "  ringside report trace.jsonl\n"
    "  ringside report trace.jsonl --svg latency.svg\n"
    "  ringside report trace.jsonl --json | jq '.queues[0].total.p99_ns'\n\n"
    "Exit codes: 0 done, 1 not all of the picture could be written, 2 the file is no trace, is "
    "damaged, or cannot be read, or the picture's is something else.";

constexpr char kDoctorHelp[] =
    "Marks: ok, -- neither good nor bad, slow, LOSS data may be lost, LACK it cannot be used as it "
    "is, ? not to be told from here.\n\n"
    "Examples:\n"
    "  ringside doctor\n"
    "  ringside doctor --disk root.img\n"
    "  ringside doctor --disk /dev/nvme0n1 --iothread-cpu 2 --memory-node 0\n"
    "  ringside doctor --disk /dev/vg/root --json | jq '.findings[] | select(.verdict == "
    "\"unsafe\")'\n\n"
    "Exit codes: 0 guests run here, and with --disk nothing about it is unsafe, 2 otherwise.";

constexpr char kRunExamples[] =
    "Leave the console with Ctrl-].\n\n"
    "Examples:\n"
    "  ringside run --kernel vmlinuz --initrd initrd.cpio.gz\n"
    "  ringside run --kernel vmlinux --cpus 4 --memory 6G --disk path=root.img \\\n"
    "      --cmdline 'console=ttyS0 root=/dev/vda rw'\n"
    "  ringside run --kernel vmlinuz --initrd initrd.cpio.gz --disk path=/dev/nvme0n1 \\\n"
    "      --disk path=data.img,readonly=on,cache=writeback,queues=2 --stats\n"
    "  ringside run --kernel vmlinuz --disk nvme://0000:00:04.0/1 --disk path=data.img\n"
    "  ringside run --kernel vmlinuz --disk /dev/ng0n1,queues=2\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --iothread poll=cost,price=0.5\n"
    "  ringside run --kernel vmlinuz --cpus 2 --cpu-affinity 0:0,1:1 --halt-poll 50us \\\n"
    "      --iothread id=a,poll=always,cpu=2 --iothread id=b,poll=fixed,max=20us,cpu=3 \\\n"
    "      --disk path=root.img,queues=2,iothreads=a:0/b:1 --disk path=data.img,iothreads=b\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --trace-latency trace.jsonl\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --iothread poll=always \\\n"
    "      --poll-trace waits.csv\n"
    "  ringside run --kernel guest.elf --entry pvh --serial file=console.log --timing\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --print-config > vm.json\n"
    "  ringside run --config vm.json --memory 2G\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --api-sock vm.sock\n"
    "  ringside run --template snap --forks 20 --exec 'uname -r' --vsock cid=3,path={n}.vsock \\\n"
    "      --disk base=root.img,overlay={n}.cow\n\n";

constexpr char kServeExamples[] =
    "The options of the machine are those it begins with; clients may replace them (set-config), "
    "and "
    "have it start.\n\n"
    "Examples:\n"
    "  ringside serve --api-sock vm.sock &\n"
    "  ringside ctl vm.sock set-config vm.json\n"
    "  ringside ctl vm.sock start\n\n";

// What is logged, as spdlog has it, for a terminal with colours.
class LineSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LineSink(LineWriter& lines, bool in_color) : lines_(lines), in_color_(in_color) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string text(line.data(), line.size());
    if (in_color_ && message.color_range_end > message.color_range_start) {
      text.insert(message.color_range_end, "\033[m");
      text.insert(message.color_range_start, Color(message.level));
    }
    lines_.Write(text);
  }
  void flush_() override {}

  static const char* Color(spdlog::level::level_enum level) {
    return level >= spdlog::level::err    ? "\033[1;31m"
           : level >= spdlog::level::warn ? "\033[1;33m"
                                          : "\033[32m";
  }

  LineWriter& lines_;
  const bool in_color_;
};

// What the library has to say goes to stderr, and waits for nobody who reads that.
class SpdlogSink final : public LogSink {
 public:
  explicit SpdlogSink(LineWriter& lines)
      : logger_("ringside",
                std::make_shared<LineSink>(lines, spdlog::details::os::in_terminal(stderr) &&
                                                      spdlog::details::os::is_color_terminal())) {
    logger_.set_pattern("ringside: %^%l%$: %v");
  }
  void Log(Severity severity, std::string_view line) override {
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    logger_.log(kLevels[static_cast<int>(severity)], "{}", Printable(line));
  }

 private:
  spdlog::logger logger_;
};

std::string AboutDropped(uint64_t lines) {
  return absl::StrFormat("ringside: warning: %d lines were dropped, as nobody read them\n", lines);
}

void AddReportOptions(CLI::App& report, ReportOptions& options) {
  report.add_option("FILE", options.file, "what 'ringside run --trace-latency' wrote")
      ->required()
      ->type_name("");
  report
      .add_option(
          "--svg", options.svg,
          "draw the latency profile into this file, too: a new one, or an earlier profile's")
      ->type_name("FILE");
  report.add_flag("--json", options.json, "print everything as JSON instead of a table");
  report.footer(kReportHelp);
}

void AddDoctorOptions(CLI::App& doctor, DoctorOptions& options) {
  doctor
      .add_option("--disk", options.disk,
                  "say what is slow or unsafe about this disk: a file, a block device, "
                  "/dev/ng0n1 or an nvme:// URL")
      ->type_name("PATH");
  doctor
      .add_option("--iothread-cpu", options.io_thread_cpus,
                  "the CPUs of the host that its I/O thread is kept on, such as 0-2+5")
      ->type_name("CPUS");
  doctor
      .add_option("--memory-node", options.memory_nodes,
                  "the NUMA nodes that its guest's memory is taken from, such as 0 or 0,1")
      ->type_name("N,...");
  doctor.add_flag("--json", options.json, "print what is said of the disk as JSON");
  doctor.footer(kDoctorHelp);
}

// Every word that could stand where an unknown one was found.
std::vector<std::string> KnownWords(const CLI::App& app) {
  const CLI::App* current = &app;
  while (!current->get_subcommands().empty()) current = current->get_subcommands().front();
  std::vector<std::string> words;
  for (const CLI::Option* option : current->get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  for (const CLI::App* command : current->get_subcommands({})) words.push_back(command->get_name());
  return words;
}

std::string AboutUnknown(const CLI::App& app, const std::string& word) {
  const std::string nearest = NearestLike(word, KnownWords(app));
  if (!nearest.empty())
    return absl::StrFormat("'%s' is unknown; did you mean '%s'?", word, nearest);
  std::string command = "ringside";
  for (const CLI::App* each = &app; !each->get_subcommands().empty();) {
    each = each->get_subcommands().front();
    command += each->get_name() == "ctl" ? " ctl SOCKET" : ' ' + each->get_name();
  }
  return absl::StrFormat("'%s' is unknown; see '%s --help'", word, command);
}

int ReportParseError(const CLI::App& app, const CLI::ParseError& error, LogSink& log) {
  const auto parsed = app.get_subcommands();
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  std::string line = error.what();
  if (!unknown.empty()) {
    line = AboutUnknown(app, unknown.front().substr(0, unknown.front().find('=')));
  } else if (parsed.empty()) {
    line = "no command given; try 'ringside --help'";
  } else if (parsed.front()->get_name() == "ctl" && parsed.front()->get_subcommands().empty()) {
    line = "ctl takes the socket, and then what to do, as in 'ringside ctl vm.sock machine'";
  }
  log.Log(Severity::kError, line);
  return kExitBadInput;
}

// The text is long, and most runs do without.
bool AsksForHelp(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](const char* word) {
    return std::string_view(word) == "--help" || std::string_view(word) == "-h";
  });
}

// Whether the first word is one of these.
bool Names(int argc, char** argv, std::initializer_list<std::string_view> words) {
  return argc > 1 && std::ranges::find(words, argv[1]) != words.end();
}

void AddCompletionOptions(CLI::App& completion, std::string& shell) {
  completion.add_option("SHELL", shell, "bash, or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}))
      ->type_name("");
  completion.footer(
      "Examples:\n"
      "  source <(ringside completion bash)\n"
      "  autoload -U bashcompinit && bashcompinit && source <(ringside completion zsh)");
}

// What is opened next would else become standard input, and be read as the console's.
void OpenStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);
  }
}

}  // namespace

int CommandMain(int argc, char** argv, RunCompanion* companion) {
  const int64_t start_ns = MonotonicNs();
  OpenStandardDescriptors();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of write
  std::signal(SIGXFSZ, SIG_IGN);  // and so is 'ulimit -f', which there is advice for
  LineWriter lines(STDERR_FILENO, AboutDropped);
  SpdlogSink log(lines);
  CLI::App app("Ringside: boots a Linux guest under KVM.", "ringside");
  app.set_version_flag("--version", "ringside " RINGSIDE_VERSION);
  app.require_subcommand(1);
  app.footer(kExitCodes);

  RunOptions options;
  CLI::App* run = app.add_subcommand("run", "boot a kernel");
  const bool with_help = AsksForHelp(argc, argv);
  AddRunOptions(*run, options, with_help);
  if (with_help) run->footer(KeysHelp() + kRunExamples + kExitCodes);
  CLI::App* serve = app.add_subcommand(
      "serve", "wait for clients of a control socket to configure a machine and boot it");
  CtlOptions ctl_options;
  CLI::App* ctl = app.add_subcommand("ctl", "drive a machine over its control socket");
  CLI::App* completion =
      app.add_subcommand("completion", "print a script for the shell that completes words");
  std::string shell;
  AddCompletionOptions(*completion, shell);
  // The words of these take longer to set up than a guest does: who does not ask for them does
  // without.
  if (Names(argc, argv, {"serve", "completion"})) {
    AddRunOptions(*serve, options, with_help);
    if (with_help) serve->footer(KeysHelp() + kServeExamples + kExitCodes);
  }
  if (Names(argc, argv, {"ctl", "completion"})) AddCtlOptions(*ctl, ctl_options);
  ReportOptions report_options;
  CLI::App* report = app.add_subcommand("report", "say where requests spent their time");
  AddReportOptions(*report, report_options);
  CLI::App* config = app.add_subcommand("config", "print what a configuration or a client can say");
  config->footer("Exit codes: 0 done, 1 it could not be written, 2 bad input.");
  std::vector<std::string> documents;
  for (const ConfigDocument& document : ConfigDocuments()) {
    config->add_flag_callback(
        document.flag, [&] { documents.emplace_back(document.flag); }, document.doc);
  }
  CLI::App* doctor = app.add_subcommand(
      "doctor", "say whether this host can run guests, and how a disk is set up");
  DoctorOptions doctor_options;
  if (Names(argc, argv, {"doctor", "completion"})) AddDoctorOptions(*doctor, doctor_options);
  CLI::App* image =
      app.add_subcommand("image", "make, check, commit, flatten and back up images and overlays");
  ImageCommandOptions image_options;
  if (Names(argc, argv, {"image", "completion"})) AddImageOptions(*image, image_options);

  CLI::App* snapshot = app.add_subcommand("snapshot", "look at a saved machine, and verify it");
  SnapshotOptions snapshot_options;
  if (Names(argc, argv, {"snapshot", "completion"}))
    AddSnapshotOptions(*snapshot, snapshot_options);
  CLI::App* exec = app.add_subcommand("exec", "run a command in a guest");
  ExecOptions exec_options;
  if (Names(argc, argv, {"exec", "completion"})) AddExecOptions(*exec, exec_options);
  CLI::App* cp = app.add_subcommand("cp", "copy files into a guest and out of it");
  CpOptions cp_options;
  if (Names(argc, argv, {"cp", "completion"})) AddCpOptions(*cp, cp_options);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const int code = ReportParseError(app, error, log);
    return Names(argc, argv, {"exec"}) ? kExitExecFailed : code;
  }
  if (exec->parsed()) return ExecCommand(exec_options, log);
  if (cp->parsed()) return CpCommand(cp_options, log);
  if (doctor->parsed()) return DoctorCommand(doctor_options, log);
  if (image->parsed()) return ImageCommand(*image, image_options, log);
  if (snapshot->parsed()) return SnapshotCommand(*snapshot, snapshot_options, log);
  if (report->parsed()) return ReportCommand(report_options, log);
  if (config->parsed()) return ConfigCommand(documents, log);
  if (ctl->parsed()) return CtlCommand(*ctl, ctl_options, log);
  if (completion->parsed()) return Finish(WriteToStdout(CompletionScript(app)), log);
  options.serve = serve->parsed();
  return RunCommand(options, start_ns, log, lines, companion);
}

}  // namespace ringside
