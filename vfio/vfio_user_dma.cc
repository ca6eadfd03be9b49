#include "vfio/vfio_user_dma.h"

#include <cerrno>
#include <fcntl.h>

#include "base/status.h"

namespace ringside {

absl::Status VfioUserDma::Check(const DmaMapping& mapping,
                                const VfioUserCapabilities& capabilities) const {
  const uint64_t page = capabilities.page_sizes & ~(capabilities.page_sizes - 1);  // the smallest
  if ((mapping.iova | mapping.size | mapping.fd_offset) % page != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "vfio-user device '%s' takes memory in pages of %d bytes only", device_, page));
  }
  return absl::OkStatus();
}

absl::Status VfioUserDma::Map(const DmaMapping& mapping, VfioUserSession* session) {
  if (mapping.fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("vfio-user device '%s' can reach no memory without a descriptor; give it "
                        "memory that is a memfd",
                        device_));
  }
  Mapping kept = {.memory = mapping, .fd = UniqueFd(fcntl(mapping.fd, F_DUPFD_CLOEXEC, 0))};
  if (!kept.fd.valid()) return ErrnoError(errno, "cannot keep a descriptor of memory");
  kept.memory.fd = kept.fd.get();
  {
    const MutexLock lock(mutex_);
    if (session != nullptr && mappings_.size() >= session->capabilities().max_dma_maps) {
      return absl::FailedPreconditionError(
          absl::StrFormat("vfio-user device '%s' takes no more than %d pieces of memory", device_,
                          mappings_.size()));
    }
    // Before the server may ask for it.
    if (!mappings_.try_emplace(mapping.iova, std::move(kept)).second) {
      return absl::InternalError(
          absl::StrFormat("memory is mapped already at %#x of '%s'", mapping.iova, device_));
    }
  }
  if (session == nullptr) return absl::OkStatus();
  absl::Status status = Check(mapping, session->capabilities());
  if (status.ok()) status = session->MapDma(mapping);
  if (!status.ok()) {
    const MutexLock lock(mutex_);
    mappings_.erase(mapping.iova);
  }
  return status;
}

absl::Status VfioUserDma::Unmap(uint64_t iova, uint64_t size, VfioUserSession* session) {
  absl::Status status = absl::OkStatus();
  if (session != nullptr) status = session->UnmapDma(iova, size);
  const MutexLock lock(mutex_);
  mappings_.erase(iova);
  return status;
}

absl::Status VfioUserDma::MapAll(VfioUserSession& session) {
  std::vector<DmaMapping> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [iova, mapping] : mappings_) all.push_back(mapping.memory);
  }
  for (const DmaMapping& mapping : all) {
    RINGSIDE_RETURN_IF_ERROR(Check(mapping, session.capabilities()));
    RINGSIDE_RETURN_IF_ERROR(session.MapDma(mapping));
  }
  return absl::OkStatus();
}

std::span<std::byte> VfioUserDma::Find(uint64_t address, uint64_t count) {
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return {};
  const DmaMapping& mapping = std::prev(after)->second.memory;
  const uint64_t offset = address - mapping.iova;
  if (offset > mapping.size || count > mapping.size - offset) return {};
  return {mapping.host + offset, count};
}

absl::StatusOr<VfioUserPayload> VfioUserDma::Serve(const VfioUserMessage& command) {
  const auto type = static_cast<VfioUserCommand>(command.header.command);
  const bool is_write = type == VfioUserCommand::kDmaWrite;
  if (!is_write && type != VfioUserCommand::kDmaRead) {
    return absl::UnimplementedError("it is not for a client");
  }
  const auto access = HeadOf<VfioUserDmaAccess>(command.payload);
  const uint64_t data_bytes = access ? command.payload.size() - sizeof *access : 0;
  if (!access || access->count > kVfioUserMaxTransfer ||
      data_bytes != (is_write ? access->count : 0)) {
    return absl::InvalidArgumentError("its size is wrong");
  }
  VfioUserPayload answer;
  AppendTo(answer, *access);
  const MutexLock lock(mutex_);
  const std::span<std::byte> memory = Find(access->address, access->count);
  if (memory.empty()) return absl::InvalidArgumentError("it is not mapped");
  if (is_write) {
    std::memcpy(memory.data(), command.payload.data() + sizeof *access, memory.size());
  } else {
    answer.insert(answer.end(), memory.begin(), memory.end());
  }
  return answer;
}

}  // namespace ringside
