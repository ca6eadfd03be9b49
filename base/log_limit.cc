#include "base/log_limit.h"

#include <algorithm>
#include <utility>

namespace ringside {

LogLimit::Grant LogLimit::Take(int64_t now_ns) {
  const MutexLock lock(mutex_);
  if (left_ == lines_) refilled_ns_ = now_ns;  // time counts from the first line on
  const int64_t refills = (now_ns - refilled_ns_) / kRefillNs;
  refilled_ns_ += refills * kRefillNs;
  left_ = static_cast<int>(std::min<int64_t>(lines_, left_ + refills));
  if (left_ == 0) {
    ++left_out_;
    return {};
  }
  --left_;
  return {.is_given = true, .is_last = left_ == 0, .left_out = std::exchange(left_out_, 0)};
}

std::string LogLimit::Remark(const Grant& grant) {
  std::string remark;
  if (grant.left_out > 0) {
    remark = absl::StrFormat(" (%d such lines before it were left out)", grant.left_out);
  }
  if (grant.is_last) remark += " (no more of these than one a minute from now on)";
  return remark;
}

}  // namespace ringside
