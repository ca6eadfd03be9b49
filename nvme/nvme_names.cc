#include "nvme/nvme_names.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"

namespace ringside::nvme {
namespace {

struct Name {
  uint16_t code;
  const char* text;
};

// SCT and SC: generic, of the command, media and data integrity, path.
constexpr Name kStatuses[] = {
    {0x000, "Successful Completion"},
    {0x001, "Invalid Command Opcode"},
    {0x002, "Invalid Field in Command"},
    {0x003, "Command ID Conflict"},
    {0x004, "Data Transfer Error"},
    {0x005, "Commands Aborted due to Power Loss Notification"},
    {0x006, "Internal Error"},
    {0x007, "Command Abort Requested"},
    {0x008, "Command Aborted due to SQ Deletion"},
    {0x009, "Command Aborted due to Failed Fused Command"},
    {0x00a, "Command Aborted due to Missing Fused Command"},
    {0x00b, "Invalid Namespace or Format"},
    {0x00c, "Command Sequence Error"},
    {0x00d, "Invalid SGL Segment Descriptor"},
    {0x00e, "Invalid Number of SGL Descriptors"},
    {0x00f, "Data SGL Length Invalid"},
    {0x012, "Invalid Use of Controller Memory Buffer"},
    {0x013, "PRP Offset Invalid"},
    {0x014, "Atomic Write Unit Exceeded"},
    {0x015, "Operation Denied"},
    {0x01c, "Command Aborted due to Preempt and Abort"},
    {0x01d, "Sanitize Failed"},
    {0x01e, "Sanitize In Progress"},
    {0x020, "Namespace is Write Protected"},
    {0x021, "Command Interrupted"},
    {0x022, "Transient Transport Error"},
    {0x024, "Admin Command Media Not Ready"},
    {0x080, "LBA Out of Range"},
    {0x081, "Capacity Exceeded"},
    {0x082, "Namespace Not Ready"},
    {0x083, "Reservation Conflict"},
    {0x084, "Format In Progress"},
    {0x100, "Completion Queue Invalid"},
    {0x101, "Invalid Queue Identifier"},
    {0x102, "Invalid Queue Size"},
    {0x103, "Abort Command Limit Exceeded"},
    {0x105, "Asynchronous Event Request Limit Exceeded"},
    {0x108, "Invalid Interrupt Vector"},
    {0x109, "Invalid Log Page"},
    {0x10a, "Invalid Format"},
    {0x10c, "Invalid Queue Deletion"},
    {0x10d, "Feature Identifier Not Saveable"},
    {0x10e, "Feature Not Changeable"},
    {0x10f, "Feature Not Namespace Specific"},
    {0x11a, "Namespace Not Attached"},
    {0x180, "Conflicting Attributes"},
    {0x181, "Invalid Protection Information"},
    {0x182, "Attempted Write to Read Only Range"},
    {0x183, "Command Size Limit Exceeded"},
    {0x280, "Write Fault"},
    {0x281, "Unrecovered Read Error"},
    {0x282, "End-to-end Guard Check Error"},
    {0x283, "End-to-end Application Tag Check Error"},
    {0x284, "End-to-end Reference Tag Check Error"},
    {0x285, "Compare Failure"},
    {0x286, "Access Denied"},
    {0x287, "Deallocated or Unwritten Logical Block"},
    {0x288, "End-to-End Storage Tag Check Error"},
    {0x300, "Internal Path Error"},
    {0x301, "Asymmetric Access Persistent Loss"},
    {0x302, "Asymmetric Access Inaccessible"},
    {0x303, "Asymmetric Access Transition"},
    {0x360, "Controller Pathing Error"},
    {0x370, "Host Pathing Error"},
    {0x371, "Command Aborted By Host"},
};

constexpr Name kAdminCommands[] = {
    {0x00, "Delete I/O Submission Queue"},
    {0x01, "Create I/O Submission Queue"},
    {0x02, "Get Log Page"},
    {0x04, "Delete I/O Completion Queue"},
    {0x05, "Create I/O Completion Queue"},
    {0x06, "Identify"},
    {0x08, "Abort"},
    {0x09, "Set Features"},
    {0x0a, "Get Features"},
    {0x0c, "Asynchronous Event Request"},
    {0x7c, "Doorbell Buffer Config"},
};

constexpr const char* kTypes[] = {"Generic", "Command Specific", "Media and Data Integrity",
                                  "Path Related"};

template <size_t kCount>
const char* Find(const Name (&names)[kCount], uint16_t code) {
  const auto* const found = std::ranges::find(names, code, &Name::code);
  return found == std::end(names) ? nullptr : found->text;
}

}  // namespace

std::string StatusText(Status status) {
  const unsigned type = (status >> 8) & 7, code = status & 0xff;
  std::string text;
  if (const char* const name = Find(kStatuses, status & kStatusCode); name != nullptr) {
    text = name;
  } else {
    text = absl::StrFormat("%s status", type < std::size(kTypes) ? kTypes[type]
                                        : type == 7              ? "Vendor Specific"
                                                                 : "Reserved");
  }
  const char* const retry = (status & kDoNotRetry) != 0 ? ", DNR" : "";
  return absl::StrFormat("%s (SCT %xh, SC %02xh%s)", text, type, code, retry);
}

std::string AdminText(uint8_t opcode) {
  const char* const name = Find(kAdminCommands, opcode);
  return name != nullptr ? name : absl::StrFormat("admin command %02xh", opcode);
}

std::string IoText(uint8_t opcode, uint32_t nsid, uint64_t first_block, uint32_t blocks) {
  const char* name = nullptr;
  switch (static_cast<IoOp>(opcode)) {
    case IoOp::kFlush:
      return absl::StrFormat("Flush of namespace %u", nsid);
    case IoOp::kDatasetManagement:
      return absl::StrFormat("Dataset Management of namespace %u", nsid);
    case IoOp::kRead:
      name = "Read";
      break;
    case IoOp::kWrite:
      name = "Write";
      break;
    case IoOp::kWriteZeroes:
      name = "Write Zeroes";
      break;
  }
  if (name == nullptr) return absl::StrFormat("command %02xh of namespace %u", opcode, nsid);
  return absl::StrFormat("%s of blocks %u to %u of namespace %u", name, first_block,
                         first_block + blocks - 1, nsid);
}

}  // namespace ringside::nvme
