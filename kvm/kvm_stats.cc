#include "kvm/kvm_stats.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <unistd.h>

#include "base/status.h"
#include "kvm/kvm_api.h"

namespace ringside {
namespace {

// As KVM names them.
constexpr std::array kNames = {
    "exits",         "io_exits",       "mmio_exits",  "halt_exits",          "irq_exits",
    "signal_exits",  "irq_injections", "halt_wakeup", "halt_attempted_poll", "halt_successful_poll",
    "insn_emulation"};

// Far more than any kernel has.
constexpr uint32_t kMaxDescriptors = 4096;
constexpr uint32_t kMaxNameSize = 256;

absl::Status ReadAt(const UniqueFd& fd, int64_t offset, void* data, size_t size) {
  const ssize_t got = pread(fd.get(), data, size, offset);
  if (got < 0) return ErrnoError(errno, "reading KVM's statistics failed");
  if (static_cast<size_t>(got) != size) return absl::InternalError("KVM's statistics end early");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KvmStats> KvmStats::Open(UniqueFd fd) {
  KvmStats stats(std::move(fd));
  kvm_stats_header header;
  RINGSIDE_RETURN_IF_ERROR(ReadAt(stats.fd_, 0, &header, sizeof header));
  if (header.name_size > kMaxNameSize || header.num_desc > kMaxDescriptors) {
    return absl::InternalError("KVM's statistics have a layout that is not known");
  }
  // A descriptor has its name, with a zero at the end, right behind it.
  const size_t stride = sizeof(kvm_stats_desc) + header.name_size;
  std::vector<char> all(stride * header.num_desc);
  RINGSIDE_RETURN_IF_ERROR(ReadAt(stats.fd_, header.desc_offset, all.data(), all.size()));
  for (size_t at = 0; at < all.size(); at += stride) {
    kvm_stats_desc descriptor;
    std::memcpy(&descriptor, &all[at], sizeof descriptor);
    const char* text = &all[at + sizeof descriptor];
    const std::string_view name(text, strnlen(text, header.name_size));
    const auto known = std::ranges::find(kNames, name);
    if (known == kNames.end()) continue;
    stats.places_.push_back({*known, int64_t{header.data_offset} + descriptor.offset});
  }
  return stats;
}

std::vector<KernelCount> KvmStats::Read() const {
  std::vector<KernelCount> counts;
  for (const Place& place : places_) {
    uint64_t value;
    if (ReadAt(fd_, place.offset, &value, sizeof value).ok()) counts.push_back({place.name, value});
  }
  return counts;
}

}  // namespace ringside
