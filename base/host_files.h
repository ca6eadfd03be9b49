// What the kernel says in /sys and /proc, a line or a name at a time. What cannot be read is empty:
// attributes come and go with kernels and devices.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ringside {

// Without blanks around it.
std::string FirstLine(const std::filesystem::path& path);
// Of a first line that is nothing but a number.
std::optional<int64_t> FirstNumber(const std::filesystem::path& path);
// Sorted; those of links are their own.
std::vector<std::string> NamesIn(const std::filesystem::path& directory);
// The last part of what a link names.
std::string LinkName(const std::filesystem::path& link);
// With every link resolved; empty if there is no such file.
std::filesystem::path RealPath(const std::filesystem::path& path);
bool Exists(const std::filesystem::path& path);

}  // namespace ringside
