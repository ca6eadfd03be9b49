// Options with a language of their own: what they mean, and what is said of those that mean
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "command/cpu_affinity_option.h"
#include "command/disk_option.h"
#include "command/iothread_option.h"
#include "command/number_list.h"
#include "command/poll_settings.h"
#include "command/statistics_report.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<int>;

template <typename Parsed>
std::string ErrorOf(const absl::StatusOr<Parsed>& parsed) {
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(Message(parsed.status()));
}

TEST(NumberListTest, TakesNumbersAndRanges) {
  EXPECT_EQ(ParseNumberList("7"), Numbers({7}));
  EXPECT_EQ(ParseNumberList("0-2+5"), Numbers({0, 1, 2, 5}));
  EXPECT_EQ(ParseNumberList("9+3-3+1"), Numbers({9, 3, 1}));
  EXPECT_EQ(ParseNumberList("65535"), Numbers({65535}));
}

TEST(NumberListTest, RefusesAllElse) {
  for (const char* text : {"", "+", "1+", "+1", "1-", "-1", "1-2-3", "2-1", "a", "1,2", " 1", "1 ",
                           "0x1", "65536", "99999999999999999999"}) {
    EXPECT_EQ(ParseNumberList(text), std::nullopt) << text;
  }
}

TEST(IoThreadOptionTest, EveryKeyIsTakenUp) {
  const auto config = ParseIoThread(
      "id=a.b-c_1,poll=grow-shrink,max=50us,grow=3,shrink=4,signal=batched,waiter=epoll,"
      "cpu=0-1+3");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->name, "a.b-c_1");
  EXPECT_EQ(config->tuning.poll.kind, PollKind::kGrowShrink);
  EXPECT_EQ(config->tuning.poll.max_ns, 50'000);
  EXPECT_EQ(config->tuning.poll.grow, 3u);
  EXPECT_EQ(config->tuning.poll.shrink, 4u);
  EXPECT_EQ(config->tuning.signalling, Signalling::kBatched);
  EXPECT_EQ(config->waiter, IoThreadConfig::Waiter::kEpoll);
  EXPECT_EQ(config->cpus, Numbers({0, 1, 3}));
}

TEST(IoThreadOptionTest, EveryPolicyIsTakenUp) {
  for (const PollKind kind : {PollKind::kNever, PollKind::kAlways, PollKind::kFixed,
                              PollKind::kGrowShrink, PollKind::kWeighted, PollKind::kCost}) {
    const auto config = ParseIoThread(std::string("poll=") + PollKindName(kind));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->tuning.poll.kind, kind);
  }
}

TEST(IoThreadOptionTest, KeysOfWeightedAndCostAreTakenUp) {
  const auto weighted = ParseIoThread("poll=weighted,max=1us,grow=4,shrink=0,weight=63");
  ASSERT_TRUE(weighted.ok()) << weighted.status();
  EXPECT_EQ(weighted->tuning.poll.max_ns, 1000);
  EXPECT_EQ(weighted->tuning.poll.grow, 4u);
  EXPECT_EQ(weighted->tuning.poll.shrink, 0u);
  EXPECT_EQ(weighted->tuning.poll.weight, 63u);
  const auto cost = ParseIoThread("poll=cost,price=0.25,cpu-max=12.5%");
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_EQ(cost->tuning.poll.price, 0.25);
  EXPECT_EQ(cost->tuning.poll.cpu_max, 0.125);
  const auto most = ParseIoThread("poll=cost,price=1000,cpu-max=100%");
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(most->tuning.poll.price, 1000);
  EXPECT_EQ(most->tuning.poll.cpu_max, 1);
}

TEST(IoThreadOptionTest, WhatIsLeftOutIsTheDefault) {
  const auto config = ParseIoThread("poll=never");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->name, "");
  EXPECT_EQ(config->tuning.poll.max_ns, PollConfig().max_ns);
  EXPECT_EQ(config->tuning.signalling, Signalling::kEarly);
  EXPECT_EQ(config->waiter, IoThreadConfig::Waiter::kAuto);
  EXPECT_TRUE(config->cpus.empty());
}

