#include "advice/finding.h"

namespace ringside {

const char* VerdictName(Verdict verdict) {
  constexpr const char* kNames[] = {"good", "note", "slow", "unsafe", "unusable", "unknown"};
  return kNames[static_cast<int>(verdict)];
}

}  // namespace ringside
