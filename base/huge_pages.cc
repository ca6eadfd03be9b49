#include "base/huge_pages.h"

#include <array>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "absl/strings/str_format.h"
#include "base/host_files.h"

namespace ringside {
namespace {

// "advise" of "always within_size [advise] never deny force"; empty: the kernel has no such file.
std::string Chosen(const std::filesystem::path& path) {
  const std::string line = FirstLine(path);
  const size_t begin = line.find('['), end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return line.substr(begin + 1, end - begin - 1);
}

}  // namespace

const char* HugePagesName(HugePages pages) {
  constexpr std::array kNames = {"off", "transparent", "2M"};
  return kNames[static_cast<size_t>(pages)];
}

bool IsOfHugePages(int fd) {
  struct statfs status;
  return fstatfs(fd, &status) == 0 && status.f_type == HUGETLBFS_MAGIC;
}

std::string HugePagesRemedy(uint64_t bytes, const std::filesystem::path& sys) {
  const std::filesystem::path pool = sys / "kernel/mm/hugepages/hugepages-2048kB";
  const auto wanted = static_cast<int64_t>((bytes + kHugePageSize - 1) / kHugePageSize);
  // What others have reserved counts as free until they touch it.
  const int64_t free = FirstNumber(pool / "free_hugepages").value_or(0) -
                       FirstNumber(pool / "resv_hugepages").value_or(0);
  if (free >= wanted) {
    return absl::StrFormat(
        "%d huge pages of 2M are wanted, and %d are free: raise hugetlb.2MB.rsvd.max of this "
        "cgroup, or 'ulimit -v'",
        wanted, free);
  }
  const int64_t all = FirstNumber(pool / "nr_hugepages").value_or(0) + wanted - free;
  return absl::StrFormat(
      "%d huge pages of 2M are wanted, and %d are free: 'sysctl vm.nr_hugepages=%d' sets as many "
      "aside",
      wanted, free, all);
}

std::string WhyNoSharedHugePages(const std::filesystem::path& sys) {
  const std::filesystem::path directory = sys / "kernel/mm/transparent_hugepage";
  std::filesystem::path path = directory / "shmem_enabled";
  std::string chosen = Chosen(path);
  // Since Linux 6.11 each size has a file of its own, which says "inherit" until somebody changes
  // it; "deny" is for all.
  const std::filesystem::path of_size = directory / "hugepages-2048kB/shmem_enabled";
  const std::string own = Chosen(of_size);
  if (chosen != "deny" && !own.empty() && own != "inherit") {
    path = of_size;
    chosen = own;
  }
  if (chosen.empty()) return "this host's kernel makes no huge pages of shared memory";
  if (chosen != "never" && chosen != "deny") return "";
  return absl::StrFormat("%s is [%s]: 'echo advise > %s' allows them", path.string(), chosen,
                         path.string());
}

}  // namespace ringside
