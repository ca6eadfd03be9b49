// What a fault script says (docs/faults.md): which requests of a disk meet which fault.
//
//   seed=42
//   write error=EIO offset=1M-2M probability=0.01
//   flush hang after=10
//
// Threads: none of its own. Units: bytes, nanoseconds.
// Errors: InvalidArgument in one line, with the script's name and the number of the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "block/block_device.h"

namespace ringside {

enum class FaultAction : uint8_t {
  kError,    // nothing is done, and the request fails
  kShort,    // a first part is transferred, then it fails
  kTorn,     // each sector is written or not, then it fails
  kDelay,    // it is passed on later
  kHang,     // it is never answered
  kReorder,  // it waits for others, which are passed on in another order
  kCut,      // the power fails
};

struct FaultRule {
  FaultAction action = FaultAction::kError;
  uint8_t operations = 0;   // a bit for each BlockOp that it is about
  int error = 0;            // of kError: a positive errno
  uint64_t bytes = 0;       // of kShort: what is transferred at most, a multiple of 512
  int64_t delay_ns = 0;     // of kDelay
  uint32_t reorder = 0;     // of kReorder: how many requests wait for each other
  uint64_t first_byte = 0;  // requests that touch [first_byte, end_byte)
  uint64_t end_byte = UINT64_MAX;
  uint64_t after = 0;           // the first so many that match are spared
  uint64_t count = UINT64_MAX;  // after so many it is over
  int64_t after_ns = 0;         // since the disk was opened
  double probability = 1;

  bool IsAbout(BlockOp op) const { return (operations >> static_cast<unsigned>(op) & 1) != 0; }
  bool has_range() const { return first_byte != 0 || end_byte != UINT64_MAX; }
};

struct FaultScript {
  uint64_t seed = 1;
  std::vector<FaultRule> rules;  // the first that applies counts
};

inline constexpr size_t kMostFaultScriptBytes = size_t{64} << 10;
inline constexpr size_t kMostFaultRules = 256;
inline constexpr uint32_t kMostReordered = 256;

// `name`: the script's, for messages.
absl::StatusOr<FaultScript> ParseFaultScript(std::string_view text, const std::string& name);
// From a regular file.
absl::StatusOr<FaultScript> ReadFaultScript(const std::string& path);

}  // namespace ringside
