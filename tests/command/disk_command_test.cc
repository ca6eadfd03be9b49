// --disk and --stats as users of the ringside command meet them.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "tests/support/forbid.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/disk_command_fixture.h"
#include "tests/support/vmm/test_machine.h"

namespace ringside {
namespace {

using testing::DiskCommandTest;
using ::testing::HasSubstr;
using testing::kMiB;
using ::testing::Not;
using ::testing::StartsWith;

// ---- Bad input ----

TEST_F(DiskCommandTest, RefusesWhatIsNoDiskOption) {
  const std::string path = "path=" + MakeDisk("a,b", kMiB).insert(Path("a").size(), ",");
  ExpectDiskRefused("disk.img",
                    "--disk 'disk.img' is not KEY=VALUE: a file is given as path=disk.img");
  ExpectDiskRefused("readonly=on", "--disk path is missing: a disk needs one");
  ExpectDiskRefused(path + ",cahce=none", "--disk 'cahce' is unknown: did you mean 'cache'?");
  ExpectDiskRefused(path + ",queues=0", "queues=0 is out of range: a disk has 1 to 16 queues");
  ExpectDiskRefused("type=null,size=1000", "--disk size='1000' is not a multiple of 512 bytes");
  ExpectDiskRefused("cache=none,type=null,size=1G",
                    "--disk cache is for disks of type file or overlay only");
  ExpectRefused({"--stats=yaml"}, "--stats 'yaml' is unknown: give table or json");
}

TEST_F(DiskCommandTest, RefusesSocketsWithoutAServer) {
  const std::string file = MakeDisk("file", kMiB);
  ExpectDiskRefused("nvme+user://" + Path("none") + "/1",
                    "cannot connect to vfio-user socket '" + Path("none") +
                        "': No such file or directory; start the server");
  ExpectDiskRefused("nvme+user://" + file + "/1", "'" + file + "' is no socket");
  ExpectDiskRefused("nvme+user:///run", "names no socket by its whole path");
  const std::string socket = "nvme+user://" + Path("none") + "/1";
  ExpectRefused({"--disk", socket, "--disk", socket}, "a namespace can be one disk only");
}

TEST_F(DiskCommandTest, RefusesMappingsThatCannotBe) {
  const std::string null = "type=null,size=1M,queues=2,iothreads=";
  const std::vector<std::string> two = {"--iothread", "id=a", "--iothread", "id=b"};
  const auto refused = [&](const std::string& io_threads, const std::string& says) {
    std::vector<std::string> options = two;
    options.insert(options.end(), {"--disk", null + io_threads});
    ExpectRefused(options, says);
  };
  refused("a+c", "disk 'null': I/O thread 'c' is unknown; did you mean 'a'?");
  refused("a+a", "I/O thread 'a' is named twice");
  refused("a:0/b:0+1", "queue 0 has two I/O threads");
  refused("a:0", "queue 1 has no I/O thread");
  refused("a:0/b:1+2", "queue 2 of I/O thread 'b' does not exist: there are 0 to 1");
  refused("a:0/b", "iothreads='a:0/b' is not THREAD:QUEUES, nor threads alone");
  ExpectRefused({"--iothread", "id=a", "--iothread", "id=a"}, "two I/O threads are called 'a'");
  ExpectRefused({"--iothread", "cpu=9000"}, "I/O thread 'io0': CPU 9000 does not exist");
  ExpectRefused({"--cpu-affinity", "0:9000"}, "vCPU 0: CPU 9000 does not exist");
  ExpectRefused({"--cpu-affinity", "1:0"},
                "cpu-affinity names vCPU 1, which is not there: the 1 vCPUs count from 0");
  ExpectRefused({"--halt-poll", "2s"}, "--halt-poll '2s' is out of range: give 0 to 1s, or kernel");
}

TEST_F(DiskCommandTest, QueuesGoToTheThreadsTheyAreMappedTo) {
  const ProcessResult result =
      Run({"--iothread", "id=a,poll=fixed,max=20us,signal=batched", "--iothread", "poll=always",
           "--disk", "type=null,size=1M,queues=3,iothreads=a:1/io0:0+2", "--halt-poll", "0",
           "--stats", "json"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const nlohmann::json statistics = nlohmann::json::parse(result.errors);
  const nlohmann::json& queues = statistics["disks"][0]["queues"];
  ASSERT_EQ(queues.size(), 3u);
  EXPECT_EQ(queues[0]["io_thread"], "io0");
  EXPECT_EQ(queues[1]["io_thread"], "a");
  EXPECT_EQ(queues[2]["io_thread"], "io0");
  const nlohmann::json& threads = statistics["io_threads"];
  EXPECT_EQ(threads[0]["poll"]["kind"], "fixed");
  EXPECT_EQ(threads[0]["poll"]["max_ns"], 20000);
  EXPECT_EQ(threads[0]["signal"], "batched");
  EXPECT_EQ(threads[1]["id"], "io0");
  EXPECT_EQ(threads[1]["poll"]["kind"], "always");
}

TEST_F(DiskCommandTest, RefusesWhatIsNoDisk) {
  ExpectDiskRefused("path=/nonexistent",
                    "disk '/nonexistent': No such file or directory; make one");
  ExpectDiskRefused("path=" + Path(""), "is a directory; name a file");
  ExpectDiskRefused("path=/dev/null", "is no NVMe namespace; give a file, a block device or");
  ExpectDiskRefused("path=" + MakeDisk("empty", 0), "is empty; give it a size");
  ExpectDiskRefused("path=" + MakeDisk("odd", 1000), "has 1000 bytes, not a multiple of 512");
}

TEST_F(DiskCommandTest, RefusesFaultsThatMakeNoSense) {
  const std::string script = Path("script");
  std::ofstream(script) << "# now and then\nwrite error=EFOO\n";
  ExpectDiskRefused("type=null,size=1M,fault=" + script,
                    "fault script '" + script + "', line 2: 'EFOO' is the name of no error");
  ExpectDiskRefused("type=null,size=1M,fault=/nonexistent",
                    "cannot read the fault script '/nonexistent': No such file or directory");
  const std::string image = MakeDisk("image", kMiB);
  ExpectDiskRefused("path=" + MakeDisk("disk", kMiB) + ",record=" + image,
                    "record=" + image + " holds something that is no record");
}

TEST_F(DiskCommandTest, RefusesAFileThatAnotherOneWrites) {
  const std::string path = MakeDisk("disk", kMiB);
  ExpectRefused({"--disk", "path=" + path, "--disk", "path=" + path}, "is in use");

  const int other = open(path.c_str(), O_RDWR);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(other, F_OFD_SETLK, &lock), 0);
  ExpectDiskRefused("path=" + path, "is in use by another process");
  ExpectDiskRefused("path=" + path + ",readonly=on", "is in use by another process");
  lock.l_type = F_RDLCK;
  ASSERT_EQ(fcntl(other, F_OFD_SETLK, &lock), 0);
  ExpectDiskRefused("path=" + path, "is in use by another process");
  EXPECT_EQ(Run({"--disk", "path=" + path + ",readonly=on"}).status, 0);
  close(other);
}

TEST_F(DiskCommandTest, RefusesAFileItMayNotOpen) {
  const std::string path = MakeDisk("disk", kMiB);
  std::filesystem::permissions(path, std::filesystem::perms::none);
  std::vector<std::string> command;
  if (geteuid() == 0) {
    // Root may open everything: as somebody else who may use KVM.
    struct stat kvm;
    ASSERT_EQ(stat("/dev/kvm", &kvm), 0);
    command = {"/usr/bin/setpriv", "--reuid=65534", absl::StrFormat("--regid=%d", kvm.st_gid),
               "--clear-groups"};
  }
  // Copies where anybody may read them: the checkout may lie under /root.
  for (const char* word : {RINGSIDE_COMMAND, RINGSIDE_GUEST_ELF}) {
    std::filesystem::copy_file(word, Path(std::filesystem::path(word).filename()));
  }
  command.insert(command.end(), {Path("ringside"), "run", "--kernel", Path("guest.elf"), "--disk"});
  for (const char* mode : {"", ",readonly=on"}) {
    std::vector<std::string> whole = command;
    whole.push_back("path=" + path + mode);
    const ProcessResult result = RunProcess(whole);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, StartsWith("ringside: error: cannot open disk '" + path +
                                          "': Permission denied; give yourself the right to "));
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  }
}

TEST_F(DiskCommandTest, RefusesAnEngineThatCannotBe) {
  const std::string path = "path=" + MakeDisk("disk", kMiB);
  ExpectDiskRefused(path + ",aio=native,cache=writeback", "aio=native needs O_DIRECT");
  ExpectRefused({"--iothread", "id=slow,waiter=epoll", "--disk", path + ",aio=io_uring"},
                "needs io_uring, and I/O thread 'slow' does not use it: give the thread "
                "waiter=io_uring, or the disk another aio");
  std::thread([&] {
    testing::Forbid(SYS_io_uring_setup, EPERM);
    ExpectDiskRefused(path + ",aio=io_uring", "io_uring cannot be used: Operation not permitted");
  }).join();
}

TEST_F(DiskCommandTest, TakesAnotherEngineWhereIoUringIsForbiddenAndSaysSo) {
  const std::string path = "path=" + MakeDisk("disk", 16 * kMiB);
  ProcessResult result;
  std::thread([&] {
    testing::Forbid(SYS_io_uring_setup, EPERM);
    result = Run({"--disk", path, "--stats"}, "disk=1 end=poweroff");
  }).join();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("guest: disk 0 ok "));
  EXPECT_THAT(result.errors, HasSubstr("io_uring cannot be used: Operation not permitted"));
  EXPECT_THAT(result.errors, ::testing::ContainsRegex("aio=(native|threads)"));
}

TEST_F(DiskCommandTest, DoctorSaysWhetherThereIsIoUring) {
  EXPECT_THAT(RunProcess({RINGSIDE_COMMAND, "doctor"}).output,
              HasSubstr("ok    io_uring is there"));
  std::thread([] {
    testing::Forbid(SYS_io_uring_setup, EPERM);
    EXPECT_THAT(RunProcess({RINGSIDE_COMMAND, "doctor"}).output,
                HasSubstr("slow  io_uring cannot be used: Operation not permitted"));
  }).join();
}

TEST_F(DiskCommandTest, DoctorSaysHowADiskIsSetUp) {
  const std::string path = MakeDisk("disk", 16 * kMiB);
  const ProcessResult result = RunProcess({RINGSIDE_COMMAND, "doctor", "--disk", path});
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(result.output, StartsWith("Disk " + path + "\n"));
  EXPECT_THAT(result.output, HasSubstr("takes O_DIRECT"));
  const ProcessResult json = RunProcess({RINGSIDE_COMMAND, "doctor", "--disk", path, "--json"});
  EXPECT_EQ(json.status, result.status);
  const auto document = nlohmann::json::parse(json.output);
  EXPECT_EQ(document["disk"], path);
  EXPECT_EQ(document["sound"], json.status == 0);
}

// The kernel forgets what is in /dev/shm, and says so.
TEST_F(DiskCommandTest, DoctorsExitCodeSaysWhatIsUnsafe) {
  const testing::TempFile file(kMiB, "/dev/shm");
  const ProcessResult result = RunProcess({RINGSIDE_COMMAND, "doctor", "--disk", file.path()});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.output, HasSubstr("LOSS  the file is in memory"));
}

