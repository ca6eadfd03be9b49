// What every error of bad input has in common.
#pragma once

#include <gmock/gmock.h>
#include <string>

#include "base/status.h"

namespace ringside {

// InvalidArgument, in one line, holding both texts: the thing at fault and what is wrong with it.
MATCHER_P2(IsBadInput, subject, fault, "") {
  const std::string message(Message(arg));
  *result_listener << "which is " << arg.ToString();
  return absl::IsInvalidArgument(arg) && message.find('\n') == std::string::npos &&
         message.find(subject) != std::string::npos && message.find(fault) != std::string::npos;
}

}  // namespace ringside
