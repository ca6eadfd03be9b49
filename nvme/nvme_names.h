// NVMe commands and statuses as the specification names them, for messages.
//
// Threads: none. Spec: NVM Express Base Specification 2.0, sections 3.3.3.2.1 and 5; NVM Command
// Set Specification 1.0, section 3.
#pragma once

#include <cstdint>
#include <string>

#include "nvme/nvme_spec.h"

namespace ringside::nvme {

// "Unrecovered Read Error (SCT 2h, SC 81h, DNR)"; DNR where the controller says "do not retry".
std::string StatusText(Status status);
// "Identify"; a number where the command has no name here.
std::string AdminText(uint8_t opcode);
// "Read of blocks 0 to 7 of namespace 1". The range is that of a command for the NVM command set.
std::string IoText(uint8_t opcode, uint32_t nsid, uint64_t first_block, uint32_t blocks);

// The same of a command: ours, or the kernel's nvme_uring_cmd, which names its fields alike.
template <typename Command>
std::string IoText(const Command& command) {
  return IoText(command.opcode, command.nsid, uint64_t{command.cdw11} << 32 | command.cdw10,
                (command.cdw12 & 0xffff) + 1);
}

}  // namespace ringside::nvme