TEST_F(DiskCommandTest, DoctorRefusesWhatItCannotLookAt) {
  const auto refused = [](std::vector<std::string> words, const std::string& says) {
    words.insert(words.begin(), {RINGSIDE_COMMAND, "doctor"});
    const ProcessResult result = RunProcess(words);
    EXPECT_EQ(result.status, 2) << says;
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.errors, StartsWith("ringside: error: "));
    EXPECT_THAT(result.errors, HasSubstr(says));
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1);
  };
  refused({"--disk", "/nonexistent"},
          "disk '/nonexistent': No such file or directory; name a file");
  refused({"--disk", "/dev/null", "--iothread-cpu", "x"},
          "--iothread-cpu 'x' is not a list, for example 0-2+5");
  refused({"--disk", "/dev/null", "--memory-node", "0;1"}, "--memory-node '0;1' is not a list");
  refused({"--disk", "/dev/null", "--memory-node", "1000"}, "memory-node 1000 does not exist");
  refused({"--json"}, "are about a disk: give --disk PATH");
}

// ---- Statistics ----

TEST_F(DiskCommandTest, CountsWhatTheGuestDid) {
  const std::string path = MakeDisk("disk", 16 * kMiB);
  const ProcessResult result =
      Run({"--disk", "path=" + path, "--stats", "json"}, "disk=1 end=poweroff");
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, Not(HasSubstr("FAIL")));
  const nlohmann::json statistics = nlohmann::json::parse(result.errors);
  const nlohmann::json& disk = statistics["disks"][0];
  EXPECT_EQ(disk["path"], path);
  const nlohmann::json& queue = disk["queues"][0];
  EXPECT_GT(queue["reads"], 100);
  EXPECT_GT(queue["writes"], 100);
  EXPECT_GT(queue["flushes"], 0);
  EXPECT_GT(queue["bytes_written"], uint64_t{kMiB});
  // The guest counts its own kicks, and says how many.
  EXPECT_THAT(result.output, HasSubstr("kicks=" + queue["kicks"].dump()));
  EXPECT_GT(queue["interrupts"], 0);
  EXPECT_EQ(queue["batches"],
            queue["interrupts"].get<int>() + queue["interrupts_suppressed"].get<int>());
  EXPECT_GT(statistics["io_threads"][0]["turns"], 0);
  const nlohmann::json& vcpu = statistics["vcpus"][0];
  EXPECT_GT(vcpu["exits"]["io"], 0);
  if (vcpu.contains("kernel_exits")) {  // those that came back to us are among KVM's
    EXPECT_GT(vcpu["kernel_exits"]["exits"], vcpu["exits"]["mmio"]);
  }
}

