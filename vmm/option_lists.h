// Options whose value is a list: CPUs, CPUs by vCPU, paths, words, I/O threads with their queues.
//
// Read... takes what a user has written, text or JSON, and returns the canonical form, or nothing
// if it is not such a list. ...Text writes that for a command line. The forms: vmm/option_type.h.
#pragma once

#include <optional>
#include <string>

#include "vmm/option_type.h"

namespace ringside {

std::optional<Json> ReadCpus(const Json& given);
std::string NumbersText(const Json& numbers);
Json CpusSchema();

// Nodes stand in no list of options, so that commas are theirs.
std::optional<Json> ReadNodes(const Json& given);
std::string NodesText(const Json& nodes);

// It is not such a list if it names a vCPU that no machine has, or one twice.
std::optional<Json> ReadAffinity(const Json& given);
std::string AffinityText(const Json& by_vcpu);
Json AffinitySchema();

inline constexpr size_t kMostPaths = 16;
std::optional<Json> ReadPaths(const Json& given);
std::string PathsText(const Json& paths);
Json PathsSchema();

inline constexpr size_t kMostWords = 1024;
std::optional<Json> ReadWords(const Json& given);
std::string WordsText(const Json& words);
Json WordsSchema();

std::optional<Json> ReadIoThreads(const Json& given);
// Names alone where no thread has queues of its own.
Json PrintIoThreads(const Json& shares);
std::string IoThreadsText(const Json& shares);
Json IoThreadsSchema();

}  // namespace ringside
