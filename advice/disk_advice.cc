#include "advice/disk_advice.h"

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "advice/block_advice.h"
#include "advice/file_advice.h"

namespace ringside {
namespace {

void Append(Findings& findings, Findings more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

bool IsFile(const DiskFacts& facts) {
  return facts.kind == DiskKindFound::kFile;
}

bool IsBlockDevice(const DiskFacts& facts) {
  return facts.kind == DiskKindFound::kBlockDevice;
}

// ---- Whether a machine can have it, alone ----

void Opening(const DiskFacts& facts, Findings& findings) {
  if (!facts.unusable.empty()) {
    findings.push_back({Verdict::kUnusable, "open", facts.unusable, ""});
  } else if (!facts.is_writable) {
    findings.push_back({Verdict::kNote, "permission",
                        "you may only read it: a machine of yours needs readonly=on", ""});
  }
  if (IsBlockDevice(facts) && facts.block && facts.block->is_read_only) {
    findings.push_back(
        {Verdict::kNote, "read-only",
         absl::StrFormat("%s is read-only: a machine needs readonly=on", facts.block->name),
         absl::StrFormat("blockdev --setrw %s", Quoted(facts.path))});
  }
}

void OtherUsers(const DiskFacts& facts, Findings& findings) {
  for (const std::string& point : facts.mounted_on) {
    findings.push_back({Verdict::kUnusable, "mounted",
                        absl::StrFormat("it is mounted on %s: a guest that writes it would destroy "
                                        "that file system",
                                        point),
                        absl::StrFormat("umount %s", Quoted(point))});
  }
  if (facts.is_claimed && facts.mounted_on.empty()) {
    std::string by = "somebody";
    if (facts.block && !facts.block->holders.empty()) {
      by = absl::StrJoin(facts.block->holders, " and ");
    }
    findings.push_back({Verdict::kUnusable, "in-use",
                        absl::StrFormat("%s has it for itself alone: a file system, a volume group "
                                        "or another machine",
                                        by),
                        "lsblk"});
  }
  for (const std::string& loop : facts.loops) {
    findings.push_back(
        {Verdict::kUnsafe, "loop-user",
         absl::StrFormat("%s has the file, too: if both write it, neither finds what "
                         "it wrote",
                         loop),
         absl::StrFormat("losetup --detach /dev/%s", loop)});
  }
}

// ---- How its bytes are reached ----

void Direct(const DiskFacts& facts, Findings& findings) {
  if (!facts.unusable.empty() || !(IsFile(facts) || IsBlockDevice(facts))) return;
  if (!facts.direct.refusal.empty()) {
    findings.push_back(
        {Verdict::kSlow, "direct",
         absl::StrFormat("everything goes through the host's page cache: %s", facts.direct.refusal),
         ""});
  } else if (facts.direct.offset_unit > 512) {
    findings.push_back({Verdict::kNote, "direct",
                        absl::StrFormat("it takes O_DIRECT in units of %d bytes: the guest sees "
                                        "blocks of that size, as an image made for 512 does not "
                                        "expect",
                                        facts.direct.offset_unit),
                        ""});
  } else {
    findings.push_back({Verdict::kGood, "direct", "it takes O_DIRECT, which cache=none uses", ""});
  }
}

// A file's holes are punched on the file systems that are known to do that.
void FileDiscard(const DiskFacts& facts, Findings& findings) {
  if (!facts.file || facts.file->mount.type.empty()) return;
  for (const char* type : {"ext4", "xfs", "btrfs", "tmpfs", "f2fs", "ocfs2"}) {
    if (facts.file->mount.type == type) return;
  }
  findings.push_back(
      {Verdict::kUnknown, "discard",
       absl::StrFormat("whether %s gives back what the guest discards cannot be told "
                       "without a write",
                       facts.file->mount.type),
       ""});
}

void NvmeWays(const DiskFacts& facts, Findings& findings) {
  const PciFacts& device = DeviceOf(facts);
  if (device.driver != "nvme") return;
  if (IsBlockDevice(facts) && !facts.block->is_partition() && !facts.block->is_dm() &&
      absl::StartsWith(facts.block->name, "nvme")) {
    findings.push_back(
        {Verdict::kNote, "nvme",
         absl::StrFormat("a guest that gets all of %s can have it past the host's "
                         "block layer, and one that gets all of the controller "
                         "without the kernel: nvme://%s/1",
                         facts.block->name, device.address),
         absl::StrFormat("ringside doctor --disk /dev/ng%s", facts.block->name.substr(4))});
  }
  if (facts.nvme_poll_queues.value_or(0) == 0) return;
  findings.push_back({Verdict::kNote, "poll-queues",
                      absl::StrFormat("the nvme driver keeps %d queues for those who poll the "
                                      "kernel; Ringside polls its own rings and leaves these idle",
                                      *facts.nvme_poll_queues),
                      "echo 'options nvme poll_queues=0' > /etc/modprobe.d/nvme.conf"});
}

void Balancing(const DiskFacts& facts, const Placement& placement, Findings& findings) {
  if (facts.nodes.size() < 2 || facts.numa_balancing.value_or(0) == 0) return;
  if (placement.io_thread_cpus.empty() && placement.memory_nodes.empty()) return;
  findings.push_back({Verdict::kSlow, "numa-balancing",
                      "the kernel takes pages away and puts them back to see who uses them, which "
                      "is in vain where all is placed by hand",
                      "sysctl kernel.numa_balancing=0"});
}

// What is behind a URL has no block device of this host.
void WithoutKernel(const DiskFacts& facts, Findings& findings) {
  if (facts.kind == DiskKindFound::kNvmeServer) {
    findings.push_back({Verdict::kUnknown, "behind",
                        "how another process keeps the bytes cannot be told from here", ""});
  } else if (facts.kind == DiskKindFound::kNvme && facts.unusable.empty()) {
    findings.push_back({Verdict::kGood, "open",
                        "Ringside drives the controller itself: no scheduler, no page cache, and "
                        "while it polls no interrupts",
                        ""});
  } else if (facts.kind == DiskKindFound::kNvmeCharacter && facts.unusable.empty()) {
    findings.push_back({Verdict::kGood, "open",
                        "commands go past the host's block layer: no scheduler and no page cache",
                        ""});
  }
}

void InGuest(Findings& findings) {
  findings.push_back({Verdict::kUnknown, "guest",
                      "the guest has a scheduler of its own, for which none is best, too; what it "
                      "uses it says itself",
                      "cat /sys/block/vda/queue/scheduler  # in the guest"});
}

}  // namespace

const PciFacts& DeviceOf(const DiskFacts& facts) {
  return facts.block ? DeviceOf(*facts.block) : facts.pci;
}

Findings DiskAdvice(const DiskFacts& facts, const Placement& placement) {
  Findings findings;
  Opening(facts, findings);
  OtherUsers(facts, findings);
  WithoutKernel(facts, findings);
  Direct(facts, findings);
  if (facts.file) Append(findings, FileAdvice(facts));
  FileDiscard(facts, findings);
  if (facts.block) {
    Append(findings, BlockAdvice(*facts.block, IsBlockDevice(facts)));
  } else if (IsFile(facts) && facts.file && !absl::StartsWith(facts.file->mount.type, "tmpfs")) {
    findings.push_back({Verdict::kUnknown, "block",
                        "which block device the file is on cannot be told from here", ""});
  }
  NvmeWays(facts, findings);
  const PciFacts& device = DeviceOf(facts);
  // A controller that Ringside drives interrupts whichever of its threads has the queue.
  if (facts.block || facts.kind == DiskKindFound::kNvmeCharacter) {
    Append(findings, InterruptAdvice(device, placement));
  }
  Append(findings, NodeAdvice(device.node, placement, facts.nodes));
  Balancing(facts, placement, findings);
  InGuest(findings);
  return findings;
}

}  // namespace ringside
