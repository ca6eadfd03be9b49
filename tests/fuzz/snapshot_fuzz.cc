// States and working sets of saved machines by anybody, whose checksums are right: what is taken is
// what would be written again, and what is not is told in one line.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/status.h"
#include "snapshot/state_file.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// Sections of the input: which, its version, its length in 16 bytes, and its bytes.
std::vector<uint8_t> FileOf(std::span<const uint8_t> input) {
  constexpr std::array kTags = {StateTag("MACH"), StateTag("VM  "), StateTag("VCPU"),
                                StateTag("DEVS"), StateTag("NONE"), StateTag("WSOF"),
                                StateTag("WSWR"), StateTag("WSRD"), StateTag("DIFF")};
  StateFileWriter file;
  while (input.size() >= 3) {
    const size_t size = std::min<size_t>(size_t{16} * input[2], input.size() - 3);
    file.Add(kTags[input[0] % kTags.size()], input[1] % 4, input.subspan(3, size));
    input = input.subspan(3 + size);
  }
  return std::move(file).Finish();
}

// Of memory with an identity of zeroes, which an input can have.
void CheckWorkingSet(std::span<const uint8_t> bytes) {
  constexpr MemoryImage kMemory = {.size = uint64_t{1} << 30};
  const absl::StatusOr<WorkingSet> set = DecodeWorkingSet(bytes, kMemory);
  if (!set.ok()) {
    Require(Message(set.status()).find('\n') == std::string_view::npos);
    return;
  }
  Require(PagesOf(set->written) <= kMemory.size / 4096);
  Require(std::ranges::equal(EncodeWorkingSet(*set, kMemory.identity), bytes));
}

void Check(std::span<const uint8_t> bytes) {
  CheckWorkingSet(bytes);
  const absl::StatusOr<SavedMachine> state = DecodeMachine(bytes);
  if (!state.ok()) {
    Require(Message(state.status()).find('\n') == std::string_view::npos);
    return;
  }
  const std::vector<uint8_t> again = EncodeMachine(*state);
  Require(DecodeMachine(again).ok());
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  const std::span<const uint8_t> input(data, size);
  Check(input);
  Check(FileOf(input));
  return 0;
}