// ---- Latency trace ----

TEST_F(DiskCommandTest, TracesEveryRequestInOrder) {
  for (const char* aio : {"io_uring", "native", "threads"}) {
    SCOPED_TRACE(aio);
    const std::string path = MakeDisk("disk", 16 * kMiB);
    const ProcessResult run = Run({"--disk", "path=" + path + ",aio=" + aio, "--stats", "json",
                                   "--trace-latency", Path("trace")},
                                  "disk=1 end=poweroff");
    ASSERT_EQ(run.status, 0) << run.errors;
    const nlohmann::json queue = nlohmann::json::parse(run.errors)["disks"][0]["queues"][0];
    std::map<std::string, uint64_t> kinds;
    uint64_t raised = 0;
    std::ifstream trace(Path("trace"));
    std::string line;
    std::getline(trace, line);
    EXPECT_EQ(nlohmann::json::parse(line)["records"], queue["requests"]);
    std::getline(trace, line);
    EXPECT_EQ(nlohmann::json::parse(line)["path"], path);
    while (std::getline(trace, line)) {
      const nlohmann::json record = nlohmann::json::parse(line);
      const std::vector<int64_t> stamps(record.begin() + 3, record.end());
      ASSERT_EQ(stamps.size(), 6u);
      const bool interrupt = stamps.back() != 0;
      raised += interrupt;
      ++kinds[record[1].get<std::string>()];
      EXPECT_TRUE(std::is_sorted(stamps.begin(), stamps.end() - (interrupt ? 0 : 1))) << line;
    }
    EXPECT_EQ(kinds["read"], queue["reads"]);
    EXPECT_EQ(kinds["write"], queue["writes"]);
    EXPECT_EQ(kinds["flush"], queue["flushes"]);
    EXPECT_EQ(kinds["discard"], queue["discards"]);
    EXPECT_EQ(kinds["other"], queue["other_requests"]);
    EXPECT_GE(raised, queue["interrupts"]) << "an interrupt is for one request or more";

    const ProcessResult json =
        RunProcess({RINGSIDE_COMMAND, "report", Path("trace"), "--json", "--svg", Path("svg")});
    ASSERT_EQ(json.status, 0) << json.errors;
    const nlohmann::json report = nlohmann::json::parse(json.output);
    EXPECT_EQ(report["unordered"], 0);
    EXPECT_EQ(report["queues"][0]["total"]["count"], queue["reads"]);
    EXPECT_GT(std::filesystem::file_size(Path("svg")), 1000u);
    EXPECT_THAT(RunProcess({RINGSIDE_COMMAND, "report", Path("trace")}).output,
                HasSubstr("disk0 (" + path + ") queue 0, read: "));
  }
}

