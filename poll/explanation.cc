#include "poll/explanation.h"

namespace ringside {

const char* WaitReasonName(WaitReason reason) {
  constexpr std::array<const char*, kWaitReasons> kNames = {"policy", "guard", "preempted",
                                                            "ceiling", "learning"};
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace ringside