TEST(IoThreadOptionTest, SaysWhatIsWrong) {
  const auto error = [](const char* text) { return ErrorOf(ParseIoThread(text)); };
  EXPECT_THAT(error("grow-shrink"),
              HasSubstr("'grow-shrink' is no key=value; a policy is given as poll=grow-shrink"));
  EXPECT_THAT(error("pol=never"), HasSubstr("did you mean 'poll'?"));
  EXPECT_THAT(error("poll=allways"), HasSubstr("did you mean 'always'?"));
  EXPECT_THAT(error("max=fast"), HasSubstr("max='fast' cannot be; give a time up to 1s"));
  EXPECT_THAT(error("max=2s"), HasSubstr("up to 1s"));
  EXPECT_THAT(error("max=-1us"), HasSubstr("up to 1s"));
  EXPECT_THAT(error("grow=1"), HasSubstr("give 2 to 1000"));
  EXPECT_THAT(error("shrink=-1"), HasSubstr("give 0 to 1000"));
  for (const char* text : {"weight=64", "weight=-1", "weight=x", "weight="}) {
    EXPECT_THAT(error(text), HasSubstr("give 0 to 63")) << text;
  }
  for (const char* text : {"price=0", "price=-1", "price=1000.1", "price=nan", "price=inf",
                           "price=cheap", "price=1x", "price="}) {
    EXPECT_THAT(error(text), HasSubstr("give more than 0, up to 1000, such as 1.0")) << text;
  }
  for (const char* text : {"cpu-max=0%", "cpu-max=-1%", "cpu-max=101%", "cpu-max=20", "cpu-max=%",
                           "cpu-max=nan%", "cpu-max=all%", "cpu-max="}) {
    EXPECT_THAT(error(text), HasSubstr("up to 100%, such as 20%")) << text;
  }
  EXPECT_THAT(error("poll=wheighted"), HasSubstr("did you mean 'weighted'?"));
  EXPECT_THAT(error("waiter=poll"),
              HasSubstr("waiter='poll' is unknown; give auto, io_uring or epoll"));
  EXPECT_THAT(error("signal=late"), HasSubstr("signal='late' is unknown; give early or batched"));
  EXPECT_THAT(error("cpu=first"), HasSubstr("cpu='first' is no list of CPUs; give such as 0-2+5"));
  EXPECT_THAT(error("id="), HasSubstr("id= is empty"));
}

TEST(DiskOptionTest, ANullDiskMayTakeItsTime) {
  const auto latency_ns = [](const std::string& text) {
    const auto disk = ParseDisk("type=null,size=1M" + text);
    EXPECT_TRUE(disk.ok()) << disk.status();
    return disk->backend.As<NullConfig>()->latency_ns;
  };
  EXPECT_EQ(latency_ns(""), 0);
  EXPECT_EQ(latency_ns(",latency=0"), 0);
  EXPECT_EQ(latency_ns(",latency=20us"), 20'000);
  EXPECT_EQ(latency_ns(",latency=1s"), NullDevice::kMaxLatencyNs);
}

TEST(NvmeDiskOptionTest, IsAUrlAndKeys) {
  const auto disk = ParseDisk("nvme://0000:00:04.0/1");
  ASSERT_TRUE(disk.ok()) << disk.status();
  const auto& nvme = *disk->backend.As<NvmeConfig>();
  EXPECT_EQ(nvme.address, "0000:00:04.0");
  EXPECT_EQ(nvme.socket, "");
  EXPECT_EQ(nvme.namespace_id, 1u);
  EXPECT_FALSE(nvme.read_only);
  EXPECT_EQ(nvme.timeout, std::nullopt);

  const auto all = ParseDisk(
      "nvme://00ff:ae:1f.7/4294967294,readonly=on,timeout=1.5s,serial=s,queues=2,iothreads=a+b");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->backend.As<NvmeConfig>()->address, "00ff:ae:1f.7");
  EXPECT_EQ(all->backend.As<NvmeConfig>()->namespace_id, 4294967294u);
  EXPECT_TRUE(all->backend.As<NvmeConfig>()->read_only);
  EXPECT_EQ(all->backend.As<NvmeConfig>()->timeout, absl::Milliseconds(1500));
  EXPECT_EQ(all->serial, "s");
  EXPECT_EQ(all->queues, 2);
  EXPECT_EQ(all->shares.size(), 2u);
}

