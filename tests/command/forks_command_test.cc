// `ringside run --template`: machines that go on from one snapshot, in several processes.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sys/wait.h>

#include "command/fork_results.h"
#include "command/run_options.h"
#include "tests/support/subprocess.h"
#include "tests/support/vmm/disk_command_fixture.h"
#include "tests/support/wait.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ForksCommandTest : public testing::DiskCommandTest {
 protected:
  // Of a machine whose guest does what `command_line` says, once it has said `until`.
  void Save(const std::string& command_line, const std::string& until) {
    const std::string socket = Path("saved.sock");
    TerminalProcess machine({RINGSIDE_COMMAND, "run", "--kernel", RINGSIDE_GUEST_ELF, "--memory",
                             "32M", "--disk", "type=null,size=1M", "--cmdline", command_line,
                             "--api-sock", socket});
    ASSERT_TRUE(machine.WaitFor(until)) << machine.output();
    const ProcessResult save =
        RunProcess({RINGSIDE_COMMAND, "ctl", socket, "save", Path("snap"), "--stop", "on"});
    ASSERT_EQ(save.status, 0) << save.errors;
    EXPECT_EQ(machine.Wait(), 0) << machine.output();
  }
  std::vector<std::string> Command(std::initializer_list<std::string> options) const {
    std::vector<std::string> command = {RINGSIDE_COMMAND, "run",    "--template",
                                        Path("snap"),     "--disk", "type=null,size=1M"};
    command.insert(command.end(), options);
    return command;
  }
  // What --stats json says, behind what is logged.
  static json Forks(const ProcessResult& result) {
    const size_t begin = result.errors.find("{\"forks\"");
    if (begin == std::string::npos) {
      ADD_FAILURE() << result.errors;
      return json::array();
    }
    return json::parse(result.errors.substr(begin))["forks"];
  }
  // The children of a process, as soon as there are so many; those that are no zombies.
  static std::vector<pid_t> WorkersOf(pid_t process, size_t count) {
    std::vector<pid_t> workers;
    testing::SpinUntil([&] {
      workers.clear();
      for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        std::ifstream file(entry.path() / "stat");
        pid_t pid = 0, parent = 0;
        std::string name, state;
        if (file >> pid >> name >> state >> parent && parent == process && state != "Z") {
          workers.push_back(pid);
        }
      }
      return workers.size() == count;
    });
    std::ranges::sort(workers);
    return workers;
  }
  std::string Content(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

constexpr char kMeasures[] = "rw=randread qd=1 runtime=4s wait=irq end=poweroff";

TEST_F(ForksCommandTest, EachGoesOnToItsOwnEnd) {
  Save(kMeasures, "rsdp");
  const ProcessResult result =
      RunProcess(Command({"--forks", "5", "--forks-per-process", "2", "--serial",
                          "file=" + Path("{n}.log"), "--stats", "json"}));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("5 of 5 forks came up in "));
  std::set<pid_t> processes;
  for (const json& fork : Forks(result)) {
    processes.insert(fork["process"].get<pid_t>());
    EXPECT_EQ(fork["exit_code"], 0) << fork;
    EXPECT_GT(fork["ended_ns"], fork["up_ns"]) << fork;
    EXPECT_THAT(Content(to_string(fork["fork"]) + ".log"), HasSubstr("\"rw\":\"randread\""));
  }
  EXPECT_EQ(processes.size(), 3U);
}

TEST_F(ForksCommandTest, ThoseThatCannotBeAreNamedAndTheOthersGoOn) {
  Save(kMeasures, "rsdp");
  std::filesystem::create_directory(Path("1"));
  std::filesystem::create_directory(Path("3"));
  const ProcessResult result =
      RunProcess(Command({"--forks", "3", "--serial", "file=" + Path("{n}/log")}));
  EXPECT_EQ(result.status, 2) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("ringside: error: fork 2: --serial cannot write "));
  EXPECT_THAT(result.errors, HasSubstr("2 of 3 forks came up"));
  for (const char* log : {"1/log", "3/log"}) EXPECT_THAT(Content(log), HasSubstr("\"rw\""));
}

