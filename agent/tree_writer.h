// Files, directories and symbolic links from the messages of a tree (docs/agent.md), on either
// side: the agent's for PUT, the client's for GET. The sender is not trusted: nothing outside of
// the place that Open was given is made or changed, whatever it sends and in whatever order. For
// that each name is one component, and no symbolic link below that place is followed. Nor is the
// tree itself one: whoever names the same place again would follow it.
//
// A file gets its name when all of it is there; until then it has another one beside, and what is
// cut off leaves nothing. Permissions are as sent, without set-user-ID and the like; a directory
// that was there already keeps its own. A file may be longer than its sender said: who sends it
// reads to its end, be it a log that grows or a file of /proc, which says that it is empty.
//
// Threads: one. It waits for the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/agent_fault.h"
#include "agent/agent_message.h"
#include "base/unique_fd.h"

namespace ringside {

class TreeWriter {
 public:
  TreeWriter() = default;
  TreeWriter(TreeWriter&&) = default;
  TreeWriter& operator=(TreeWriter&&) = delete;
  ~TreeWriter();

  // `path` is the tree's own name; if it is a directory, the tree is put into that under the name
  // that its sender gives it.
  AgentFault Open(std::string_view path);
  // The same for the tree at `source`, which was asked for: in a directory it gets the name that it
  // has there, whatever its sender says, and it is a file unless there may be directories. Of files
  // it takes so many bytes; each entry of a directory counts as 4 KiB, too.
  AgentFault OpenToGet(std::string_view path, std::string_view source, bool with_directories,
                       uint64_t most_bytes = UINT64_MAX);
  // ENTRY, DATA, FILE_END, LEAVE, TREE_END. After a fault there is nothing more to be given.
  AgentFault Take(const AgentFrame& frame);
  bool is_complete() const { return is_complete_; }

 private:
  struct Directory {
    UniqueFd fd;
    uint32_t mode;  // that it gets when it is left
    bool is_new;    // else it keeps its own
    std::string name;
  };

  AgentFault TakeEntry(const EntryMessage& entry);
  AgentFault TakeData(std::string_view data);
  AgentFault EndFile();
  AgentFault Leave();
  AgentFault CheckIsReplaced(std::string_view name) const;
  AgentFault BeginFile(const EntryMessage& entry);
  AgentFault EnterDirectory(const EntryMessage& entry);
  AgentFault MakeLink(const EntryMessage& entry);
  AgentFault Count(uint64_t bytes);
  int place() const { return entered_.empty() ? top_.get() : entered_.back().fd.get(); }

  UniqueFd top_;          // where the tree is put
  std::string top_name_;  // that it has there; empty: its sender says
  std::vector<Directory> entered_;
  UniqueFd file_;
  std::string file_name_, temporary_name_;
  uint32_t file_mode_ = 0;
  uint64_t most_bytes_ = UINT64_MAX;
  uint64_t room_ = UINT64_MAX;  // of those, that are left
  bool with_directories_ = true;
  bool has_begun_ = false;
  bool is_complete_ = false;
};

}  // namespace ringside