TEST(NvmeDiskOptionTest, ItsTimeoutHasLimits) {
  for (const char* time : {"10ms", "1h"}) {
    EXPECT_TRUE(ParseDisk(std::string("nvme://0000:00:04.0/1,timeout=") + time).ok()) << time;
  }
  for (const char* time : {"", "0", "30", "9ms", "3601s", "-1s", "inf", "soon"}) {
    EXPECT_THAT(ErrorOf(ParseDisk(std::string("nvme://0000:00:04.0/1,timeout=") + time)),
                HasSubstr("cannot be; give a time from 10ms to 1h, such as 30s"))
        << time;
  }
}

TEST(NvmeDiskOptionTest, SaysWhatIsWrong) {
  const auto error = [](const std::string& text) { return ErrorOf(ParseDisk(text)); };
  for (const char* url : {"nvme://", "nvme:///", "nvme:///1"}) {
    EXPECT_EQ(error(url), std::string("--disk '") + url +
                              "' names no PCI address; give such as nvme://0000:00:04.0/1");
  }
  for (const char* url : {"nvme://0000:00:04.0", "nvme://0000:00:04.0/"}) {
    EXPECT_THAT(error(url), HasSubstr("names no namespace; give such as nvme://0000:00:04.0/1"));
  }
  for (const char* number :
       {"0", "-1", "+1", "x", "1x", "0x1", "1/", " 1", "4294967295", "4294967296"}) {
    EXPECT_THAT(error(std::string("nvme://0000:00:04.0/") + number + ",readonly=on"),
                HasSubstr("is no namespace; they count from 1"))
        << number;
  }
  const std::string good = "nvme://0000:00:04.0/1,";
  EXPECT_EQ(error(good + "cache=none"), "--disk 'cache' is for type=file only; leave it out");
  EXPECT_EQ(error(good + "path=x"), "--disk 'path' is for type=file only; leave it out");
  EXPECT_EQ(error(good + "size=1M"), "--disk 'size' is for type=null only; leave it out");
  EXPECT_THAT(error(good + "type=null"), HasSubstr("'type' is not for nvme://"));
  EXPECT_THAT(error(good + "readonly=yes"), HasSubstr("give on or off"));
  EXPECT_THAT(error(good + "timout=1s"), HasSubstr("did you mean 'timeout'?"));
  EXPECT_EQ(error(good), "--disk '' is no key=value; give KEY=VALUE instead of ");
  EXPECT_EQ(error("path=x,timeout=1s"),
            "--disk 'timeout' is for nvme:// only; leave it out, or give nvme://");
  EXPECT_THAT(error("nvme:/0000:00:04.0/1"), HasSubstr("is no key=value"));
}

TEST(NvmeUserDiskOptionTest, IsAPathAndANamespace) {
  const auto disk = ParseDisk("nvme+user:///run/a.b/1/ctrl.sock/12,timeout=5s,readonly=on");
  ASSERT_TRUE(disk.ok()) << disk.status();
  const auto& nvme = *disk->backend.As<NvmeConfig>();
  EXPECT_EQ(nvme.socket, "/run/a.b/1/ctrl.sock");
  EXPECT_EQ(nvme.address, "");
  EXPECT_EQ(nvme.namespace_id, 12u);
  EXPECT_TRUE(nvme.read_only);
  EXPECT_EQ(nvme.timeout, absl::Seconds(5));
}

