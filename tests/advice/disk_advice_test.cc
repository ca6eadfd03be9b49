// What is said of disks as a whole, of files among them; and how the command prints it.
#include "advice/disk_advice.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "advice/file_advice.h"
#include "command/disk_doctor.h"
#include "tests/advice/fake_host.h"
#include "tests/advice/findings.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeHost;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TempFile;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;

// ---- What is read ----

TEST(MountsTest, AreReadAsTheKernelWritesThem) {
  const std::vector<Mount> mounts = ParseMounts(
      "27 1 254:1 / /srv/a\\040b rw,relatime shared:1 master:2 - ext4 /dev/vda1 "
      "rw,errors=continue\n"
      "28 27 0:25 / /mnt ro - tmpfs none ro,size=4k\n"
      "no mount at all\n"
      "29 27 0:26 / /x rw - tmpfs\n");
  ASSERT_EQ(mounts.size(), 2u);
  EXPECT_EQ(mounts[0].id, 27u);
  EXPECT_EQ(mounts[0].device, "254:1");
  EXPECT_EQ(mounts[0].point, "/srv/a b");
  EXPECT_EQ(mounts[0].type, "ext4");
  EXPECT_EQ(mounts[0].source, "/dev/vda1");
  EXPECT_TRUE(mounts[0].Has("relatime"));
  EXPECT_TRUE(mounts[0].Has("errors=continue"));
  EXPECT_FALSE(mounts[0].Has("errors"));
  EXPECT_TRUE(mounts[1].Has("ro"));
}

// On this host: what holds for any file system that tests are run on.
TEST(DiskFactsTest, AFileIsLookedAtWithoutAChange) {
  TempFile file(4 * kMiB);
  file.Fill(kMiB, "data");
  struct stat before, after;
  ASSERT_EQ(fstat(file.fd(), &before), 0);
  const auto facts = ReadDiskFacts(file.path());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->kind, DiskKindFound::kFile);
  EXPECT_EQ(facts->unusable, "");
  EXPECT_TRUE(facts->is_writable);
  ASSERT_TRUE(facts->file.has_value());
  EXPECT_EQ(facts->file->size, 4 * kMiB);
  EXPECT_LT(facts->file->allocated, kMiB);
  EXPECT_EQ(facts->file->mount.type, "tmpfs");
  ASSERT_EQ(fstat(file.fd(), &after), 0);
  EXPECT_EQ(after.st_blocks, before.st_blocks);
  EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  // It is locked no more.
  EXPECT_TRUE(ReadDiskFacts(file.path()).ok());
}

TEST(DiskFactsTest, AFileThatAMachineHasIsInUse) {
  const TempFile file(kMiB);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  ASSERT_EQ(fcntl(file.fd(), F_OFD_SETLK, &lock), 0);
  const auto facts = ReadDiskFacts(file.path());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(facts->unusable, HasSubstr("in use"));
}

TEST(DiskFactsTest, ALoopDeviceOfTheFileIsFound) {
  const TempFile file(kMiB);
  FakeHost host;
  host.Write("sys/block/loop0/loop/backing_file", "/elsewhere");
  host.Write("sys/block/loop1/loop/backing_file", file.path());
  host.Write("sys/block/vda/loop/backing_file", file.path());  // there is no such thing
  EXPECT_THAT(ReadDiskFacts(file.path(), host.root())->loops, ElementsAre("loop1"));
}

TEST(DiskFactsTest, WhatIsNoDiskIsRefused) {
  EXPECT_EQ(ReadDiskFacts("/nonexistent/disk").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadDiskFacts("nvme://0000:00:04.0/0").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ReadDiskFacts("/dev")->unusable, HasSubstr("is a directory"));
  EXPECT_THAT(ReadDiskFacts("/dev/null")->unusable, HasSubstr("is no namespace"));
}

