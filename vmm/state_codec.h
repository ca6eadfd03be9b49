// A machine's states as bytes, for sections of a state file (snapshot/state_file.h). Versions are
// those that the encoders write; decoders take them, and older ones once there are any.
//
// A state that is decoded has the right shape and nothing more: whoever restores it checks what it
// says, as it may come from anywhere.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/vcpu_state.h"
#include "kvm/vm_state.h"
#include "vmm/devices_state.h"
#include "vmm/host_state.h"

namespace ringside {

inline constexpr uint32_t kVcpuStateVersion = 1;
inline constexpr uint32_t kVmStateVersion = 1;
inline constexpr uint32_t kDevicesStateVersion = 1;
inline constexpr uint32_t kHostStateVersion = 1;

std::vector<uint8_t> Encode(const VcpuState& state);
std::vector<uint8_t> Encode(const VmState& state);
std::vector<uint8_t> Encode(const DevicesState& state);
std::vector<uint8_t> Encode(const HostState& state);

// InvalidArgument: it is too short, too long, or of another version.
absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, VcpuState& state);
absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, VmState& state);
absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, DevicesState& state);
absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, HostState& state);

}  // namespace ringside