TEST(NvmeUserDiskOptionTest, SaysWhatIsWrong) {
  const auto error = [](const std::string& text) { return ErrorOf(ParseDisk(text)); };
  for (const char* url : {"nvme+user://", "nvme+user:///", "nvme+user:///1",
                          "nvme+user://run/ctrl.sock/1", "nvme+user://0000:00:04.0/1"}) {
    EXPECT_EQ(error(url), std::string("--disk '") + url +
                              "' names no socket by its whole path; give such as "
                              "nvme+user:///run/ctrl.sock/1");
  }
  EXPECT_THAT(error("nvme+user:///run/ctrl.sock/"),
              HasSubstr("names no namespace; give such as nvme+user:///run/ctrl.sock/1"));
  EXPECT_THAT(error("nvme+user:///run/ctrl.sock"),
              HasSubstr("'ctrl.sock' is no namespace; they count from 1"));
  EXPECT_THAT(error("nvme+user:///run/ctrl.sock/0"), HasSubstr("'0' is no namespace"));
  EXPECT_EQ(error("nvme+user:///run/ctrl.sock/1,cache=none"),
            "--disk 'cache' is for type=file only; leave it out");
}

TEST(PassthroughDiskOptionTest, IsADeviceAndKeys) {
  for (const char* text : {"/dev/ng0n1,readonly=on,serial=s,queues=2", "/dev/ng0n1,readonly=on"}) {
    const auto disk = ParseDisk(text);
    ASSERT_TRUE(disk.ok()) << disk.status();
    EXPECT_EQ(disk->backend.As<NvmePassthroughConfig>()->path, "/dev/ng0n1");
    EXPECT_TRUE(disk->backend.As<NvmePassthroughConfig>()->read_only);
  }
  const auto alone = ParseDisk("/dev/ng0n1");
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_FALSE(alone->backend.As<NvmePassthroughConfig>()->read_only);
}

TEST(PassthroughDiskOptionTest, IsAPathToACharacterDevice) {
  const auto disk = ParseDisk("readonly=on,path=/dev/null");
  ASSERT_TRUE(disk.ok()) << disk.status();
  EXPECT_EQ(disk->backend.As<NvmePassthroughConfig>()->path, "/dev/null");
  EXPECT_TRUE(disk->backend.As<NvmePassthroughConfig>()->read_only);
  for (const char* file : {"path=/dev/there-is-none", "path=/dev", "path=/proc/self/stat"}) {
    EXPECT_NE(ParseDisk(file)->backend.As<FileConfig>(), nullptr) << file;
  }
}

TEST(PassthroughDiskOptionTest, SaysWhatIsWrong) {
  const auto error = [](const std::string& text) { return ErrorOf(ParseDisk(text)); };
  EXPECT_EQ(error("/dev/ng0n1,cache=none"), "--disk 'cache' is for type=file only; leave it out");
  EXPECT_EQ(error("/dev/ng0n1,path=x"), "--disk 'path' is for type=file only; leave it out");
  EXPECT_EQ(error("path=/dev/null,aio=threads"),
            "--disk 'aio' is for type=file only; leave it out");
  EXPECT_EQ(error("/dev/ng0n1,timeout=1s"), "--disk 'timeout' is for nvme:// only; leave it out");
  EXPECT_THAT(error("/dev/ng0n1,type=file"), HasSubstr("'type' is not for /dev/ng0n1, which says"));
  EXPECT_THAT(error("/dev/ng0n1,"), HasSubstr("is no key=value"));
}

using Share = std::pair<std::string, std::vector<uint16_t>>;

std::vector<Share> SharesOf(const std::string& text) {
  const auto disk = ParseDisk("type=null,size=1M,iothreads=" + text);
  EXPECT_TRUE(disk.ok()) << disk.status();
  std::vector<Share> shares;
  for (const QueueShare& share : disk->shares) shares.emplace_back(share.io_thread, share.queues);
  return shares;
}

TEST(DiskIoThreadsTest, AreNamesAloneOrWithQueues) {
  EXPECT_EQ(SharesOf("a"), (std::vector<Share>{{"a", {}}}));
  EXPECT_EQ(SharesOf("a+b+c"), (std::vector<Share>{{"a", {}}, {"b", {}}, {"c", {}}}));
  EXPECT_EQ(SharesOf("a:0+3/b:1-2"), (std::vector<Share>{{"a", {0, 3}}, {"b", {1, 2}}}));
  EXPECT_EQ(SharesOf("a:0"), (std::vector<Share>{{"a", {0}}}));
}

