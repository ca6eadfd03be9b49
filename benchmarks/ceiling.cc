// The ceiling: boots the measuring guest with the barest virtio-blk device that can be, so that the
// figures of machine monitors stand beside what the machine allows. See ceiling_device.h for all
// that it does not do; it is a measuring stick and no product code.
//
//   ceiling --kernel guest.elf --file disk.img --engine io_uring --cmdline "rw=randread qd=1,32"
//
// The guest's console goes to stdout. At the end one line of JSON on stderr tells what the run cost
// this process, its start and end included. Exit codes are those of `ringside run`.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/size.h"
#include "base/status.h"
#include "benchmarks/ceiling_device.h"
#include "command/exit_codes.h"
#include "vmm/machine.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

struct Options {
  std::string kernel;
  std::string file;
  std::string null_size;
  std::string engine;
  std::string command_line;
  std::string memory = "256M";
  uint16_t queues = 1;
};

class StderrLog final : public LogSink {
 public:
  void Log(Severity, std::string_view line) override {
    std::fprintf(stderr, "ceiling: %.*s\n", static_cast<int>(line.size()), line.data());
  }
};

absl::StatusOr<CeilingEngine> ParseEngine(const Options& options) {
  if (options.file.empty() == options.null_size.empty()) {
    return BadInput("there is one disk; give --file PATH or --null SIZE");
  }
  if (!options.null_size.empty()) {
    if (options.engine.empty() || options.engine == "null") return CeilingEngine::kNull;
    return BadInput("--engine %s moves data; give it --file PATH", options.engine);
  }
  if (options.engine == "pread") return CeilingEngine::kPread;
  if (options.engine == "io_uring") return CeilingEngine::kIoUring;
  return BadInput("--engine '%s' is none for a file; give pread or io_uring", options.engine);
}

// The disk and how it is reached.
struct Disk {
  UniqueFd fd;
  uint64_t size = 0;
  bool direct = false;
};

// With O_DIRECT wherever the file takes it.
absl::StatusOr<Disk> OpenDisk(const Options& options) {
  Disk disk;
  if (options.file.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(disk.size, ParseSize(options.null_size));
    return disk;
  }
  const auto open_with = [&](int flags) {
    disk.fd = UniqueFd(open(options.file.c_str(), O_RDWR | O_CLOEXEC | flags));
    return disk.fd.valid() ? 0 : errno;
  };
  int error = open_with(O_DIRECT);
  disk.direct = error == 0;
  if (error == EINVAL) error = open_with(0);
  if (error != 0) return ErrnoError(error, absl::StrFormat("cannot open '%s'", options.file));
  disk.size = static_cast<uint64_t>(lseek(disk.fd.get(), 0, SEEK_END));
  return disk;
}

int64_t ProcessCpuNs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void PrintReport(CeilingEngine engine, const Disk& disk, const CeilingCounts& counts,
                 const MachineStatistics& statistics) {
  constexpr const char* kEngines[] = {"pread", "io_uring", "null"};
  const Json line = {{"program", "ceiling"},
                     {"engine", kEngines[static_cast<int>(engine)]},
                     {"direct", disk.direct},
                     {"requests", counts.requests},
                     {"errors", counts.errors},
                     {"kicks", counts.kicks},
                     {"interrupts", counts.interrupts},
                     {"io_uring_enters", counts.io_uring_enters},
                     {"cpu_ns", ProcessCpuNs()},
                     {"serving_cpu_ns", counts.cpu_ns},
                     {"vcpus", StatisticsJson(statistics)["vcpus"]}};
  std::fprintf(stderr, "%s\n", line.dump().c_str());
}

absl::StatusOr<MachineConfig> MakeConfig(const Options& options, LogSink& log) {
  MachineConfig config;
  config.kernel = options.kernel;
  config.command_line = options.command_line;
  config.cpus = options.queues;
  config.console.output_fd = STDOUT_FILENO;
  config.log = &log;
  RINGSIDE_ASSIGN_OR_RETURN(config.memory, ParseSize(options.memory));
  return config;
}

absl::StatusOr<MachineEnd> Run(const Options& options, LogSink& log) {
  RINGSIDE_ASSIGN_OR_RETURN(const CeilingEngine engine, ParseEngine(options));
  RINGSIDE_ASSIGN_OR_RETURN(const Disk disk, OpenDisk(options));
  RINGSIDE_ASSIGN_OR_RETURN(MachineConfig config, MakeConfig(options, log));
  CeilingCounts counts;
  const CeilingDevice::Config device = {
      .engine = engine, .fd = disk.fd.get(), .size = disk.size, .queues = options.queues};
  const MachineHooks hooks = {
      .devices = {{.id = "ceiling", .create = [&](const DeviceContext& context) {
                     return CeilingDevice::Create(context.memory, device, counts);
                   }}}};
  RINGSIDE_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine,
                            Machine::Internals::Create(config, hooks));
  RINGSIDE_RETURN_IF_ERROR(machine->Start());
  const MachineEnd end = machine->Wait();
  PrintReport(engine, disk, counts, machine->Statistics());
  return end;
}

int Main(const Options& options) {
  StderrLog log;
  const absl::StatusOr<MachineEnd> end = Run(options, log);
  const std::string_view error = end.ok() ? std::string_view(end->detail) : Message(end.status());
  if (!error.empty()) log.Log(Severity::kError, error);
  return end.ok() ? ExitCodeOf(end->kind) : ExitCodeOf(end.status());
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  ringside::Options options;
  CLI::App app("What this machine allows: the measuring guest on the barest disk there can be.",
               "ceiling");
  app.add_option("--kernel", options.kernel, "the measuring guest")->required();
  app.add_option("--file", options.file, "a file or a block device; nothing locks it");
  app.add_option("--null", options.null_size, "no file: a disk of this size that moves no data");
  app.add_option("--engine", options.engine, "pread or io_uring with --file, null with --null");
  app.add_option("--cmdline", options.command_line, "the guest's jobs, such as 'rw=randread qd=1'");
  app.add_option("--memory", options.memory, "guest memory, at most 1G")->capture_default_str();
  app.add_option("--queues", options.queues, "queues of the disk, and vCPUs")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ringside::kExitOk : ringside::kExitBadInput;
  }
  return ringside::Main(options);
}