TEST_F(DiskCommandTest, RefusesATraceThatCannotBe) {
  const std::string disk = "path=" + MakeDisk("disk", kMiB);
  ExpectRefused({"--trace-latency", Path("trace")},
                "--trace-latency is about disks and networks, and there is none: give a --disk or "
                "a --net");
  ExpectRefused({"--disk", disk, "--trace-latency", "/nonexistent/trace"},
                "--trace-latency cannot write '/nonexistent/trace': No such file or directory");
  ExpectRefused({"--disk", disk, "--trace-latency", Path("disk")},
                "holds something else, which would be lost; give another file");
  EXPECT_EQ(std::filesystem::file_size(Path("disk")), kMiB);
  const ProcessResult full = Run({"--disk", disk, "--trace-latency", "/dev/full"});
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.errors, HasSubstr("--trace-latency could not write all of '/dev/full'"));
}

TEST_F(DiskCommandTest, ReportRefusesWhatIsNoTrace) {
  const auto refused = [](const std::vector<std::string>& words, const std::string& says) {
    std::vector<std::string> command = {RINGSIDE_COMMAND, "report"};
    command.insert(command.end(), words.begin(), words.end());
    const ProcessResult result = RunProcess(command);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.errors, StartsWith("ringside: error: "));
    EXPECT_THAT(result.errors, HasSubstr(says));
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  };
  refused({RINGSIDE_GUEST_ELF}, "is no latency trace; give a file that --trace-latency wrote");
  refused({"/nonexistent"}, "cannot open '/nonexistent'");
  refused({}, "FILE is required");
  const std::string path = Path("trace");
  std::ofstream(path) << R"({"format":"ringside latency trace","version":2,"queues":0,"records":0})"
                      << '\n';
  refused({path, "--svg", "/nonexistent/svg"}, "--svg cannot write '/nonexistent/svg'");
  EXPECT_EQ(RunProcess({RINGSIDE_COMMAND, "report", path}).output, "no request was recorded\n");
}

TEST_F(DiskCommandTest, PrintsATableForPeople) {
  const ProcessResult result =
      Run({"--disk", "path=" + MakeDisk("disk", 16 * kMiB), "--stats"}, "disk=1 end=poweroff");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.errors, HasSubstr("queue 0"));
  EXPECT_THAT(result.errors, HasSubstr("vCPU 0 exits: "));
  EXPECT_THAT(result.errors, HasSubstr("\n  inside the kernel: "));
}

}  // namespace
}  // namespace ringside