TEST(DiskFactsTest, AServersNamespaceTellsNothing) {
  const auto facts = ReadDiskFacts("nvme+user:///run/ctrl.sock/1");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_THAT(DiskAdvice(*facts, {}), Contains(Finds(Verdict::kUnknown, "behind")));
}

// ---- What is said of files ----

// 10 GiB on ext4, all of them allocated.
DiskFacts GoodFile() {
  DiskFacts facts = {.path = "/srv/a.img", .is_writable = true};
  facts.file = FileFacts{.mount = {.id = 1,
                                   .device = "254:0",
                                   .point = "/srv",
                                   .type = "ext4",
                                   .source = "/dev/vda",
                                   .options = "rw,relatime,errors=remount-ro"},
                         .size = 10 * kGiB,
                         .allocated = 10 * kGiB,
                         .free = kGiB,
                         .no_copy_on_write = false,
                         .is_compressed = false,
                         .pieces = 12,
                         .is_shared = false};
  return facts;
}

TEST(FileAdviceTest, AGoodFileIsGood) {
  for (const Finding& finding : FileAdvice(GoodFile())) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << ::testing::PrintToString(finding);
  }
}

struct Case {
  const char* name;
  void (*change)(DiskFacts&);
  Verdict verdict;
  const char* check;
  const char* text;
  const char* command;
};

void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

class DiskAdviceCase : public ::testing::TestWithParam<Case> {};

TEST_P(DiskAdviceCase, IsFound) {
  const Case& expected = GetParam();
  DiskFacts facts = GoodFile();
  EXPECT_THAT(DiskAdvice(facts, {}), Not(Contains(Finds(expected.verdict, expected.check))));
  expected.change(facts);
  const Findings findings = DiskAdvice(facts, {});
  EXPECT_THAT(findings, Contains(FindsText(expected.verdict, expected.check, expected.text)));
  EXPECT_THAT(findings, Contains(FindsCommand(expected.verdict, expected.check, expected.command)));
}