TEST_F(ForksCommandTest, WithTooFewDescriptorsSomeComeUpAndTheLimitIsNamed) {
  Save(kMeasures, "rsdp");
  std::vector<std::string> command = {"/usr/bin/prlimit", "--nofile=100:100"};
  // So many that more than are named fail, even where some end before others are begun.
  for (const std::string& word : Command({"--forks", "60", "--stats", "json"})) {
    command.push_back(word);
  }
  const ProcessResult result = RunProcess(command);
  EXPECT_NE(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("Too many open files; raise 'ulimit -n', which is 100"));
  EXPECT_THAT(result.errors, HasSubstr("more forks failed (see --stats json)"));
  size_t well = 0;
  for (const json& fork : Forks(result)) {
    if (fork["exit_code"] != 0) continue;
    ++well;
    EXPECT_TRUE(fork["ended_ns"].is_number()) << fork;
  }
  EXPECT_GE(well, 2U) << result.errors;
}

TEST_F(ForksCommandTest, TheFirstOnesWorkingSetIsForAllLaterOnes) {
  Save(kMeasures, "rsdp");
  const ProcessResult first = RunProcess(Command({"--forks", "2", "--record-working-set"}));
  EXPECT_EQ(first.status, 0) << first.errors;
  const ProcessResult info =
      RunProcess({RINGSIDE_COMMAND, "snapshot", "info", "--json", Path("snap")});
  EXPECT_GT(json::parse(info.output)["working_set"]["written_pages"], 2) << info.output;
  const ProcessResult later = RunProcess(Command({"--forks", "2"}));
  EXPECT_EQ(later.status, 0) << later.errors;
}

