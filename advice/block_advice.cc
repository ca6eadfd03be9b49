#include "advice/block_advice.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/size.h"

namespace ringside {
namespace {

// A guest's queue has 256 requests; with fewer here it waits in the host.
constexpr int64_t kFewRequests = 128;
constexpr double kNearlyFull = 0.9;

std::string QueueFile(const BlockFacts& facts, const char* attribute) {
  return absl::StrFormat("/sys/block/%s/queue/%s", facts.disk, attribute);
}

std::string Write(const char* value, const std::string& file) {
  return absl::StrFormat("echo %s > %s", value, file);
}

// Virtio disks say that they rotate, whatever is behind them, and loop devices what their file's
// disk says.
bool Rotates(const BlockFacts& facts) {
  return facts.rotational == 1 && facts.driver != "virtio_blk" && facts.backing_file.empty();
}

bool StandsOnNone(const BlockFacts& facts) {
  return facts.below.empty();
}

// ---- Of the device itself, where requests queue up ----

void Scheduler(const BlockFacts& facts, Findings& findings) {
  if (facts.scheduler.empty() || !StandsOnNone(facts)) return;
  if (facts.scheduler == "none") {
    findings.push_back({Verdict::kGood, "scheduler",
                        absl::StrFormat("%s: no scheduler sorts its requests", facts.disk), ""});
  } else if (Rotates(facts)) {
    findings.push_back({Verdict::kNote, "scheduler",
                        absl::StrFormat("%s: the scheduler %s sorts its requests, from which a "
                                        "rotating disk gains",
                                        facts.disk, facts.scheduler),
                        ""});
  } else {
    findings.push_back({Verdict::kSlow, "scheduler",
                        absl::StrFormat("%s: the scheduler %s sorts requests for a device that "
                                        "gains nothing from that; none is best for NVMe and for "
                                        "disks of guests",
                                        facts.disk, facts.scheduler),
                        Write("none", QueueFile(facts, "scheduler"))});
  }
}

void Merging(const BlockFacts& facts, Findings& findings) {
  if (facts.nomerges != 0 || !StandsOnNone(facts) || Rotates(facts)) return;
  findings.push_back(
      {Verdict::kNote, "nomerges",
       absl::StrFormat("%s: looks for a neighbour to merge each request with, which "
                       "helps small requests in a row and costs random ones a little",
                       facts.disk),
       Write("2", QueueFile(facts, "nomerges"))});
}

void CompletionProcessor(const BlockFacts& facts, Findings& findings) {
  if (facts.rq_affinity != 2 || !StandsOnNone(facts)) return;
  findings.push_back({Verdict::kNote, "rq-affinity",
                      absl::StrFormat("%s: a completion that arrives on another processor than its "
                                      "I/O thread's is sent there by one more interrupt",
                                      facts.disk),
                      Write("1", QueueFile(facts, "rq_affinity"))});
}

void Depth(const BlockFacts& facts, Findings& findings) {
  if (!facts.nr_requests || *facts.nr_requests >= kFewRequests || !StandsOnNone(facts)) return;
  findings.push_back({Verdict::kNote, "nr-requests",
                      absl::StrFormat("%s: each of its queues takes %d requests; what a guest has "
                                      "beyond that waits in the host. The device may refuse more",
                                      facts.disk, *facts.nr_requests),
                      Write("256", QueueFile(facts, "nr_requests"))});
}

void Rotation(const BlockFacts& facts, Findings& findings) {
  if (!Rotates(facts) || !StandsOnNone(facts)) return;
  findings.push_back({Verdict::kSlow, "rotational",
                      absl::StrFormat("%s: a rotating disk, with some hundred random requests per "
                                      "second",
                                      facts.disk),
                      ""});
}

void BehindIt(const BlockFacts& facts, Findings& findings) {
  if (facts.driver != "virtio_blk") return;
  findings.push_back({Verdict::kUnknown, "behind",
                      absl::StrFormat("%s is a virtio disk: how its bytes are kept is a matter of "
                                      "the host of this host",
                                      facts.disk),
                      ""});
}

void Partition(const BlockFacts& facts, Findings& findings) {
  if (!facts.is_partition() || !facts.physical_block || *facts.physical_block <= 0) return;
  if (facts.offset % static_cast<uint64_t>(*facts.physical_block) == 0) return;
  findings.push_back({Verdict::kSlow, "partition",
                      absl::StrFormat("%s begins at byte %d of %s, within one of its blocks of %d "
                                      "bytes: writes of a block have to read two first. Make it "
                                      "anew where a MiB begins",
                                      facts.name, facts.offset, facts.disk, *facts.physical_block),
                      ""});
}

// The kernel sends no flushes to a disk that it takes for one without a volatile cache.
bool HidesCache(const BlockFacts& facts) {
  return (facts.write_cache == "write through" &&
          absl::StartsWith(facts.own_write_cache, "write back")) ||
         std::ranges::any_of(facts.below, HidesCache);
}

void HiddenCache(const BlockFacts& facts, Findings& findings) {
  if (!StandsOnNone(facts) || !HidesCache(facts)) return;
  findings.push_back({Verdict::kUnsafe, "write-cache",
                      absl::StrFormat("%s has a volatile write cache that the kernel was told not "
                                      "to flush: a power cut loses what guests have flushed",
                                      facts.disk),
                      Write("'write back'", QueueFile(facts, "write_cache"))});
}

// ---- Of what the kernel makes of other devices ----

void Loop(const BlockFacts& facts, Findings& findings) {
  if (facts.backing_file.empty()) return;
  findings.push_back({Verdict::kNote, "loop",
                      absl::StrFormat("%s is the file '%s' and a kernel thread between; a machine "
                                      "can have the file itself",
                                      facts.disk, facts.backing_file),
                      absl::StrFormat("ringside doctor --disk '%s'", facts.backing_file)});
  if (facts.loop_direct != 0) return;
  findings.push_back(
      {Verdict::kSlow, "loop-direct",
       absl::StrFormat("%s keeps its bytes in the host's page cache, too, in spite of "
                       "cache=none",
                       facts.disk),
       absl::StrFormat("losetup --direct-io=on /dev/%s", facts.disk)});
}

void Crypt(const BlockFacts& facts, Findings& findings) {
  const DmTarget* const crypt = facts.Target("crypt");
  if (crypt == nullptr && !absl::StartsWith(facts.dm_uuid, "CRYPT-")) return;
  if (crypt == nullptr) {
    findings.push_back({Verdict::kUnknown, "crypt",
                        absl::StrFormat("%s is encrypted; only root may ask how its work is spread",
                                        facts.dm_name),
                        absl::StrFormat("sudo dmsetup table '%s'", facts.dm_name)});
    return;
  }
  const bool is_direct = absl::StrContains(crypt->table, "no_read_workqueue") &&
                         absl::StrContains(crypt->table, "no_write_workqueue");
  if (is_direct) {
    findings.push_back({Verdict::kGood, "crypt",
                        facts.dm_name + " is encrypted, each request where it arrives", ""});
  } else {
    findings.push_back({Verdict::kSlow, "crypt",
                        facts.dm_name + " is encrypted by worker threads, to which each request "
                                        "has to go",
                        absl::StrFormat("cryptsetup refresh --perf-no_read_workqueue "
                                        "--perf-no_write_workqueue '%s'",
                                        facts.dm_name)});
  }
}

void Snapshot(const BlockFacts& facts, Findings& findings) {
  for (const char* type : {"snapshot", "snapshot-origin", "snapshot-merge"}) {
    if (facts.Target(type) == nullptr) continue;
    findings.push_back(
        {Verdict::kSlow, "snapshot",
         absl::StrFormat("%s has a snapshot, or is one (%s): the first write to each "
                         "part copies that",
                         facts.dm_name, type),
         ""});
  }
}

// LVM's thin volumes stand on one device, by whose name they are known without the table.
const BlockFacts* PoolOf(const BlockFacts& facts) {
  for (const BlockFacts& below : facts.below) {
    if (below.Target("thin-pool") != nullptr || absl::EndsWith(below.dm_uuid, "-tpool")) {
      return &below;
    }
  }
  return nullptr;
}

std::string WhenFull(const ThinPool& pool) {
  return pool.fails_when_full ? "fail at once" : "wait for a minute, then fail";
}

void ThinSpace(const std::string& name, uint64_t unmapped, const ThinPool& pool,
               const std::string& extend, Findings& findings) {
  const uint64_t left = pool.total_bytes - std::min(pool.used_bytes, pool.total_bytes);
  if (!pool.is_writable) {
    findings.push_back({Verdict::kUnsafe, "thin-pool",
                        absl::StrFormat("the pool of %s is full or damaged: its writes fail", name),
                        extend});
  } else if (unmapped > left || pool.used_metadata > kNearlyFull) {
    findings.push_back({Verdict::kUnsafe, "thin-pool",
                        absl::StrFormat("%s may still ask its pool for %s, and that has %s left "
                                        "(%.0f%% of its metadata is used): once it is full the "
                                        "guest's writes %s. A disk with werror=stop keeps them",
                                        name, FormatSize(unmapped), FormatSize(left),
                                        100 * pool.used_metadata, WhenFull(pool)),
                        extend});
  } else {
    findings.push_back(
        {Verdict::kNote, "thin-pool",
         absl::StrFormat("%s may still ask its pool for %s, of %s that are left and "
                         "that others may take; the guest's writes to a full one %s",
                         name, FormatSize(unmapped), FormatSize(left), WhenFull(pool)),
         extend});
  }
}

void Thin(const BlockFacts& facts, Findings& findings) {
  const BlockFacts* const pool = PoolOf(facts);
  const DmTarget* const thin = facts.Target("thin");
  if (thin == nullptr && pool == nullptr) return;
  findings.push_back({Verdict::kSlow, "thin",
                      absl::StrFormat("%s is a thin volume: the first write to each part takes "
                                      "space from the pool",
                                      facts.dm_name),
                      ""});
  const DmTarget* const target = pool != nullptr ? pool->Target("thin-pool") : nullptr;
  const auto space = target != nullptr ? ParseThinPool(*target) : std::nullopt;
  const auto unmapped = thin != nullptr ? UnmappedBytes(*thin) : std::nullopt;
  const std::string extend = absl::StartsWith(facts.dm_uuid, "LVM-")
                                 ? "lvextend --size +10G VG/POOL  # 'lvs' says which it is"
                                 : "";
  if (space && unmapped) {
    ThinSpace(facts.dm_name, *unmapped, *space, extend, findings);
    return;
  }
  findings.push_back({Verdict::kUnknown, "thin-pool",
                      absl::StrFormat("how full the pool of %s is cannot be told from here (only "
                                      "root may ask): a guest's writes to a full one fail",
                                      facts.dm_name),
                      "sudo dmsetup status"});
}

void Lvm(const BlockFacts& facts, Findings& findings) {
  const bool is_whole = facts.Target("linear") != nullptr || facts.Target("striped") != nullptr;
  if (!is_whole || PoolOf(facts) != nullptr) return;
  findings.push_back({Verdict::kGood, "lvm",
                      absl::StrFormat("%s maps its blocks to those of other devices, which costs "
                                      "next to nothing",
                                      facts.dm_name),
                      ""});
}

// ---- Of what the guest is given ----

void WriteCache(const BlockFacts& facts, Findings& findings) {
  if (facts.write_cache == "write back") {
    findings.push_back(
        {Verdict::kGood, "write-cache",
         absl::StrFormat("%s has a volatile write cache: the guest's flushes empty "
                         "it, and cache=writethrough and directsync make every write "
                         "wait for that",
                         facts.name),
         ""});
  } else if (HidesCache(facts)) {
    return;  // HiddenCache says it
  } else if (facts.write_cache == "write through") {
    findings.push_back({Verdict::kGood, "write-cache",
                        absl::StrFormat("%s needs no flushes: what it has written stays, so "
                                        "cache=directsync costs no more than none",
                                        facts.name),
                        ""});
  } else {
    findings.push_back(
        {Verdict::kUnknown, "write-cache",
         absl::StrFormat("%s does not say whether its write cache is volatile", facts.name), ""});
  }
}

void Discard(const BlockFacts& facts, Findings& findings) {
  if (facts.discard_max != 0) return;
  findings.push_back(
      {Verdict::kNote, "discard",
       absl::StrFormat("%s takes no discards: what the guest frees stays allocated", facts.name),
       ""});
}

void Below(const BlockFacts& facts, Findings& findings) {
  for (const auto& check : {Scheduler, Merging, CompletionProcessor, Depth, Rotation, Partition,
                            HiddenCache, Loop, Crypt, Snapshot, Thin, Lvm, BehindIt}) {
    check(facts, findings);
  }
  for (const BlockFacts& each : facts.below) Below(each, findings);
}

}  // namespace

Findings BlockAdvice(const BlockFacts& facts, bool is_disk) {
  Findings findings;
  WriteCache(facts, findings);
  if (is_disk) Discard(facts, findings);
  Below(facts, findings);
  return findings;
}

}  // namespace ringside