INSTANTIATE_TEST_SUITE_P(
    , DiskAdviceCase,
    ::testing::Values(
        Case{"Memory", [](DiskFacts& f) { f.file->mount.type = "tmpfs"; }, Verdict::kUnsafe,
             "file-system", "the file is in memory (tmpfs on /srv)", ""},
        Case{"Nfs", [](DiskFacts& f) { f.file->mount.type = "nfs4"; }, Verdict::kUnknown,
             "file-system", "served by others (nfs4 from /dev/vda)", ""},
        Case{"Fuse", [](DiskFacts& f) { f.file->mount.type = "fuse.sshfs"; }, Verdict::kUnknown,
             "discard", "whether fuse.sshfs gives back", ""},
        Case{"NoMount", [](DiskFacts& f) { f.file->mount = {}; }, Verdict::kUnknown, "file-system",
             "cannot be told", ""},
        Case{"Barriers", [](DiskFacts& f) { f.file->mount.options = "rw,nobarrier"; },
             Verdict::kUnsafe, "barriers", "a power cut loses",
             "mount -o remount,barrier=1 '/srv'"},
        Case{"Journal", [](DiskFacts& f) { f.file->mount.options = "rw,data=journal"; },
             Verdict::kSlow, "journal", "is done twice", ""},
        Case{"Sync", [](DiskFacts& f) { f.file->mount.options = "rw,sync"; }, Verdict::kSlow,
             "sync", "each write is a flush", "mount -o remount,async '/srv'"},
        Case{"Continues", [](DiskFacts& f) { f.file->mount.options = "rw,errors=continue"; },
             Verdict::kUnsafe, "errors", "goes on writing",
             "mount -o remount,errors=remount-ro '/srv'"},
        Case{"Panics", [](DiskFacts& f) { f.file->mount.options = "rw,errors=panic"; },
             Verdict::kNote, "errors", "ends the host",
             "mount -o remount,errors=remount-ro '/srv'"},
        Case{"ErrorsUnknown", [](DiskFacts& f) { f.file->mount.options = "rw"; }, Verdict::kUnknown,
             "errors", "in its superblock", "tune2fs -l '/dev/vda' | grep 'Errors behavior'"},
        Case{"Btrfs", [](DiskFacts& f) { f.file->mount.type = "btrfs"; }, Verdict::kSlow,
             "copy-on-write", "writes each block to a new place",
             "touch NEW && chattr +C NEW && cp --reflink=never '/srv/a.img' NEW"},
        Case{"Shared", [](DiskFacts& f) { f.file->is_shared = true; }, Verdict::kSlow, "shared",
             "first write to each copies it", "cp --reflink=never '/srv/a.img' NEW"},
        Case{"Compressed", [](DiskFacts& f) { f.file->is_compressed = true; }, Verdict::kSlow,
             "compressed", "compresses", ""},
        Case{"Encrypted", [](DiskFacts& f) { f.file->is_encrypted = true; }, Verdict::kNote,
             "encrypted", "encrypts", ""},
        Case{"Pieces", [](DiskFacts& f) { f.file->pieces = 10'000; }, Verdict::kSlow, "pieces",
             "in 10000 pieces", "e4defrag '/srv/a.img'  # ext4; else copy it"},
        Case{"Sparse", [](DiskFacts& f) { f.file->allocated = 9 * kGiB + kMiB; }, Verdict::kSlow,
             "space", "1023M of 10G has no space yet",
             "fallocate --length 10737418240 '/srv/a.img'"},
        Case{"TooSparse", [](DiskFacts& f) { f.file->allocated = 9 * kGiB - kMiB; },
             Verdict::kUnsafe, "space",
             "1025M of 10G has no space yet, and the file system has 1G left", ""},
        Case{"SpaceUnknown",
             [](DiskFacts& f) {
               f.file->allocated = 0;
               f.file->free = std::nullopt;
             },
             Verdict::kUnknown, "space", "how much is left cannot be told", ""},
        Case{"NoDirect",
             [](DiskFacts& f) { f.direct.refusal = "its file system does not take it"; },
             Verdict::kSlow, "direct", "page cache: its file system does not take it", ""},
        Case{"LargeDirect", [](DiskFacts& f) { f.direct.offset_unit = 4096; }, Verdict::kNote,
             "direct", "in units of 4096 bytes", ""},
        Case{"Unusable", [](DiskFacts& f) { f.unusable = "it is in use"; }, Verdict::kUnusable,
             "open", "it is in use", ""},
        Case{"NotWritable", [](DiskFacts& f) { f.is_writable = false; }, Verdict::kNote,
             "permission", "readonly=on", ""},
        Case{"LoopUser", [](DiskFacts& f) { f.loops = {"loop7"}; }, Verdict::kUnsafe, "loop-user",
             "loop7 has the file, too", "losetup --detach /dev/loop7"},
        Case{"Mounted", [](DiskFacts& f) { f.mounted_on = {"/it's"}; }, Verdict::kUnusable,
             "mounted", "it is mounted on /it's", "umount '/it'\\''s'"}),
    [](const auto& info) { return info.param.name; });

TEST(FileAdviceTest, AnAttributeOfBtrfsIsNotAskedOfOthers) {
  DiskFacts facts = GoodFile();
  facts.file->mount.type = "btrfs";
  facts.file->no_copy_on_write = true;
  EXPECT_THAT(FileAdvice(facts), Not(Contains(IsAbout("copy-on-write"))));
}

// ---- What is said of devices ----

DiskFacts Namespace() {
  DiskFacts facts = {
      .path = "/dev/nvme0n1", .kind = DiskKindFound::kBlockDevice, .is_writable = true};
  facts.block = BlockFacts{
      .name = "nvme0n1", .disk = "nvme0n1", .driver = "nvme", .write_cache = "write back"};
  facts.block->pci = {.address = "0000:00:04.0", .driver = "nvme"};
  return facts;
}

TEST(DiskAdviceTest, WhoHasABlockDeviceIsNamed) {
  DiskFacts facts = Namespace();
  facts.is_claimed = true;
  EXPECT_THAT(DiskAdvice(facts, {}), Contains(FindsText(Verdict::kUnusable, "in-use", "somebody")));
  facts.block->holders = {"dm-0", "dm-1"};
  EXPECT_THAT(DiskAdvice(facts, {}),
              Contains(FindsText(Verdict::kUnusable, "in-use", "dm-0 and dm-1 has it")));
  facts.mounted_on = {"/srv"};  // which says more
  EXPECT_THAT(DiskAdvice(facts, {}), Not(Contains(IsAbout("in-use"))));
}

TEST(DiskAdviceTest, AReadOnlyDeviceAndUnknownInterruptsAreSaid) {
  DiskFacts facts = Namespace();
  facts.block->is_read_only = true;
  EXPECT_THAT(DiskAdvice(facts, {}), Contains(FindsCommand(Verdict::kNote, "read-only",
                                                           "blockdev --setrw '/dev/nvme0n1'")));
  EXPECT_THAT(DiskAdvice(facts, {}), Contains(Finds(Verdict::kUnknown, "interrupts")));
}

TEST(DiskAdviceTest, AWholeNamespaceHasOtherWays) {
  DiskFacts facts = Namespace();
  EXPECT_THAT(DiskAdvice(facts, {}),
              Contains(FindsCommand(Verdict::kNote, "nvme", "ringside doctor --disk /dev/ng0n1")));
  EXPECT_THAT(DiskAdvice(facts, {}), Not(Contains(IsAbout("poll-queues"))));
  facts.block->name = "nvme0n1p1";
  facts.nvme_poll_queues = 4;
  EXPECT_THAT(DiskAdvice(facts, {}), Not(Contains(IsAbout("nvme"))));
  EXPECT_THAT(DiskAdvice(facts, {}),
              Contains(FindsText(Verdict::kNote, "poll-queues", "keeps 4 queues")));
}

// ---- What the command makes of it ----

const Findings kFindings = {{Verdict::kGood, "direct", "fine", ""},
                            {Verdict::kSlow, "scheduler", "not\nso fine", "echo none > x"}};

TEST(DiskDoctorTest, TheTextHasALineForEachFinding) {
  EXPECT_EQ(DiskFindingsText("a.img", kFindings),
            "Disk a.img\n"
            "  ok    fine\n"
            "  slow  not\\x0aso fine\n"
            "          echo none > x\n"
            "Nothing about this disk is unsafe; it could be faster.\n");
  EXPECT_TRUE(IsSound(kFindings));
}

TEST(DiskDoctorTest, TheSumIsOfTheWorst) {
  Findings findings = kFindings;
  findings.push_back({Verdict::kUnsafe, "barriers", "x", ""});
  EXPECT_FALSE(IsSound(findings));
  EXPECT_THAT(DiskFindingsText("a", findings), HasSubstr("can lose what guests have written"));
  findings.push_back({Verdict::kUnusable, "open", "x", ""});
  EXPECT_FALSE(IsSound(findings));
  EXPECT_THAT(DiskFindingsText("a", findings), HasSubstr("cannot have this disk as it is"));
  EXPECT_THAT(DiskFindingsText("a", {}), HasSubstr("nothing is slow"));
}

TEST(DiskDoctorTest, JsonHasTheSame) {
  const auto json = nlohmann::json::parse(DiskFindingsJson("a\xff.img", kFindings));
  EXPECT_EQ(json["sound"], true);
  ASSERT_EQ(json["findings"].size(), 2u);
  EXPECT_EQ(json["findings"][1]["check"], "scheduler");
  EXPECT_EQ(json["findings"][1]["verdict"], "slow");
  EXPECT_EQ(json["findings"][1]["command"], "echo none > x");
  EXPECT_FALSE(json["findings"][0].contains("command"));
}

}  // namespace
}  // namespace ringside
