#include "advice/device_mapper.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <sys/ioctl.h>

#include "absl/strings/str_split.h"
#include "base/fd.h"
#include "base/number_list.h"

namespace ringside {
namespace {

constexpr uint64_t kSector = 512;
constexpr size_t kAnswerSize = 64 << 10;  // what has longer tables counts as unknown

struct Row {
  uint64_t sectors;
  std::string type;
  std::string text;
};

// What the kernel has written for each target; `flags` choose between table and status.
std::optional<std::vector<Row>> Ask(int control, dev_t device, uint32_t flags) {
  std::vector<char> answer(kAnswerSize);
  dm_ioctl head = {};
  head.version[0] = DM_VERSION_MAJOR;
  head.data_size = kAnswerSize;
  head.data_start = sizeof head;
  head.flags = flags;
  head.dev = device;
  std::memcpy(answer.data(), &head, sizeof head);
  if (ioctl(control, DM_TABLE_STATUS, answer.data()) != 0) return std::nullopt;
  std::memcpy(&head, answer.data(), sizeof head);
  if ((head.flags & DM_BUFFER_FULL_FLAG) != 0) return std::nullopt;

  std::vector<Row> rows;
  size_t at = head.data_start;
  for (uint32_t i = 0; i < head.target_count; ++i) {
    dm_target_spec spec;
    if (at > kAnswerSize - sizeof spec) return std::nullopt;
    std::memcpy(&spec, answer.data() + at, sizeof spec);
    const char* const text = answer.data() + at + sizeof spec;
    rows.push_back(
        {.sectors = spec.length,
         .type = std::string(spec.target_type, strnlen(spec.target_type, sizeof spec.target_type)),
         .text = std::string(text, strnlen(text, kAnswerSize - at - sizeof spec))});
    at = head.data_start + size_t{spec.next};
  }
  return rows;
}

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

// "12/345".
struct Fraction {
  uint64_t part;
  uint64_t whole;
};
std::optional<Fraction> ParseFraction(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto part = ParseNumber<uint64_t>(text.substr(0, slash));
  const auto whole = ParseNumber<uint64_t>(text.substr(slash + 1));
  if (!part || !whole || *whole == 0) return std::nullopt;
  return Fraction{*part, *whole};
}

}  // namespace

std::optional<std::vector<DmTarget>> ReadDmTargets(dev_t device) {
  const UniqueFd control(open("/dev/mapper/control", O_RDWR | O_CLOEXEC));
  if (!control.valid()) return std::nullopt;
  const auto table = Ask(control.get(), device, DM_STATUS_TABLE_FLAG);
  // Without the flag a pool would write its metadata first, for exact figures.
  const auto status = Ask(control.get(), device, DM_NOFLUSH_FLAG);
  if (!table || !status || table->size() != status->size()) return std::nullopt;
  std::vector<DmTarget> targets;
  targets.reserve(table->size());
  for (size_t i = 0; i < table->size(); ++i) {
    targets.push_back({.type = (*table)[i].type,
                       .sectors = (*table)[i].sectors,
                       .table = (*table)[i].text,
                       .status = (*status)[i].text});
  }
  return targets;
}

// Spec: thin-provisioning.rst, "Status": transaction, metadata blocks, data blocks, held root,
// mode, discards, what happens when it is full, ...; "Constructor": metadata, data, sectors per
// block.
std::optional<ThinPool> ParseThinPool(const DmTarget& target) {
  const std::vector<std::string> status = Words(target.status);
  const std::vector<std::string> table = Words(target.table);
  if (status.size() < 7 || table.size() < 3) return std::nullopt;
  const auto metadata = ParseFraction(status[1]);
  const auto data = ParseFraction(status[2]);
  const auto block = ParseNumber<uint64_t>(table[2]);
  if (!metadata || !data || !block) return std::nullopt;
  return ThinPool{
      .used_bytes = data->part * *block * kSector,
      .total_bytes = data->whole * *block * kSector,
      .used_metadata = static_cast<double>(metadata->part) / static_cast<double>(metadata->whole),
      .fails_when_full = std::ranges::find(status, "error_if_no_space") != status.end(),
      .is_writable = status[4] == "rw"};
}

std::optional<uint64_t> UnmappedBytes(const DmTarget& thin) {
  const std::vector<std::string> status = Words(thin.status);
  const auto mapped = status.empty() ? std::nullopt : ParseNumber<uint64_t>(status[0]);
  if (!mapped || *mapped > thin.sectors) return std::nullopt;
  return (thin.sectors - *mapped) * kSector;
}

}  // namespace ringside
