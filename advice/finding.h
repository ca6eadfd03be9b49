// What is to be said of a disk's set-up.
#pragma once

#include <string>
#include <vector>

namespace ringside {

enum class Verdict {
  kGood,
  kNote,      // neither good nor bad: it depends on what the disk is for
  kSlow,      // works, but another way is faster
  kUnsafe,    // data may be lost
  kUnusable,  // a machine cannot have the disk as it is
  kUnknown,   // cannot be known here
};

// "good", "note" and so on.
const char* VerdictName(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::kNote;
  std::string check;    // "scheduler"; programs know findings by it
  std::string text;     // a line in plain words
  std::string command;  // of a shell, that mends it; empty: there is none
};

using Findings = std::vector<Finding>;

}  // namespace ringside
