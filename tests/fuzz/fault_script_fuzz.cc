// Fault scripts of anybody: what is taken is within its bounds, and what is not is told in one
// line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/status.h"
#include "faults/fault_script.h"

namespace ringside {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckRule(const FaultRule& rule) {
  constexpr int64_t kHourNs = 3'600'000'000'000;
  Require(rule.operations != 0 && rule.operations < 32);
  Require(rule.first_byte < rule.end_byte);
  Require(rule.bytes % 512 == 0 && rule.count > 0);
  Require(rule.delay_ns >= 0 && rule.delay_ns <= kHourNs);
  Require(rule.after_ns >= 0 && rule.after_ns <= kHourNs);
  Require(rule.probability > 0 && rule.probability <= 1);
  Require((rule.action == FaultAction::kError) == (rule.error > 0));
  Require((rule.action == FaultAction::kReorder) == (rule.reorder >= 2));
  Require(rule.reorder <= kMostReordered);
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<FaultScript> script = ParseFaultScript(text, "fuzz");
  if (!script.ok()) {
    Require(Message(script.status()).find('\n') == std::string_view::npos);
    return 0;
  }
  Require(!script->rules.empty() && script->rules.size() <= kMostFaultRules);
  for (const FaultRule& rule : script->rules) CheckRule(rule);
  return 0;
}
