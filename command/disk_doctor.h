// `ringside doctor --disk`: what advice/ says of a disk, for people and for programs.
#pragma once

#include <string>

#include "advice/finding.h"

namespace ringside {

// Whether a machine can have the disk and no finding is unsafe.
bool IsSound(const Findings& findings);

// A line for each finding, a line with the command that mends it, and a last line with the sum.
std::string DiskFindingsText(const std::string& path, const Findings& findings);
// {"disk", "sound", "findings": [{"check", "verdict", "text", "command"}]}: the names are kept.
std::string DiskFindingsJson(const std::string& path, const Findings& findings);

}  // namespace ringside