TEST(DiskIoThreadsTest, SayWhatIsWrong) {
  for (const char* text : {"a:0/b", "a:", "a:0/", "a:x", "a:0+b:1", "a:0:1"}) {
    EXPECT_THAT(ErrorOf(ParseDisk(std::string("type=null,size=1M,iothreads=") + text)),
                HasSubstr("is no THREAD:QUEUES; give such as a:0+3/b:1-2, or threads alone as a+b"))
        << text;
  }
}

TEST(CpuAffinityOptionTest, IsByVcpu) {
  const auto cpus = ParseCpuAffinity("2:3-4+6,0:1", 4);
  ASSERT_TRUE(cpus.ok()) << cpus.status();
  EXPECT_EQ(*cpus, (std::vector<Numbers>{{1}, {}, {3, 4, 6}, {}}));
}

TEST(CpuAffinityOptionTest, SaysWhatIsWrong) {
  const auto error = [](const char* text, uint32_t cpus = 2) {
    return ErrorOf(ParseCpuAffinity(text, cpus));
  };
  for (const char* text : {"", "0", "0:", ":1", "x:1", "0:x", "0:1,", "0-1:1", "0:1:2"}) {
    EXPECT_THAT(error(text), HasSubstr("is no VCPU:CPUS; give such as 0:2 or 1:3-4+6")) << text;
  }
  EXPECT_THAT(error("2:0"), HasSubstr("there is no vCPU 2; --cpus makes 2, from 0 on"));
  EXPECT_THAT(error("1:0,1:1"), HasSubstr("vCPU 1 is named twice"));
  // However many vCPUs are asked for in vain.
  EXPECT_THAT(error("254:0", 4'000'000'000), HasSubstr("there is no vCPU 254"));
}

MachineStatistics TwoThreads() {
  MachineStatistics statistics;
  statistics.disks = {{.path = "disk", .queues = {{.io_thread = "b"}}}};
  statistics.io_threads = {{.name = "a", .waiter = "epoll", .signal = "early"},
                           {.name = "b",
                            .waiter = "io_uring",
                            .poll = {.kind = PollKind::kGrowShrink, .max_ns = 50'000, .shrink = 3},
                            .signal = "batched",
                            .cpus = {0, 3},
                            .dozes = 7,
                            .doze_ends = 5,
                            .preempted = 3,
                            .kick_ns = 8000,
                            .sleep_cpu_ns = 1900}};
  return statistics;
}

TEST(StatisticsReportTest, TheTableTellsThreadsAndTheirSettings) {
  const std::string table = StatisticsTable(TwoThreads());
  EXPECT_THAT(table, ::testing::ContainsRegex("queue 0 +b "));
  EXPECT_THAT(table, HasSubstr("I/O thread a (epoll, poll=never,signal=early): "));
  EXPECT_THAT(table, HasSubstr("I/O thread b (io_uring, poll=grow-shrink,max=50us,grow=2,shrink=3,"
                               "signal=batched,cpu=0+3): "));
  EXPECT_THAT(table, HasSubstr(", 3 preempted), 7 dozes (5 to their end), "));
}

TEST(StatisticsReportTest, ThePathOfADiskCannotWriteALineOfItsOwn) {
  MachineStatistics statistics;
  statistics.disks = {{.path = "a\nI/O thread\x1b[A", .engine = "io_uring"}};
  EXPECT_THAT(StatisticsTable(statistics), HasSubstr("disk a\\x0aI/O thread\\x1b[A: cache="));
}

TEST(StatisticsReportTest, TheConsoleTellsWhatBecameOfItsBytes) {
  MachineStatistics statistics;
  statistics.console = {.written = 1, .waiting = 2, .dropped = 3};
  EXPECT_THAT(StatisticsTable(statistics),
              HasSubstr("console: 1 bytes written, 2 waiting for their reader, 3 dropped\n"));
  const nlohmann::json json = nlohmann::json::parse(StatisticsJson(statistics));
  EXPECT_EQ(json["console"], nlohmann::json::parse(R"({"written":1,"waiting":2,"dropped":3})"));
}

TEST(StatisticsReportTest, TheJsonTellsThemToo) {
  const nlohmann::json json = nlohmann::json::parse(StatisticsJson(TwoThreads()));
  EXPECT_EQ(json["disks"][0]["queues"][0]["io_thread"], "b");
  const nlohmann::json& thread = json["io_threads"][1];
  EXPECT_EQ(thread["name"], "b");
  EXPECT_EQ(thread["poll"],
            nlohmann::json::parse(R"({"kind":"grow-shrink","max_ns":50000,"grow":2,"shrink":3})"));
  EXPECT_EQ(thread["signal"], "batched");
  EXPECT_EQ(thread["cpus"], nlohmann::json::parse("[0,3]"));
  EXPECT_EQ(thread["dozes"], 7);
  EXPECT_EQ(thread["doze_ends"], 5);
  EXPECT_EQ(thread["preempted"], 3);
  EXPECT_EQ(thread["kick_ns"], 8000);
  EXPECT_EQ(thread["sleep_cpu_ns"], 1900);
}

// A counter of a backend needs no word in the reports.
TEST(StatisticsReportTest, ADiskTellsWhateverItsBackendCounts) {
  MachineStatistics statistics;
  statistics.disks = {{.path = "nvme://0000:00:04.0/1",
                       .cache = "none",
                       .engine = "nvme",
                       .counters = {{"commands", 11}, {"splits", 0}, {"never_heard_of", 20}}},
                      {.path = "file", .cache = "writeback"}};
  const std::string table = StatisticsTable(statistics);
  EXPECT_THAT(table, HasSubstr("disk nvme://0000:00:04.0/1: cache=none aio=nvme, 11 commands, "
                               "20 never heard of\n"));
  EXPECT_THAT(table, HasSubstr("disk file: cache=writeback aio=unused\n"));
  const nlohmann::json json = nlohmann::json::parse(StatisticsJson(statistics));
  EXPECT_EQ(json["disks"][0]["counters"],
            nlohmann::json::parse(R"({"commands":11,"splits":0,"never_heard_of":20})"));
  EXPECT_EQ(json["disks"][1]["counters"], nlohmann::json::object());
}

TEST(PollSettingsTest, AreThoseThatTheKindLooksAt) {
  const auto settings = [](PollKind kind) {
    const PollConfig poll = {.kind = kind,
                             .max_ns = 20'000,
                             .grow = 3,
                             .shrink = 4,
                             .weight = 5,
                             .price = 0.5,
                             .cpu_max = 0.2};
    return PollText(poll) + ' ' + PollJson(poll).dump();
  };
  EXPECT_EQ(settings(PollKind::kNever), R"(poll=never {"kind":"never"})");
  EXPECT_EQ(settings(PollKind::kAlways), R"(poll=always {"kind":"always"})");
  EXPECT_EQ(settings(PollKind::kFixed), R"(poll=fixed,max=20us {"kind":"fixed","max_ns":20000})");
  EXPECT_EQ(settings(PollKind::kGrowShrink),
            "poll=grow-shrink,max=20us,grow=3,shrink=4 "
            R"({"kind":"grow-shrink","max_ns":20000,"grow":3,"shrink":4})");
  EXPECT_EQ(settings(PollKind::kWeighted),
            "poll=weighted,max=20us,grow=3,shrink=4,weight=5 "
            R"({"kind":"weighted","max_ns":20000,"grow":3,"shrink":4,"weight":5})");
  EXPECT_EQ(settings(PollKind::kCost),
            R"(poll=cost,price=0.5,cpu-max=20% {"kind":"cost","price":0.5,"cpu_max":0.2})");
}

}  // namespace
}  // namespace ringside
