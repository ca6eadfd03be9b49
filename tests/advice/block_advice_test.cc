// What is read of block devices, and what is said of them.
#include "advice/block_advice.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include "tests/advice/fake_host.h"
#include "tests/advice/findings.h"

namespace ringside {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeHost;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kGiB = 1 << 30;
constexpr uint64_t kSectorsPerGiB = kGiB / 512;

std::vector<DmTarget> OneTarget(const std::string& type, const std::string& table = "",
                                const std::string& status = "", uint64_t sectors = 0) {
  return {DmTarget{.type = type, .sectors = sectors, .table = table, .status = status}};
}

const DmReader kNotPermitted = [](dev_t) { return std::nullopt; };

// ---- What is read ----

TEST(BlockFactsTest, AnNvmeNamespaceWithItsController) {
  FakeHost host;
  const std::string pci = "pci0000:00/0000:00:04.0";
  host.AddPci(pci, "nvme", "1",
              {{"24", {"nvme0q0", "0-3"}}, {"25", {"nvme0q1", "0"}}, {"103", {"nvme0q2", "1,3"}}});
  host.AddBlock(pci + "/nvme/nvme0/nvme0n1", "259:0",
                {{"queue/scheduler", "[none] mq-deadline kyber"},
                 {"queue/nomerges", "0"},
                 {"queue/rq_affinity", "1"},
                 {"queue/nr_requests", "1023"},
                 {"queue/rotational", "0"},
                 {"queue/write_cache", "write back"},
                 {"queue/discard_max_bytes", "2199023255040"},
                 {"ro", "0"}});
  const auto facts = ReadBlockFacts(host.root(), makedev(259, 0), kNotPermitted);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->name, "nvme0n1");
  EXPECT_FALSE(facts->is_partition());
  EXPECT_EQ(facts->scheduler, "none");
  EXPECT_THAT(facts->schedulers, ElementsAre("none", "mq-deadline", "kyber"));
  EXPECT_EQ(facts->nomerges, 0);
  EXPECT_EQ(facts->nr_requests, 1023);
  EXPECT_EQ(facts->write_cache, "write back");
  EXPECT_EQ(facts->pci.address, "0000:00:04.0");
  EXPECT_EQ(facts->pci.driver, "nvme");
  EXPECT_EQ(facts->pci.node, 1);
  ASSERT_EQ(facts->pci.interrupts.size(), 2u);  // not that of the controller's own queue
  EXPECT_EQ(facts->pci.interrupts[0].number, 25);
  EXPECT_EQ(facts->pci.interrupts[1].name, "nvme0q2");
  EXPECT_THAT(facts->pci.interrupts[1].cpus, ElementsAre(1, 3));
}

TEST(BlockFactsTest, ANamespaceWithSeveralPathsHasTheFirstController) {
  FakeHost host;
  const std::string pci = "pci0000:00/0000:00:05.0";
  const std::string subsystem = "virtual/nvme-subsystem/nvme-subsys0";
  host.AddPci(pci, "nvme", "-1", {{"30", {"nvme0q1", "0"}}});
  host.AddBlock(subsystem + "/nvme0n1", "259:1", {});
  host.Link("sys/devices/" + subsystem + "/nvme0", "sys/devices/" + pci + "/nvme/nvme0");
  const auto facts = ReadBlockFacts(host.root(), makedev(259, 1), kNotPermitted);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->pci.address, "0000:00:05.0");
  EXPECT_EQ(facts->pci.node, std::nullopt);
  EXPECT_EQ(facts->scheduler, "");
  EXPECT_EQ(facts->rotational, std::nullopt);
}

TEST(BlockFactsTest, APartitionHasItsDisksQueue) {
  FakeHost host;
  host.AddBlock("pci0000:00/0000:00:02.0/virtio1/block/vda", "254:0",
                {{"queue/scheduler", "none [mq-deadline]"}, {"queue/physical_block_size", "4096"}});
  host.AddBlock("pci0000:00/0000:00:02.0/virtio1/block/vda/vda3", "254:3",
                {{"partition", "3"}, {"start", "63"}, {"ro", "1"}});
  const auto facts = ReadBlockFacts(host.root(), makedev(254, 3), kNotPermitted);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->name, "vda3");
  EXPECT_EQ(facts->disk, "vda");
  EXPECT_EQ(facts->offset, 63u * 512);
  EXPECT_TRUE(facts->is_read_only);
  EXPECT_EQ(facts->scheduler, "mq-deadline");
}

