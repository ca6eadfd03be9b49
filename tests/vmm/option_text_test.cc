// What users write: the short forms of the command line, and what is said of keys and values that
// there are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "base/status.h"
#include "tests/support/status_matchers.h"
#include "vmm/options.h"
#include "vmm/throttle_options.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// ---- Words that are not there ----

std::string TextError(const std::string& flag, const std::string& text) {
  MachineOptions options;
  const absl::Status status = SetOption(flag, std::vector<std::string>{text}, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(Message(status));
}

std::string JsonError(const std::string& text) {
  MachineOptions options;
  const absl::Status status = ReadOptions(Json::parse(text), options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(Message(status));
}

TEST(UnknownKeyTest, IsAnsweredWithTheNearest) {
  EXPECT_EQ(TextError("disk", "path=x,cahce=none"),
            "--disk 'cahce' is unknown: did you mean 'cache'?");
  EXPECT_EQ(TextError("iothread", "pol=never"),
            "--iothread 'pol' is unknown: did you mean 'poll'?");
  EXPECT_EQ(TextError("serial", "file=x,limmit=1M"),
            "--serial 'limmit' is unknown: did you mean 'limit'?");
  EXPECT_EQ(TextError("vfio", "0000:00:05.0,ide=x"), "--vfio 'ide' is unknown: did you mean 'id'?");
  EXPECT_EQ(JsonError(R"({"memroy": "1G"})"), "memroy is unknown: did you mean 'memory'?");
  EXPECT_EQ(JsonError(R"({"disk": []})"), "disk is unknown: did you mean 'disks'?");
  EXPECT_EQ(JsonError(R"({"disks": [{"path": "x"}, {"pth": "x"}]})"),
            "disks[1].pth is unknown: did you mean 'path'?");
}

// ---- Networks ----

NetConfig Net(const std::string& text) {
  MachineOptions options;
  const absl::Status status = SetOption("net", std::vector<std::string>{text}, options);
  EXPECT_TRUE(status.ok()) << status;
  // What is printed is read as the same.
  MachineOptions again;
  EXPECT_TRUE(ReadOptions(*PrintOptions(options), again).ok());
  EXPECT_EQ(*PrintOptions(again), *PrintOptions(options));
  return options.machine.networks.front();
}

TEST(NetOptionTest, HasAShortForm) {
  const NetConfig tap = Net("tap=vm0,id=lan,mac=02:00:00:12:34:aF,queues=4,mtu=9000,iothreads=a+b");
  EXPECT_EQ(tap.tap, "vm0");
  EXPECT_EQ(tap.id, "lan");
  EXPECT_EQ(tap.mac, "02:00:00:12:34:aF");
  EXPECT_EQ(tap.queues, 4);
  EXPECT_EQ(tap.mtu, 9000);
  EXPECT_EQ(tap.shares.size(), 2u);
  EXPECT_EQ(Net("fd=3+5").fds, (std::vector<int>{3, 5}));
  EXPECT_TRUE(Net("tap=vm0,vhost=on").vhost);
  EXPECT_TRUE(Net("user").user);
  EXPECT_EQ(Net("user,tcp=2222:22,,80,bps-read=1M").tcp_ports, "2222:22,80");
  EXPECT_EQ(Net("user,socket=/run/passt.sock").socket, "/run/passt.sock");
}

TEST(NetOptionTest, TwoNetworksDoNotShareATap) {
  const auto check = [](const NetConfig& first, const NetConfig& second) {
    MachineConfig config;
    config.kernel = "k";
    config.networks = {first, second};
    return CheckOptions(config);
  };
  EXPECT_THAT(check({.tap = "vm0"}, {.tap = "vm0", .queues = 2}),
              IsBadInput("'net0' and 'net1'", "tap 'vm0'"));
  EXPECT_THAT(check({.fds = {3, 4}, .id = "lan"}, {.fds = {5, 4}}),
              IsBadInput("'lan' and 'net1'", "descriptor 4"));
  for (const absl::Status& status :
       {check({.tap = "vm0"}, {.tap = "vm1"}), check({.fds = {3}}, {.fds = {4}}),
        check({.tap = "vm%d"}, {.tap = "vm%d"}), check({.user = true}, {.user = true})}) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(VsockOptionTest, SaysWhatIsWrong) {
  for (const char* const cid : {"0", "1", "2", "4294967295"}) {
    EXPECT_THAT(TextError("vsock", std::string("path=a,cid=") + cid), HasSubstr("is out of range"));
  }
  EXPECT_THAT(TextError("vsock", "path=a"), HasSubstr("cid is missing"));
  EXPECT_THAT(TextError("vsock", "cid=3"), HasSubstr("path is missing"));
  EXPECT_THAT(TextError("vsock", "cid=3,path=a,max-connections=0"), HasSubstr("1 to 65536"));
  MachineOptions options;
  const std::vector<std::string> text = {"cid=3,path=a,iothread=b"};
  ASSERT_TRUE(SetOption("vsock", text, options).ok());
  EXPECT_EQ(options.machine.vsock->cid, 3U);
  EXPECT_EQ(options.machine.vsock->io_thread, "b");
  EXPECT_EQ((*PrintOptions(options))["vsock"]["path"], "a");
  options.machine.vsock.reset();
  EXPECT_FALSE(PrintOptions(options)->contains("vsock"));
}

TEST(NetOptionTest, SaysWhatDoesNotGoTogether) {
  EXPECT_EQ(TextError("net", "id=a"), "--net tap, fd and user are all missing: give one of them");
  EXPECT_EQ(TextError("net", "user,tap=a"),
            "--net tap, fd and user are more than one: give one of them");
  EXPECT_THAT(TextError("net", "tap=a,tcp=22"), HasSubstr("are of a user network"));
  EXPECT_THAT(TextError("net", "user,socket=a,tcp=22"), HasSubstr("names another one"));
  EXPECT_THAT(TextError("net", "user,queues=2"), HasSubstr("a user network has one pair"));
  EXPECT_THAT(TextError("net", "fd=3,queues=2"), HasSubstr("give one for each pair"));
  EXPECT_THAT(TextError("net", "fd=1-9"), HasSubstr("at most 8 queue pairs"));
  EXPECT_THAT(TextError("net", "fd=3+4+3"), HasSubstr("has descriptor 3 twice"));
  EXPECT_THAT(TextError("net", "user,vhost=on"), HasSubstr("it is for a tap"));
  EXPECT_THAT(TextError("net", "tap=a,vhost=on,iops-read=5"),
              HasSubstr("limits do not go together"));
  EXPECT_EQ(TextError("net", "fd=x"),
            "--net fd='x' is not a list of descriptors, for example 3 or 3+4");
  EXPECT_EQ(TextError("net", "tap=vm0,queues=9"),
            "--net queues=9 is out of range: a network has 1 to 8 queue pairs");
  EXPECT_THAT(TextError("net", "tap=sixteenletters00"), HasSubstr("at most 15 characters"));
  EXPECT_THAT(TextError("net", "usr,id=a"), HasSubstr("write tap=NAME, fd=N or user in front"));
  for (const char* mac : {"1", "02:00:00:12:34", "02:00:00:12:34:5", "02-00-00-12-34-56",
                          "02:00:00:12:34:5g", "03:00:00:00:00:00", "00:00:00:00:00:00"}) {
    EXPECT_THAT(TextError("net", std::string("tap=a,mac=") + mac), HasSubstr("MAC address")) << mac;
  }
  EXPECT_THAT(JsonError(R"({"networks": [{"tap": "a"}, {"user": true, "tap": "b"}]})"),
              HasSubstr("networks[1].tap, fd and user are more than one"));
}

TEST(UnknownKeyTest, OfAnotherKindOfDiskSaysWhose) {
  EXPECT_EQ(TextError("disk", "nvme://0000:00:04.0/1,cache=none"),
            "--disk cache is for disks of type file or overlay only, and this one is of type nvme: "
            "leave it out");
  EXPECT_EQ(
      TextError("disk", "type=null,size=1G,readonly=on"),
      "--disk readonly is for disks of type file, overlay, nvme or nvme-passthrough only, and this "
      "one is of type null: leave it out");
  EXPECT_EQ(JsonError(R"({"disks": [{"path": "x", "timeout": "1s"}]})"),
            "disks[0].timeout is for disks of type nvme only, and this one is of type file: leave "
            "it out");
}

TEST(UnknownValueTest, IsAnsweredWithWhatIsPossible) {
  EXPECT_EQ(TextError("iothread", "poll=allways"),
            "--iothread poll='allways' is unknown: give never, always, fixed, grow-shrink, "
            "weighted or cost");
  EXPECT_EQ(TextError("cpus", "two"),
            "--cpus 'two' is not a whole number: a machine has 1 to 254 vCPUs");
  EXPECT_EQ(TextError("disk", "path=x,queues=0"),
            "--disk queues=0 is out of range: a disk has 1 to 16 queues");
  EXPECT_EQ(TextError("disk", "path=x,readonly=yes"),
            "--disk readonly='yes' is neither on nor off");
  EXPECT_EQ(TextError("memory", "1.5G"),
            "--memory '1.5G' is not a size in whole bytes or with K, M, G or T: a machine has 2M "
            "to 1T of memory");
  EXPECT_EQ(TextError("iothread", "cpu-max=20"),
            "--iothread cpu-max='20' is not a share in percent: give more than 0%, up to 100%");
  EXPECT_EQ(TextError("iothread", "cpu=first"),
            "--iothread cpu='first' is not a list of CPUs, for example 0-2+5");
  EXPECT_EQ(JsonError(R"({"disks": [{"path": "x", "readonly": "on"}]})"),
            "disks[0].readonly='on' is neither true nor false");
  EXPECT_EQ(JsonError(R"({"halt-poll": 50})"),
            "halt-poll=50 is not a time with a unit such as us, ms or s: give 0 to 1s, or kernel");
}

TEST(UnknownValueTest, OfAnObjectSaysWhatToWrite) {
  EXPECT_EQ(JsonError("[]"), "the configuration is not a JSON object: write { ... }");
  EXPECT_EQ(JsonError(R"({"disks": {}})"), "disks is not a list: write [ ... ]");
  EXPECT_EQ(JsonError(R"({"disks": ["x"]})"),
            R"(disks[0] is not an object: write { "key": value, ... })");
  EXPECT_EQ(JsonError(R"({"iothreads": [1]})"),
            R"(iothreads[0] is not an object: write { "key": value, ... })");
  EXPECT_THAT(JsonError(R"({"serial": true})"), StartsWith("serial is neither"));
}

// ---- The command line's short forms ----

MachineOptions Parsed(const std::string& flag, const std::vector<std::string>& texts) {
  MachineOptions options;
  const absl::Status status = SetOption(flag, texts, options);
  EXPECT_TRUE(status.ok()) << status;
  return options;
}

DiskConfig Disk(const std::string& text) {
  return Parsed("disk", {text}).machine.disks.at(0);
}

TEST(OverlayTextTest, AChainIsOneOfReadOnlyBackends) {
  const DiskConfig disk =
      Parsed("disk", {"overlay=vm1.cow,base=g++.img+mid.cow,base-cache=none"}).machine.disks.at(0);
  const auto* top = disk.backend.As<OverlayConfig>();
  ASSERT_NE(top, nullptr);
  EXPECT_EQ(top->path, "vm1.cow");
  EXPECT_FALSE(top->read_only);
  const auto* middle = top->base.As<OverlayConfig>();
  ASSERT_NE(middle, nullptr);
  EXPECT_EQ(middle->path, "mid.cow");
  EXPECT_TRUE(middle->read_only);
  const auto* image = middle->base.As<FileConfig>();
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(image->path, "g+.img");
  EXPECT_TRUE(image->read_only);
  EXPECT_EQ(image->cache, CacheMode::kNone);
  EXPECT_TRUE(Parsed("disk", {"base=b,overlay=memory"})
                  .machine.disks.at(0)
                  .backend.As<OverlayConfig>()
                  ->in_memory);
}

TEST(OverlayTextTest, ItsFileHasToBeGiven) {
  EXPECT_EQ(TextError("disk", "base=b"),
            "--disk overlay is missing: a disk needs one; give --disk overlay=FILE");
  EXPECT_EQ(TextError("disk", "overlay=o"),
            "--disk base is missing: a disk needs one; give --disk base=FILE+...");
  EXPECT_EQ(TextError("disk", "base=a++,overlay=o,base="),
            "--disk has 'base=' twice: give it once");
  EXPECT_EQ(TextError("disk", "base=a+,overlay=o"),
            "--disk base='a+' is not a list of up to 16 paths, for example golden.img+mid.cow");
}

TEST(DiskTextTest, AUrlComesFirst) {
  const DiskConfig disk =
      Disk("nvme://00ff:ae:1f.7/12,readonly=on,timeout=1.5s,serial=s,queues=2,iothreads=a+b");
  const auto& nvme = *disk.backend.As<NvmeConfig>();
  EXPECT_EQ(nvme.address, "00ff:ae:1f.7");
  EXPECT_EQ(nvme.socket, "");
  EXPECT_EQ(nvme.namespace_id, 12u);
  EXPECT_TRUE(nvme.read_only);
  EXPECT_EQ(nvme.timeout, absl::Milliseconds(1500));
  EXPECT_EQ(disk.serial, "s");
  EXPECT_EQ(disk.queues, 2);
  EXPECT_EQ(disk.shares.size(), 2u);
  const DiskConfig served = Disk("nvme+user:///run/a.b/1/ctrl.sock/3");
  EXPECT_EQ(served.backend.As<NvmeConfig>()->socket, "/run/a.b/1/ctrl.sock");
  EXPECT_EQ(served.backend.As<NvmeConfig>()->address, "");
  EXPECT_EQ(served.backend.As<NvmeConfig>()->timeout, std::nullopt);
}

TEST(DiskTextTest, AUrlNamesANamespace) {
  for (const char* url : {"nvme://", "nvme:///", "nvme:///1"}) {
    EXPECT_EQ(TextError("disk", url), std::string("--disk url='") + url +
                                          "' names no PCI address: give one such as "
                                          "nvme://0000:00:04.0/1");
  }
  for (const char* url : {"nvme://0000:00:04.0", "nvme://0000:00:04.0/"}) {
    EXPECT_THAT(TextError("disk", url), HasSubstr("names no namespace: give one such as nvme://"));
  }
  for (const char* number :
       {"0", "-1", "+1", "x", "1x", "0x1", "1/", " 1", "4294967295", "4294967296"}) {
    EXPECT_THAT(TextError("disk", std::string("nvme://0000:00:04.0/") + number),
                HasSubstr("which is not a namespace: they count from 1"))
        << number;
  }
  for (const char* url : {"nvme+user://", "nvme+user:///", "nvme+user:///1",
                          "nvme+user://run/ctrl.sock/1", "nvme+user://0000:00:04.0/1"}) {
    EXPECT_THAT(TextError("disk", url), HasSubstr("names no socket by its whole path: give one"));
  }
  EXPECT_THAT(TextError("disk", "type=nvme,url=nvme:/0000:00:04.0/1"),
              HasSubstr("is not the URL of a namespace: give one such as nvme://0000:00:04.0/1"));
}

TEST(DiskTextTest, ACharacterDeviceIsANamespace) {
  for (const char* text : {"/dev/ng0n1,readonly=on",
                           "type=nvme-passthrough,path=/dev/ng0n1,"
                           "readonly=on"}) {
    const DiskConfig disk = Disk(text);
    ASSERT_NE(disk.backend.As<NvmePassthroughConfig>(), nullptr) << text;
    EXPECT_EQ(disk.backend.As<NvmePassthroughConfig>()->path, "/dev/ng0n1");
    EXPECT_TRUE(disk.backend.As<NvmePassthroughConfig>()->read_only);
  }
  EXPECT_NE(Disk("readonly=on,path=/dev/null").backend.As<NvmePassthroughConfig>(), nullptr);
  for (const char* file : {"path=/dev/there-is-none", "path=/dev", "type=file,path=/dev/null"}) {
    EXPECT_NE(Disk(file).backend.As<FileConfig>(), nullptr) << file;
  }
}

TEST(DiskTextTest, SaysWhatIsWrong) {
  EXPECT_EQ(TextError("disk", "disk.img"),
            "--disk 'disk.img' is not KEY=VALUE: a file is given as path=disk.img");
  EXPECT_EQ(TextError("disk", "readonly=on"),
            "--disk path is missing: a disk needs one; give --disk path=FILE");
  EXPECT_EQ(TextError("disk", "/dev/ng0n1,"),
            "--disk '' is not KEY=VALUE: give KEY=VALUE instead of ");
  EXPECT_EQ(TextError("disk", "nvme://0000:00:04.0/1,type=null"),
            "--disk 'nvme://0000:00:04.0/1' does not take type=, which it says already: leave that "
            "out");
  EXPECT_EQ(TextError("disk", "path=x,path=y"), "--disk has 'path=' twice: give it once");
  EXPECT_EQ(Disk("path=a,,b").backend.As<FileConfig>()->path, "a,b");
}

TEST(DiskTextTest, IoThreadsAreNamesAloneOrAllWithQueues) {
  for (const char* text : {"a:0/b", "a:", "a:0/", "a:x", "a:0+b:1", "a:0:1", "", "a++b"}) {
    EXPECT_THAT(TextError("disk", std::string("type=null,size=1M,iothreads=") + text),
                HasSubstr("is not THREAD:QUEUES, nor threads alone, for example a:0-1/b:2 or a+b"))
        << text;
  }
}

TEST(ThrottleTextTest, SaysWhatIsWrong) {
  EXPECT_EQ(TextError("disk", "path=x,iops-totl=5"),
            "--disk 'iops-totl' is unknown: did you mean 'iops-total'?");
  EXPECT_THAT(TextError("disk", "path=x,iops-total=-1"), HasSubstr("--disk iops-total"));
  EXPECT_THAT(TextError("throttle-group", "iops-total=1"), HasSubstr("--throttle-group"));
  MachineConfig config = {.kernel = "k"};
  config.throttle_groups = {{.id = "g"}};
  config.disks = {{.backend = NullConfig{.size = 512}, .throttle_group = "h"}};
  EXPECT_EQ(Message(CheckOptions(config)),
            "disk 'disk0': there is no throttle group 'h': give --throttle-group id=h,...");
  config.disks[0].throttle_group = "g";
  EXPECT_TRUE(CheckOptions(config).ok());
  config.disks[0].throttle.iops_read = {.average = 5, .max = 5};
  EXPECT_THAT(std::string(Message(CheckOptions(config))), HasSubstr("iops-read-max 5"));
  config.disks[0].throttle = {};
  config.throttle_groups.push_back({.id = "g"});
  EXPECT_EQ(Message(CheckOptions(config)),
            "two throttle groups have the id 'g': give each its own");
}

TEST(AffinityTextTest, SaysWhatIsWrong) {
  for (const char* text :
       {"", "0", "0:", ":1", "x:1", "0:x", "0:1,", "0-1:1", "0:1:2", "0:1,0:2", "254:0"}) {
    EXPECT_THAT(TextError("cpu-affinity", text),
                HasSubstr("is not VCPU:CPUS, for example 0:2,1:3-4+6"))
        << text;
  }
}

TEST(NodesTextTest, SaysWhatIsWrong) {
  for (const char* text : {"", ",", "0,", "x", "-1", "1-0", "70000", "0 1"}) {
    EXPECT_THAT(TextError("memory-node", text),
                HasSubstr("is not a list of NUMA nodes, for example 0,2-3"))
        << text;
  }
}

TEST(SerialTextTest, IsAWordOrAFile) {
  EXPECT_EQ(Parsed("serial", {"none"}).serial.target, SerialOptions::Target::kNone);
  EXPECT_EQ(Parsed("serial", {"stdio"}).serial.target, SerialOptions::Target::kStdio);
  EXPECT_EQ(Parsed("serial", {"file=a,,b"}).serial.file, "a,b");
  EXPECT_EQ(TextError("serial", "tcp"), "--serial 'tcp' is unknown: give stdio, none or file=PATH");
}

// Others' clients wait meanwhile: what comes in a call of 1 MiB is not looked at by each byte, or
// each name, for each other.
TEST(OptionListTest, LongOnesTakeNoTimeForEachOther) {
  const absl::Time begin = absl::Now();
  const OptionSpec spec = {.name = "command", .type = Plain(OptionKind::kWords)};
  const std::string word(2 << 20, 'a');
  const absl::StatusOr<Json> words = ReadValue(spec, "a call", OptionPlace(), word);
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(*words, Json({word}));
  MachineConfig config = {.kernel = "k"};
  for (int i = 0; i < 200'000; ++i) {
    config.throttle_groups.push_back({.id = "group" + std::to_string(i)});
  }
  EXPECT_TRUE(CheckThrottles(config).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST(OptionListTest, IsReplacedAsAWhole) {
  MachineOptions options = Parsed("disk", {"path=a", "path=b"});
  ASSERT_TRUE(ReadOptions(Json::parse(R"({"cpus": 2, "vfio": ["0000:00:05.0"]})"), options).ok());
  EXPECT_EQ(options.machine.disks.size(), 2u);
  EXPECT_EQ(options.machine.assigned.at(0).address, "0000:00:05.0");
  ASSERT_TRUE(SetOption("disk", std::vector<std::string>{"path=c"}, options).ok());
  ASSERT_EQ(options.machine.disks.size(), 1u);
  EXPECT_EQ(options.machine.disks[0].backend.As<FileConfig>()->path, "c");
  EXPECT_EQ(options.machine.cpus, 2u);
}

TEST(PrintOptionsTest, TextThatIsNotUtf8HasNoPlaceInJson) {
  MachineOptions options;
  options.machine.kernel = "\xff";
  EXPECT_THAT(std::string(Message(PrintOptions(options).status())), HasSubstr("is not UTF-8"));
}

}  // namespace
}  // namespace ringside
