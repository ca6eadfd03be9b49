#include "ringside/machine_template.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "vmm/machine_state.h"

namespace ringside {

MachineTemplate::MachineTemplate(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}

MachineTemplate::~MachineTemplate() = default;

absl::StatusOr<std::shared_ptr<const MachineTemplate>> MachineTemplate::Load(
    const std::string& directory) {
  return Parts::Of(OpenSnapshot(directory), directory);
}

absl::StatusOr<std::shared_ptr<const MachineTemplate>> MachineTemplate::Parts::Of(
    absl::StatusOr<Snapshot> snapshot, const std::string& directory) {
  auto parts = std::make_unique<Parts>();
  RINGSIDE_ASSIGN_OR_RETURN(parts->snapshot, std::move(snapshot));
  parts->name = absl::StrFormat("the snapshot in '%s'", directory);
  return std::make_shared<const MachineTemplate>(std::move(parts));
}

uint32_t MachineTemplate::cpus() const {
  return static_cast<uint32_t>(parts_->snapshot.state.vcpus.size());
}

uint64_t MachineTemplate::memory() const {
  return parts_->snapshot.state.memory.size;
}

}  // namespace ringside