// A snapshot may be somebody else's.
TEST_F(ForksCommandTest, NamesOfItsDevicesAreSpeltOut) {
  Save(kMeasures, "rsdp");
  const std::string content = Content("snap/state");
  absl::StatusOr<SavedMachine> saved =
      DecodeMachine({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
  ASSERT_TRUE(saved.ok()) << saved.status();
  saved->devices.functions.front().name = "\xff\x1b]0;x\x07";
  const std::vector<uint8_t> state = EncodeMachine(*saved);
  std::ofstream(Path("snap/state"), std::ios::binary)
      .write(reinterpret_cast<const char*>(state.data()), std::ssize(state));
  const ProcessResult text = RunProcess({RINGSIDE_COMMAND, "snapshot", "info", Path("snap")});
  EXPECT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, HasSubstr("\\xff\\x1b]0;x\\x07"));
  const ProcessResult info =
      RunProcess({RINGSIDE_COMMAND, "snapshot", "info", "--json", Path("snap")});
  EXPECT_EQ(info.status, 0) << info.errors;
  EXPECT_TRUE(json::accept(info.output)) << info.output;
}

// Of two, each in a process: one process is killed, as a host without memory does it.
TEST_F(ForksCommandTest, AProcessThatIsKilledTakesNoOtherAlong) {
  Save("rw=randread qd=1 runtime=60s wait=irq", "rsdp");
  TerminalProcess forks(Command({"--forks", "2", "--forks-per-process", "1", "--serial",
                                 "file=" + Path("{n}.log"), "--stats"}));
  const std::vector<pid_t> workers = WorkersOf(forks.pid(), 2);
  ASSERT_EQ(workers.size(), 2U) << forks.output();
  // The one that stays has taken up its work: what ends it is no start that fails.
  ASSERT_TRUE(testing::SpinUntil([&] { return std::filesystem::exists(Path("1.log")); }));
  kill(workers[1], SIGKILL);
  ASSERT_TRUE(testing::SpinUntil([&] { return WorkersOf(forks.pid(), 1).size() == 1; }));
  forks.Signal(SIGTERM);
  EXPECT_EQ(forks.Wait(), 128 + SIGTERM) << forks.output();
  EXPECT_THAT(forks.output(),
              HasSubstr("was killed by signal 9 (did the host run out of memory?)"));
  EXPECT_THAT(forks.output(), HasSubstr("1 failed"));
}

// Which counts as no good end. Its threads: its own, two of its forks' vCPUs, and the two that they
// share.
TEST_F(ForksCommandTest, AProcessThatOthersAskToEndIsNamed) {
  Save("rw=randread qd=1 runtime=60s wait=irq", "rsdp");
  TerminalProcess forks(Command({"--forks", "2", "--forks-per-process", "2"}));
  const std::vector<pid_t> workers = WorkersOf(forks.pid(), 1);
  ASSERT_EQ(workers.size(), 1U) << forks.output();
  const std::string tasks = absl::StrFormat("/proc/%d/task", workers[0]);
  ASSERT_TRUE(testing::SpinUntil([&] {
    return std::distance(std::filesystem::directory_iterator(tasks), {}) >= 5;
  })) << forks.output();
  kill(workers[0], SIGTERM);
  EXPECT_EQ(forks.Wait(), 128 + SIGTERM) << forks.output();
  EXPECT_THAT(forks.output(), HasSubstr(absl::StrFormat("process %d ended its process %d by signal",
                                                        getpid(), workers[0])));
  EXPECT_THAT(forks.output(), HasSubstr("2 failed"));
}

TEST_F(ForksCommandTest, NoneOutlivesTheCommand) {
  Save("rw=randread qd=1 runtime=60s wait=irq", "rsdp");
  TerminalProcess forks(Command({"--forks", "3", "--forks-per-process", "2"}));
  const std::vector<pid_t> workers = WorkersOf(forks.pid(), 2);
  ASSERT_EQ(workers.size(), 2U) << forks.output();
  forks.Signal(SIGKILL);
  EXPECT_EQ(forks.Wait(), 128 + SIGKILL);
  for (const pid_t worker : workers) {
    EXPECT_TRUE(testing::SpinUntil([worker] { return kill(worker, 0) != 0; }));
  }
}

TEST_F(ForksCommandTest, RefusesWhatMakesNoSense) {
  const auto refused = [](const std::vector<std::string>& options, const std::string& says) {
    std::vector<std::string> command = {RINGSIDE_COMMAND, "run"};
    command.insert(command.end(), options.begin(), options.end());
    const ProcessResult result = RunProcess(command);
    EXPECT_EQ(result.status, 2) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(says));
  };
  refused({"--kernel", RINGSIDE_GUEST_ELF, "--forks", "2"}, "there is none: give --template DIR");
  refused({"--kernel", RINGSIDE_GUEST_ELF, "--exec", "id"}, "there is none: give --template DIR");
  refused({"--kernel", RINGSIDE_GUEST_ELF, "--record-working-set"},
          "there is none: give --restore");
  refused({"--template", "snap", "--forks", "0"}, "1 to 65536 forks");
  refused({"--template", "snap", "--forks-per-process", "x"}, "--forks-per-process");
  refused({"--template", "snap", "--timing"}, "--timing is about one machine");
  refused({"--template", "snap", "--api-sock", "x.sock"}, "--api-sock is about one machine");
  refused({"--template", "/nowhere"}, "cannot open '/nowhere/state'");
  Save(kMeasures, "rsdp");
  refused({"--template", Path("snap"), "--kernel", "vmlinux"}, "a template and 'vmlinux'");
  refused({"--template", Path("snap"), "--exec", "id"}, "give --vsock cid=3,path={n}.vsock");
}

