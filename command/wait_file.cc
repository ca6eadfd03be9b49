#include "command/wait_file.h"

#include "absl/strings/str_format.h"

namespace ringside {

void WriteWaits(const std::vector<IoThreadWaits>& threads, std::ostream& file) {
  file << kWaitFile.beginning << "# thread,start_ns,waiting,waited_ns,slept,ready\n";
  for (const IoThreadWaits& thread : threads) {
    for (const WaitOutcome& wait : thread.waits) {
      const char* waiting = wait.what == Waiting::kIdle ? "idle" : "in-flight";
      file << absl::StrFormat("%s,%d,%s,%d,%d,%x\n", thread.io_thread, wait.start_ns, waiting,
                              wait.waited_ns, wait.slept ? 1 : 0, wait.ready);
    }
  }
}

}  // namespace ringside