TEST(BlockFactsTest, AMappedDeviceStandsOnOthers) {
  FakeHost host;
  host.AddBlock("pci0000:00/0000:00:07.0/ata1/host0/block/sda", "8:0",
                {{"device/scsi_disk/0:0:0:0/cache_type", "write back"},
                 {"queue/write_cache", "write through"}});
  host.AddBlock("virtual/block/dm-0", "253:0", {{"dm/name", "vg-root"}, {"dm/uuid", "LVM-abc"}});
  host.Link("sys/devices/virtual/block/dm-0/slaves/sda",
            "sys/devices/pci0000:00/0000:00:07.0/ata1/host0/block/sda");
  dev_t asked = 0;
  const DmReader reader = [&](dev_t device) {
    asked = device;
    return OneTarget("linear", "8:0 2048");
  };
  const auto facts = ReadBlockFacts(host.root(), makedev(253, 0), reader);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(asked, makedev(253, 0));
  EXPECT_NE(facts->Target("linear"), nullptr);
  EXPECT_EQ(facts->Target("thin"), nullptr);
  ASSERT_EQ(facts->below.size(), 1u);
  EXPECT_EQ(facts->below[0].name, "sda");
  EXPECT_EQ(facts->below[0].own_write_cache, "write back");
}

// Nobody makes such a thing by hand; a sysfs of another kernel may.
TEST(BlockFactsTest, DevicesThatStandOnEachOtherHaveAnEnd) {
  FakeHost host;
  host.AddBlock("virtual/block/dm-0", "253:0", {});
  host.Link("sys/devices/virtual/block/dm-0/slaves/dm-0", "sys/devices/virtual/block/dm-0");
  EXPECT_TRUE(ReadBlockFacts(host.root(), makedev(253, 0), kNotPermitted).has_value());
}

TEST(BlockFactsTest, WhatIsNotThereHasNone) {
  FakeHost host;
  EXPECT_FALSE(ReadBlockFacts(host.root(), makedev(0, 41), kNotPermitted).has_value());
}

// ---- What is said ----

struct Case {
  const char* name;
  void (*change)(BlockFacts&);
  Verdict verdict;
  const char* check;
  const char* text;
  const char* command;
};

void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

// Of which there is nothing to say but that it is good.
BlockFacts GoodDisk() {
  return {.name = "nvme0n1",
          .disk = "nvme0n1",
          .driver = "nvme",
          .schedulers = {"none", "mq-deadline"},
          .scheduler = "none",
          .nomerges = 2,
          .rq_affinity = 1,
          .nr_requests = 1023,
          .rotational = 0,
          .discard_max = 4096,
          .physical_block = 4096,
          .write_cache = "write back"};
}

TEST(BlockAdviceTest, AGoodDiskIsGood) {
  for (const Finding& finding : BlockAdvice(GoodDisk(), true)) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << ::testing::PrintToString(finding);
    EXPECT_EQ(finding.command, "");
  }
}

class BlockAdviceCase : public ::testing::TestWithParam<Case> {};

