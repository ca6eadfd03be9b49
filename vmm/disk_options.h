// The options of a disk, which depend on where its bytes are: `--disk` and "disks".
#pragma once

#include <span>
#include <string>

#include "ringside/config.h"
#include "vmm/option_table.h"

namespace ringside {

// A backend that users can name.
struct DiskKind {
  const char* name;  // the value of "type"
  bool type_is_optional;
  const char* doc;
  DiskConfig (*make)();  // as it is by default
  OptionTable<DiskConfig> table;
};

std::span<const DiskKind> DiskKinds();

// The fields of `--disk`'s text, a shorthand in front of them resolved; ReadDisk does the rest.
absl::StatusOr<Json> ParseDiskText(const std::string& text);
// Where "type" is not given: that of "url" is nvme, a path to a character device is a namespace of
// a controller that stays with the kernel, anything else is a file.
absl::StatusOr<DiskConfig> ReadDisk(const OptionPlace& place, const Json& fields);
// What is behind a disk, from the same text without what is the disk's own, such as its id.
absl::StatusOr<BlockBackend> ReadBackend(const OptionPlace& place, const std::string& text);
// With its type. Its backend is one of those above.
Json PrintDisk(const DiskConfig& disk);
// Of any other backend, what all disks have.
absl::Status CheckDisk(const OptionPlace& place, const DiskConfig& disk);

}  // namespace ringside
