// A handler of page faults that speaks Firecracker's protocol, on a thread of its own: as good as
// it is told to be.
//
// Threads: all but the thread's own work is for the test's. Ownership: none of the machine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "tests/support/wait.h"

namespace ringside::testing {

class TestMemoryHandler {
 public:
  enum class Then { kSilence, kClose };
  struct Conduct {
    uint64_t pages = UINT64_MAX;  // it gives so many, reads of the next fault, and then:
    Then then = Then::kSilence;
    std::optional<char> fill = {};  // what it gives in place of the file's pages
    bool talks = false;             // it sends as much as the socket takes
    bool hangs_up = false;          // it closes its connection, and serves on
    // Has the socket listened at; by itself the test's process does.
    std::function<void(int fd)> listen = {};
  };

  // Listens when this returns. The file has to be there until it has been opened: the same.
  TestMemoryHandler(std::string socket, const std::string& file)
      : TestMemoryHandler(std::move(socket), file, Conduct()) {}
  TestMemoryHandler(std::string socket, const std::string& file, Conduct conduct);
  // As the end of its process.
  ~TestMemoryHandler() { Close(); }
  TestMemoryHandler(const TestMemoryHandler&) = delete;
  TestMemoryHandler& operator=(const TestMemoryHandler&) = delete;

  // Closes its connection and its userfaultfd at once, whatever it is asked for.
  void Close();
  // What it was sent; waits for that.
  const std::string& message() const;
  // Pages that it has given.
  uint64_t pages() const { return pages_.load(); }
  // It was asked for more pages than it gives.
  bool AwaitRefusal() const { return refused_.Wait(); }

 private:
  void Run();
  bool AwaitOn(int fd, short events) const;
  bool Accept();
  bool Receive();
  void Talk() const;
  // Whether it goes on.
  bool Answer();
  void Give(uint64_t address);

  const std::string socket_;
  const Conduct conduct_;
  UniqueFd file_;
  UniqueFd listener_;
  UniqueFd connection_;
  UniqueFd userfault_;
  std::string message_;
  BoundedEvent received_;
  BoundedEvent refused_;
  std::atomic<uint64_t> pages_{0};
  EventFd end_;
  std::thread thread_;
};

}  // namespace ringside::testing
