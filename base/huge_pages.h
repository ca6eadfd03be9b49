// Huge pages of the host, of 2 MiB each: those that it has set aside, of which files of hugetlbfs
// are made, and those that the kernel makes by itself of memory that asks for them.
//
// Threads: any. Spec: Linux Documentation/admin-guide/mm/hugetlbpage.rst and transhuge.rst.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ringside/config.h"

namespace ringside {

inline constexpr uint64_t kHugePageSize = 2 << 20;

// As the option is written.
const char* HugePagesName(HugePages pages);

// Whether the file is of hugetlbfs: whoever maps it has its pages, whatever else he asks for.
bool IsOfHugePages(int fd);

// What to do where pages that were set aside for so many bytes could not be had: in words for an
// error. `sys` is another directory in tests.
std::string HugePagesRemedy(uint64_t bytes, const std::filesystem::path& sys = "/sys");

// Why shared memory that asks for huge pages gets none on this host, and what to do; empty: it gets
// them.
std::string WhyNoSharedHugePages(const std::filesystem::path& sys = "/sys");

}  // namespace ringside
