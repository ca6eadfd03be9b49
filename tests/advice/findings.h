// What tests say of findings.
#pragma once

#include <gmock/gmock.h>
#include <string>

#include "advice/finding.h"

namespace ringside {

inline void PrintTo(const Finding& finding, std::ostream* out) {
  *out << VerdictName(finding.verdict) << " " << finding.check << ": " << finding.text << " ["
       << finding.command << "]";
}

MATCHER_P2(Finds, verdict, check, "") {
  return arg.verdict == verdict && arg.check == std::string(check);
}
MATCHER_P3(FindsText, verdict, check, text, "") {
  return arg.verdict == verdict && arg.check == std::string(check) &&
         arg.text.find(text) != std::string::npos;
}
MATCHER_P3(FindsCommand, verdict, check, command, "") {
  return arg.verdict == verdict && arg.check == std::string(check) && arg.command == command;
}
MATCHER_P(IsAbout, check, "") {
  return arg.check == std::string(check);
}

}  // namespace ringside
