// Files, directories and symbolic links as the messages of a tree (docs/agent.md), on either side:
// the agent's for GET, the client's for PUT. A piece at a time, so that its caller sends no more
// than is taken.
//
// Threads: one. It waits for the disk.
#pragma once

#include <cstdint>
#include <dirent.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/agent_fault.h"
#include "base/unique_fd.h"

namespace ringside {

class TreeReader {
 public:
  // A symbolic link at `path` itself is followed; those below are sent as links. A directory is
  // refused without `with_directories`.
  void Open(std::string_view path, bool with_directories);
  // The bytes of this descriptor, which it takes, as a file without a name.
  void OpenStream(UniqueFd fd, uint32_t mode);
  // Appends the next message, TREE_END at last. Not after a fault.
  AgentFault Step(std::string& out);
  bool is_complete() const { return is_complete_; }
  // Of the file that is being read: as it was when it was opened, and so far.
  uint64_t file_size() const { return file_size_; }
  uint64_t file_read() const { return file_read_; }

 private:
  struct CloseDirectory {
    void operator()(DIR* directory) const { closedir(directory); }
  };
  using DirectoryStream = std::unique_ptr<DIR, CloseDirectory>;

  AgentFault Begin(int place, const std::string& name, int flags, std::string& out);
  AgentFault BeginFile(UniqueFd fd, const std::string& name, std::string& out);
  AgentFault BeginDirectory(UniqueFd fd, const std::string& name, std::string& out);
  AgentFault BeginLink(int place, const std::string& name, std::string& out);
  AgentFault StepFile(std::string& out);
  AgentFault StepDirectory(std::string& out);

  std::string path_;
  std::string top_name_;
  std::string file_name_ = "standard input";  // in messages, of the file that is being read
  std::vector<DirectoryStream> entered_;
  UniqueFd file_;
  uint64_t file_size_ = 0, file_read_ = 0;
  uint32_t stream_mode_ = 0;
  bool is_stream_ = false;
  bool with_directories_ = false;
  bool has_begun_ = false;
  bool is_complete_ = false;
};

}  // namespace ringside