// What a fork says goes into no file that it runs from.
TEST_F(ForksCommandTest, AConsoleIsNoneOfTheirOwnFiles) {
  Save(kMeasures, "rsdp");
  for (const char* const name : {"snap/memory", "snap/state", "disk.img"}) {
    if (!std::filesystem::exists(Path(name))) std::ofstream(Path(name)) << std::string(4096, 'x');
    const auto size = std::filesystem::file_size(Path(name));
    const ProcessResult result =
        RunProcess({RINGSIDE_COMMAND, "run", "--template", Path("snap"), "--disk",
                    "path=" + Path("disk.img"), "--serial", "file=" + Path(name) + ",truncate=on"});
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.errors, HasSubstr("would be written into; give another file")) << name;
    EXPECT_EQ(std::filesystem::file_size(Path(name)), size);
  }
}

// Which is read once, whoever writes it.
TEST_F(ForksCommandTest, TheirConfigurationMayComeByAPipe) {
  Save(kMeasures, "rsdp");
  const std::string command =
      std::string("echo '{\"disks\":[{\"type\":\"null\",\"size\":1048576}],") +
      "\"serial\":{\"file\":\"" + Path("said.{n}") + "\"}}' | exec " + RINGSIDE_COMMAND +
      " run --template " + Path("snap") +
      " --forks 3 --forks-per-process 2 --stats json --config /dev/stdin";
  const ProcessResult result = RunProcess({"/bin/sh", "-c", command});
  EXPECT_EQ(result.status, 0) << result.errors;
  for (const int number : {1, 2, 3}) {
    EXPECT_THAT(Content("said." + std::to_string(number)), HasSubstr("\"errors\":0")) << number;
  }
}

TEST(NumberedTest, AVariableOfTheShellIsNone) {
  EXPECT_EQ(Numbered("{n} a{n}.img {n}{n} {m}", 12), "12 a12.img 1212 {m}");
  EXPECT_EQ(Numbered("for n in a; do echo ${n} {n}; done", 3), "for n in a; do echo ${n} 3; done");
}

TEST(ForkResultsTest, ALineIsReadAsItWasWritten) {
  const ForkResult result = {
      .number = 3, .process = 17, .up_ns = 5, .ended_ns = {}, .code = 2, .error = "a \"b\"\n\xff"};
  const auto read = ReadForkLine(LineOf(result));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->number, 3U);
  EXPECT_EQ(read->process, 17);
  EXPECT_EQ(read->up_ns, 5);
  EXPECT_EQ(read->ended_ns, std::nullopt);
  EXPECT_EQ(read->code, 2);
  EXPECT_THAT(read->error, HasSubstr("a \"b\"\n"));
  EXPECT_EQ(ReadForkLine("{\"fork\":1}"), std::nullopt);
  EXPECT_EQ(ReadForkLine("forks"), std::nullopt);
}

TEST(ForkResultsTest, EachIsCountedOnceAndManyErrorsAreFewLines) {
  ForkResults results(30);
  ForkResult first = {.number = 1, .process = 5, .up_ns = 1'000'000};
  results.Take(first);
  results.Take(first);
  first.ended_ns = 2'000'000;
  results.Take(first);
  results.Lost(1, 30, 5, "gone");
  results.Take({.number = 31, .up_ns = 1});
  EXPECT_EQ(results.up(), 1U);
  EXPECT_EQ(results.over(), 30U);
  EXPECT_EQ(results.exit_code(), 1);
  const std::vector<std::string> errors = results.Errors();
  ASSERT_EQ(errors.size(), 11U);
  EXPECT_EQ(errors.front(), "fork 2: gone");
  EXPECT_EQ(errors.back(), "19 more forks failed (see --stats json)");
  EXPECT_EQ(results.Summary(2),
            "1 of 30 forks came up in 1.00 ms (median; longest 1.00) in 2 processes, were over in "
            "2.00 ms (median; longest 2.00); 29 failed");
}

}  // namespace
}  // namespace ringside
