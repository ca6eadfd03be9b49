// What is slow or unsafe about a disk that is a file: its file system, and how its space is had.
//
// Threads: any; these are functions of facts alone.
#pragma once

#include <string>

#include "advice/disk_facts.h"
#include "advice/finding.h"

namespace ringside {

// Of a disk with facts.file.
Findings FileAdvice(const DiskFacts& facts);

// As one word of a shell's command line.
std::string Quoted(const std::string& text);

}  // namespace ringside