TEST_P(BlockAdviceCase, IsFoundAndNothingElse) {
  BlockFacts facts = GoodDisk();
  GetParam().change(facts);
  const Findings findings = BlockAdvice(facts, true);
  EXPECT_THAT(findings, Contains(FindsText(GetParam().verdict, GetParam().check, GetParam().text)));
  EXPECT_THAT(findings,
              Contains(FindsCommand(GetParam().verdict, GetParam().check, GetParam().command)));
  for (const Finding& each : findings) {
    if (each.check == GetParam().check) continue;
    EXPECT_EQ(each.verdict, Verdict::kGood) << ::testing::PrintToString(each);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , BlockAdviceCase,
    ::testing::Values(
        Case{"Scheduler", [](BlockFacts& f) { f.scheduler = "mq-deadline"; }, Verdict::kSlow,
             "scheduler", "mq-deadline sorts requests for a device that gains nothing",
             "echo none > /sys/block/nvme0n1/queue/scheduler"},
        Case{"NoMerges", [](BlockFacts& f) { f.nomerges = 0; }, Verdict::kNote, "nomerges",
             "looks for a neighbour", "echo 2 > /sys/block/nvme0n1/queue/nomerges"},
        Case{"RqAffinity", [](BlockFacts& f) { f.rq_affinity = 2; }, Verdict::kNote, "rq-affinity",
             "one more interrupt", "echo 1 > /sys/block/nvme0n1/queue/rq_affinity"},
        Case{"NrRequests", [](BlockFacts& f) { f.nr_requests = 64; }, Verdict::kNote, "nr-requests",
             "takes 64 requests", "echo 256 > /sys/block/nvme0n1/queue/nr_requests"},
        Case{"Discard", [](BlockFacts& f) { f.discard_max = 0; }, Verdict::kNote, "discard",
             "takes no discards", ""},
        Case{"WriteCacheUnknown", [](BlockFacts& f) { f.write_cache = ""; }, Verdict::kUnknown,
             "write-cache", "does not say", ""},
        Case{"HiddenCache",
             [](BlockFacts& f) {
               f.write_cache = "write through";
               f.own_write_cache = "write back, no read (daft)";
             },
             Verdict::kUnsafe, "write-cache", "a power cut loses",
             "echo 'write back' > /sys/block/nvme0n1/queue/write_cache"},
        Case{"MisalignedPartition",
             [](BlockFacts& f) {
               f.name = "nvme0n1p1";
               f.offset = 63 * 512;
             },
             Verdict::kSlow, "partition", "nvme0n1p1 begins at byte 32256", ""},
        Case{"Virtio",
             [](BlockFacts& f) {
               f.driver = "virtio_blk";
               f.rotational = 1;
             },
             Verdict::kUnknown, "behind", "host of this host", ""},
        Case{"Rotating", [](BlockFacts& f) { f.rotational = 1; }, Verdict::kSlow, "rotational",
             "a rotating disk", ""},
        Case{"CryptUnknown",
             [](BlockFacts& f) {
               f.dm_name = "secret";
               f.dm_uuid = "CRYPT-LUKS2-0-secret";
             },
             Verdict::kUnknown, "crypt", "only root may ask", "sudo dmsetup table 'secret'"},
        Case{"Crypt",
             [](BlockFacts& f) {
               f.dm_name = "secret";
               f.dm_targets = OneTarget("crypt", "aes-xts-plain64 0 0 8:0 0");
             },
             Verdict::kSlow, "crypt", "worker threads",
             "cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue 'secret'"},
        Case{"Snapshot",
             [](BlockFacts& f) {
               f.dm_name = "vg-root";
               f.dm_targets = OneTarget("snapshot-origin");
             },
             Verdict::kSlow, "snapshot", "first write to each part copies", ""}),
    [](const auto& info) { return info.param.name; });

TEST(BlockAdviceTest, ARotatingDiskMaySort) {
  BlockFacts facts = GoodDisk();
  facts.rotational = 1;
  facts.scheduler = "bfq";
  facts.nomerges = 0;
  const Findings findings = BlockAdvice(facts, true);
  EXPECT_THAT(findings, Contains(Finds(Verdict::kNote, "scheduler")));
  EXPECT_THAT(findings, Not(Contains(IsAbout("nomerges"))));
}

TEST(BlockAdviceTest, ACryptThatIsDirectIsGood) {
  BlockFacts facts = GoodDisk();
  facts.dm_targets = OneTarget("crypt", "x 2 no_read_workqueue no_write_workqueue");
  EXPECT_THAT(BlockAdvice(facts, true), Contains(Finds(Verdict::kGood, "crypt")));
  facts.dm_targets = OneTarget("crypt", "x 1 no_read_workqueue");
  EXPECT_THAT(BlockAdvice(facts, true), Contains(Finds(Verdict::kSlow, "crypt")));
}

TEST(BlockAdviceTest, ALoopDeviceIsAFileWithAThreadBetween) {
  BlockFacts facts = GoodDisk();
  facts.disk = facts.name = "loop3";
  facts.backing_file = "/srv/a b.img";
  facts.loop_direct = 0;
  facts.rotational = 1;  // as the file's disk may have said
  const Findings findings = BlockAdvice(facts, true);
  EXPECT_THAT(findings, Contains(FindsCommand(Verdict::kNote, "loop",
                                              "ringside doctor --disk '/srv/a b.img'")));
  EXPECT_THAT(findings, Contains(FindsCommand(Verdict::kSlow, "loop-direct",
                                              "losetup --direct-io=on /dev/loop3")));
  EXPECT_THAT(findings, Not(Contains(IsAbout("rotational"))));
  facts.loop_direct = 1;
  EXPECT_THAT(BlockAdvice(facts, true), Not(Contains(IsAbout("loop-direct"))));
}

// What is on a device with blocks of its own is said of that device, once.
TEST(BlockAdviceTest, AVolumesDiskIsLookedAt) {
  BlockFacts disk = GoodDisk();
  disk.scheduler = "kyber";
  BlockFacts volume = {.name = "dm-1",
                       .disk = "dm-1",
                       .scheduler = "none",
                       .nomerges = 0,
                       .write_cache = "write back",
                       .dm_name = "vg-data"};
  volume.dm_targets = OneTarget("linear");
  volume.below = {disk};
  const Findings findings = BlockAdvice(volume, true);
  EXPECT_THAT(findings, Contains(FindsText(Verdict::kSlow, "scheduler", "nvme0n1: ")));
  EXPECT_THAT(findings, Contains(FindsText(Verdict::kGood, "lvm", "vg-data")));
  EXPECT_THAT(findings, Not(Contains(IsAbout("nomerges"))));
}

// ---- Thin volumes ----

BlockFacts ThinVolume(const std::string& pool_status, uint64_t mapped_sectors) {
  BlockFacts pool = {
      .name = "dm-2", .disk = "dm-2", .dm_name = "vg-pool-tpool", .dm_uuid = "LVM-xyz-tpool"};
  pool.dm_targets = OneTarget("thin-pool", "253:0 253:1 2048 0 0", pool_status);
  BlockFacts thin = {.name = "dm-4",
                     .disk = "dm-4",
                     .write_cache = "write back",
                     .dm_name = "vg-thin",
                     .dm_uuid = "LVM-xyz123"};
  thin.dm_targets =
      OneTarget("thin", "253:2 1", std::to_string(mapped_sectors) + " 7", 4 * kSectorsPerGiB);
  thin.below = {pool};
  return thin;
}

TEST(ThinAdviceTest, SaysWhatAPoolHasLeft) {
  // 1,024 of 8,192 blocks of 1 MiB are used; 3 GiB of 4 are not mapped.
  const BlockFacts roomy = ThinVolume(
      "1 12/4096 1024/8192 - rw discard_passdown queue_if_no_space - 1024", kSectorsPerGiB);
  EXPECT_THAT(BlockAdvice(roomy, true),
              Contains(FindsText(Verdict::kNote, "thin-pool",
                                 "may still ask its pool for 3G, of 7G that are left")));
  EXPECT_THAT(BlockAdvice(roomy, true), Contains(Finds(Verdict::kSlow, "thin")));
}

TEST(ThinAdviceTest, APoolThatCanRunOutIsUnsafe) {
  const BlockFacts tight = ThinVolume(
      "1 12/4096 6144/8192 - rw discard_passdown error_if_no_space - 1024", kSectorsPerGiB);
  EXPECT_THAT(BlockAdvice(tight, true),
              Contains(FindsText(Verdict::kUnsafe, "thin-pool",
                                 "for 3G, and that has 2G left (0% of its metadata is used): once "
                                 "it is full the guest's writes fail at once")));
  const BlockFacts metadata = ThinVolume(
      "1 4000/4096 0/8192 - rw discard_passdown queue_if_no_space - 1024", kSectorsPerGiB);
  EXPECT_THAT(BlockAdvice(metadata, true), Contains(Finds(Verdict::kUnsafe, "thin-pool")));
  const BlockFacts full = ThinVolume(
      "1 12/4096 8192/8192 - out_of_data_space discard_passdown queue_if_no_space - 1024",
      kSectorsPerGiB);
  EXPECT_THAT(BlockAdvice(full, true),
              Contains(FindsText(Verdict::kUnsafe, "thin-pool", "is full or damaged")));
}

// Who is not root sees sysfs alone.
TEST(ThinAdviceTest, IsKnownByItsPoolsName) {
  BlockFacts thin = ThinVolume("", 0);
  thin.dm_targets = thin.below[0].dm_targets = std::nullopt;
  EXPECT_THAT(BlockAdvice(thin, true), Contains(Finds(Verdict::kSlow, "thin")));
  EXPECT_THAT(BlockAdvice(thin, true), Contains(Finds(Verdict::kUnknown, "thin-pool")));
}

TEST(ThinPoolTest, WhatIsNoStatusIsNone) {
  const auto parse = [](const char* table, const char* status) {
    return ParseThinPool({.type = "thin-pool", .table = table, .status = status});
  };
  const char* const good = "1 1/2 3/4 - rw no_discard_passdown error_if_no_space -";
  ASSERT_TRUE(parse("a b 128", good).has_value());
  EXPECT_EQ(parse("a b 128", good)->total_bytes, 4u * 128 * 512);
  EXPECT_EQ(parse("a b 128", good)->used_metadata, 0.5);
  for (const char* status :
       {"", "Fail", "1 1/0 3/4 - rw a b", "1 1 3/4 - rw a b", "1 1/2 x/4 - rw a b"}) {
    EXPECT_FALSE(parse("a b 128", status).has_value()) << status;
  }
  EXPECT_FALSE(parse("a b", good).has_value());
  EXPECT_FALSE(UnmappedBytes({.sectors = 8, .status = "9 -"}).has_value());
  EXPECT_FALSE(UnmappedBytes({.sectors = 8, .status = "Fail"}).has_value());
}

}  // namespace
}  // namespace ringside
