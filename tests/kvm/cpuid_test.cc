#include "kvm/cpuid.h"

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <set>

namespace ringside {
namespace {

using Leaves = std::vector<kvm_cpuid_entry2>;

// As a host would say them: every field that is to be overwritten is wrong on purpose.
constexpr uint32_t kHostId = 0xa5;

kvm_cpuid_entry2 Leaf(uint32_t function, uint32_t index, uint32_t eax, uint32_t ebx, uint32_t ecx,
                      uint32_t edx) {
  kvm_cpuid_entry2 leaf = {};
  leaf.function = function;
  leaf.index = index;
  leaf.eax = eax;
  leaf.ebx = ebx;
  leaf.ecx = ecx;
  leaf.edx = edx;
  return leaf;
}

kvm_cpuid_entry2 Subleaf(uint32_t function, uint32_t index, uint32_t eax, uint32_t ebx,
                         uint32_t ecx, uint32_t edx) {
  kvm_cpuid_entry2 leaf = Leaf(function, index, eax, ebx, ecx, edx);
  leaf.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
  return leaf;
}

// A cache of leaf 4 or 0x8000001d: type and level, with 63 cores and 15 sharers too many.
kvm_cpuid_entry2 Cache(uint32_t function, uint32_t index, uint32_t type, uint32_t level) {
  return Subleaf(function, index, 63u << 26 | 15u << 14 | 1u << 8 | level << 5 | type, 0x02c0003f,
                 0x3ff, 1);
}

constexpr uint32_t kData = 1;
constexpr uint32_t kCode = 2;
constexpr uint32_t kUnified = 3;

const uint32_t kLeaf1Ebx = kHostId << 24 | 0x77u << 16 | 0x0800;
const uint32_t kLeaf1Ecx = 0x00283203;
const uint32_t kLeaf1Edx = 0x178bfbff;

Leaves IntelHost() {
  return {
      Leaf(0, 0, 0x1f, 0x756e6547, 0x6c65746e, 0x49656e69),
      Leaf(1, 0, 0x000806f8, kLeaf1Ebx, kLeaf1Ecx, kLeaf1Edx),
      Cache(4, 0, kData, 1),
      Cache(4, 1, kCode, 1),
      Cache(4, 2, kUnified, 2),
      Cache(4, 3, kUnified, 3),
      Subleaf(4, 4, 0, 0, 0, 0),
      Subleaf(7, 0, 0x2, 0x219c07ab, 0x1a400604, 0xbc000400),
      Subleaf(0xb, 0, 1, 2, 0x100, kHostId),
      Subleaf(0x1f, 0, 1, 2, 0x100, kHostId),
      Subleaf(0x1f, 1, 7, 96, 0x201, kHostId),
      Leaf(0x80000001, 0, 0, 0, 0x121, 0x2c100800),
      Leaf(0x80000008, 0, 0x3934, 0x200, 0, 0),
  };
}

Leaves AmdHost() {
  return {
      Leaf(0, 0, 0x10, 0x68747541, 0x444d4163, 0x69746e65),
      Leaf(1, 0, 0x00a20f12, kLeaf1Ebx, kLeaf1Ecx, kLeaf1Edx),
      Subleaf(7, 0, 0, 0x219c91a9, 0x40068c, 0),
      Subleaf(0xb, 0, 1, 2, 0x100, kHostId),
      Subleaf(0xb, 1, 7, 96, 0x201, kHostId),
      Leaf(0x80000001, 0, 0x00a20f12, 0, 0x75c237ff, 0x2fd3fbff),
      Leaf(0x80000008, 0, 0x3030, 0x1000, 0xf0f5a0b0, 0x10007),
      Cache(0x8000001d, 0, kData, 1),
      Cache(0x8000001d, 1, kCode, 1),
      Cache(0x8000001d, 2, kUnified, 2),
      Cache(0x8000001d, 3, kUnified, 3),
      Subleaf(0x8000001d, 4, 0, 0, 0, 0),
      Leaf(0x8000001e, 0, kHostId, 0xffff01a5, 0x307, 0),
  };
}

std::optional<kvm_cpuid_entry2> Find(const Leaves& leaves, uint32_t function, uint32_t index = 0) {
  std::optional<kvm_cpuid_entry2> found;
  for (const kvm_cpuid_entry2& leaf : leaves) {
    if (leaf.function != function || leaf.index != index) continue;
    EXPECT_FALSE(found.has_value()) << "twice: " << function << ", " << index;
    found = leaf;
  }
  return found;
}

kvm_cpuid_entry2 Get(const Leaves& leaves, uint32_t function, uint32_t index = 0) {
  const auto leaf = Find(leaves, function, index);
  EXPECT_TRUE(leaf.has_value()) << "missing: " << function << ", " << index;
  return leaf.value_or(kvm_cpuid_entry2{});
}

uint32_t Bits(uint32_t word, int high, int low) {
  return word >> low & ((uint32_t{2} << (high - low)) - 1);
}

// Worked out by hand: how many bits tell that many cores apart.
struct Size {
  uint32_t cpus;
  uint32_t id_bits;
  uint32_t ids;  // 2^id_bits
};
constexpr Size kSizes[] = {{1, 0, 1}, {2, 1, 2}, {3, 2, 4}, {4, 2, 4}, {254, 8, 256}};

struct Host {
  const char* name;
  Leaves (*leaves)();
  bool intel;
};
void PrintTo(const Host& host, std::ostream* out) {
  *out << host.name;
}

class CpuidTest : public ::testing::TestWithParam<std::tuple<Host, Size>> {
 protected:
  const Host& host() const { return std::get<0>(GetParam()); }
  const Size& size() const { return std::get<1>(GetParam()); }
  Leaves Make(uint32_t apic_id) const {
    return MakeCpuid(host().leaves(), apic_id, size().cpus, true);
  }
  Leaves MakeLast() const { return Make(size().cpus - 1); }
};

TEST_P(CpuidTest, EveryCpuHasItsOwnApicIdInEveryLeafThatTellsIt) {
  std::set<uint32_t> ids;
  for (uint32_t cpu = 0; cpu < size().cpus; ++cpu) {
    const Leaves leaves = Make(cpu);
    ids.insert(Bits(Get(leaves, 1).ebx, 31, 24));
    ASSERT_EQ(Bits(Get(leaves, 1).ebx, 31, 24), cpu);
    for (const uint32_t function : {0xb, 0x1f}) {
      if (!Find(leaves, function).has_value()) continue;
      for (const uint32_t index : {0, 1, 2}) {
        ASSERT_EQ(Get(leaves, function, index).edx, cpu) << function;
      }
    }
    if (const auto leaf = Find(leaves, 0x8000001e)) {
      ASSERT_EQ(leaf->eax, cpu);
      ASSERT_EQ(Bits(leaf->ebx, 7, 0), cpu) << "core";
    }
  }
  EXPECT_EQ(ids.size(), size().cpus);
}

TEST_P(CpuidTest, Leaf1CountsTheCoresOfThePackage) {
  const kvm_cpuid_entry2 leaf = Get(MakeLast(), 1);
  // Intel: ids that could be, of which 8 bits hold at most 255; AMD: cores that are.
  const uint32_t count = host().intel ? std::min(size().ids, 255u) : size().cpus;
  EXPECT_EQ(Bits(leaf.ebx, 23, 16), count);
  EXPECT_EQ(Bits(leaf.edx, 28, 28), size().cpus > 1 ? 1u : 0u) << "HTT: the count is valid";
  EXPECT_EQ(Bits(leaf.ebx, 15, 0), Bits(kLeaf1Ebx, 15, 0));
  EXPECT_EQ(leaf.edx | 1u << 28, kLeaf1Edx | 1u << 28);
}

TEST_P(CpuidTest, Leaf1SaysWhetherThereIsADeadlineTimerAndThatThereIsAHypervisor) {
  const Leaves with = MakeLast();
  EXPECT_EQ(Get(with, 1).ecx, kLeaf1Ecx | 1u << 24 | 1u << 31);
  EXPECT_EQ(Get(MakeCpuid(with, 0, size().cpus, false), 1).ecx, kLeaf1Ecx | 1u << 31);
}

TEST_P(CpuidTest, ExtendedTopologyIsOnePackageOfCoresWithOneThread) {
  const Leaves leaves = MakeLast();
  for (const uint32_t function : {0xb, 0x1f}) {
    if (!Find(host().leaves(), function).has_value()) continue;
    const kvm_cpuid_entry2 thread = Get(leaves, function, 0);
    EXPECT_EQ(thread.eax, 0u) << "bits of a thread's id";
    EXPECT_EQ(thread.ebx, 1u) << "threads of a core";
    EXPECT_EQ(thread.ecx, 0x100u) << "level 0: threads";
    const kvm_cpuid_entry2 core = Get(leaves, function, 1);
    EXPECT_EQ(core.eax, size().id_bits);
    EXPECT_EQ(core.ebx, size().cpus);
    EXPECT_EQ(core.ecx, 0x201u) << "level 1: cores";
    const kvm_cpuid_entry2 end = Get(leaves, function, 2);
    EXPECT_EQ(end.eax, 0u);
    EXPECT_EQ(end.ebx, 0u);
    EXPECT_EQ(end.ecx, 2u) << "level 2: none";
    for (const kvm_cpuid_entry2& leaf : {thread, core, end}) {
      EXPECT_EQ(leaf.flags, uint32_t{KVM_CPUID_FLAG_SIGNIFCANT_INDEX});
    }
    EXPECT_FALSE(Find(leaves, function, 3).has_value());
  }
}

TEST_P(CpuidTest, LeavesThatTheHostLacksStayAway) {
  const Leaves leaves = MakeLast();
  for (const uint32_t function : {0x4u, 0xbu, 0x1fu, 0x8000001du, 0x8000001eu}) {
    EXPECT_EQ(Find(leaves, function).has_value(), Find(host().leaves(), function).has_value())
        << function;
  }
  Leaves without = host().leaves();
  std::erase_if(without, [](const auto& leaf) { return leaf.function == 0xb; });
  EXPECT_FALSE(Find(MakeCpuid(without, 0, size().cpus, true), 0xb).has_value());
}

// First and second level are a core's own, the third is the package's.
TEST_P(CpuidTest, CachesAreSharedAsTheCoresAre) {
  const uint32_t function = host().intel ? 0x4 : 0x8000001d;
  const Leaves leaves = MakeLast();
  for (const uint32_t index : {0, 1, 2, 3}) {
    SCOPED_TRACE(index);
    const kvm_cpuid_entry2 before = Get(host().leaves(), function, index);
    const kvm_cpuid_entry2 after = Get(leaves, function, index);
    EXPECT_EQ(Bits(after.eax, 25, 14), index == 3 ? size().ids - 1 : 0) << "sharers - 1";
    if (host().intel) {
      EXPECT_EQ(Bits(after.eax, 31, 26), std::min(size().ids - 1, 63u)) << "cores - 1";
    } else {
      EXPECT_EQ(Bits(after.eax, 31, 26), Bits(before.eax, 31, 26)) << "reserved on AMD";
    }
    EXPECT_EQ(Bits(after.eax, 13, 0), Bits(before.eax, 13, 0)) << "type and level";
    EXPECT_EQ(after.ebx, before.ebx);
    EXPECT_EQ(after.ecx, before.ecx);
    EXPECT_EQ(after.edx, before.edx);
  }
  EXPECT_EQ(Get(leaves, function, 4).eax, 0u) << "no more caches";
}

TEST_P(CpuidTest, AmdsLeavesCountTheCoresAndIntelsAreLeftAlone) {
  const kvm_cpuid_entry2 sizes_before = Get(host().leaves(), 0x80000008);
  const kvm_cpuid_entry2 features_before = Get(host().leaves(), 0x80000001);
  const Leaves leaves = MakeLast();
  const kvm_cpuid_entry2 sizes = Get(leaves, 0x80000008);
  const kvm_cpuid_entry2 features = Get(leaves, 0x80000001);
  EXPECT_EQ(sizes.eax, sizes_before.eax) << "address widths";
  if (host().intel) {
    EXPECT_EQ(sizes.ecx, sizes_before.ecx);
    EXPECT_EQ(features.ecx, features_before.ecx);
    return;
  }
  EXPECT_EQ(Bits(sizes.ecx, 7, 0), size().cpus - 1) << "NC";
  EXPECT_EQ(Bits(sizes.ecx, 15, 12), size().id_bits) << "ApicIdSize";
  EXPECT_EQ(Bits(sizes.ecx, 31, 16), Bits(sizes_before.ecx, 31, 16));
  EXPECT_EQ(Bits(features.ecx, 1, 1), size().cpus > 1 ? 1u : 0u) << "CmpLegacy";
  EXPECT_EQ(features.ecx | 2u, features_before.ecx | 2u);
  const kvm_cpuid_entry2 ids = Get(leaves, 0x8000001e);
  EXPECT_EQ(Bits(ids.ebx, 15, 8), 0u) << "threads of a core - 1";
  EXPECT_EQ(ids.ecx, 0u) << "node 0, one node";
}

TEST_P(CpuidTest, OtherLeavesAreTheHosts) {
  const Leaves leaves = MakeLast();
  for (const uint32_t function : {0x0, 0x7}) {
    const kvm_cpuid_entry2 before = Get(host().leaves(), function);
    const kvm_cpuid_entry2 after = Get(leaves, function);
    EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0) << function;
  }
  // Nothing is lost or made up but the levels of topology.
  const auto count = [](const Leaves& all) {
    return std::ranges::count_if(
        all, [](const auto& leaf) { return leaf.function != 0xb && leaf.function != 0x1f; });
  };
  EXPECT_EQ(count(leaves), count(host().leaves()));
}

INSTANTIATE_TEST_SUITE_P(, CpuidTest,
                         ::testing::Combine(::testing::Values(Host{"Intel", IntelHost, true},
                                                              Host{"Amd", AmdHost, false}),
                                            ::testing::ValuesIn(kSizes)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  std::to_string(std::get<1>(info.param).cpus);
                         });

}  // namespace
}  // namespace ringside
