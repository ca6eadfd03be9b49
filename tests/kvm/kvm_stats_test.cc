// Statistics of KVM, read from a file laid out as KVM does it.
#include "kvm/kvm_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "kvm/kvm_api.h"

namespace ringside {
namespace {

constexpr uint32_t kNameSize = 48;

// Header, descriptors, then the values; with gaps, as the header says where each begins.
class StatsFile {
 public:
  void Add(const std::string& name, std::vector<uint64_t> values) {
    kvm_stats_desc descriptor = {};
    descriptor.size = static_cast<uint16_t>(values.size());
    descriptor.offset = static_cast<uint32_t>(data_.size());
    std::string text = name;
    text.resize(kNameSize);
    Append(descriptors_, descriptor);
    descriptors_ += text;
    for (const uint64_t value : values) Append(data_, value);
    ++header_.num_desc;
  }

  UniqueFd Make() {
    header_.name_size = kNameSize;
    header_.desc_offset = 100;
    header_.data_offset = static_cast<uint32_t>(100 + descriptors_.size() + 24);
    std::string all;
    Append(all, header_);
    all.resize(header_.desc_offset);
    all += descriptors_;
    all.resize(header_.data_offset);
    all += data_;
    return Written(all);
  }

  static UniqueFd Written(const std::string& bytes) {
    UniqueFd fd(memfd_create("stats", MFD_CLOEXEC));
    EXPECT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return fd;
  }
  kvm_stats_header& header() { return header_; }

 private:
  template <typename T>
  static void Append(std::string& to, const T& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  kvm_stats_header header_ = {};
  std::string descriptors_;
  std::string data_;
};

std::string Text(const std::vector<KernelCount>& counts) {
  std::string text;
  for (const KernelCount& count : counts) {
    text += std::string(count.name) + "=" + std::to_string(count.count) + " ";
  }
  return text;
}

TEST(KvmStatsTest, FindsWhatItKnowsAmongAllOthers) {
  StatsFile file;
  file.Add("pf_fixed", {1});
  file.Add("exits", {1000});
  file.Add("halt_wait_hist", {7, 8, 9});
  file.Add("exits_of_another_kind", {2});
  file.Add("irq_injections", {30});
  auto stats = KvmStats::Open(file.Make());
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(Text(stats->Read()), "exits=1000 irq_injections=30 ");
}

TEST(KvmStatsTest, AHostThatCountsNothingOfItGivesNothing) {
  StatsFile file;
  file.Add("pf_fixed", {1});
  auto stats = KvmStats::Open(file.Make());
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_TRUE(stats->Read().empty());
}

TEST(KvmStatsTest, RefusesWhatHasAnotherLayout) {
  EXPECT_FALSE(KvmStats::Open(StatsFile::Written("short")).ok());
  EXPECT_FALSE(KvmStats::Open(UniqueFd()).ok());
  StatsFile many;
  many.header().num_desc = 1 << 30;
  EXPECT_FALSE(KvmStats::Open(many.Make()).ok());
  StatsFile fewer;
  fewer.Add("exits", {1000});
  fewer.header().num_desc = 10;
  EXPECT_FALSE(KvmStats::Open(fewer.Make()).ok());
}

TEST(KvmStatsTest, LeavesOutWhatCannotBeRead) {
  StatsFile file;
  file.Add("exits", {1});
  file.Add("io_exits", {2});
  UniqueFd fd = file.Make();
  ASSERT_EQ(ftruncate(fd.get(), lseek(fd.get(), 0, SEEK_END) - 8), 0);
  auto stats = KvmStats::Open(std::move(fd));
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(Text(stats->Read()), "exits=1 ");
}

}  // namespace
}  // namespace ringside
