#include "command/signal_file.h"

#include "absl/strings/str_format.h"

namespace ringside {

void WriteSignals(const std::vector<QueueSignals>& queues, std::ostream& file) {
  file << kSignalFile.beginning << "# queue,ns,event,index\n";
  for (const QueueSignals& queue : queues) {
    for (const SignalRecord& record : queue.records) {
      file << absl::StrFormat("%s.%d,%d,%s,%d\n", queue.device, queue.queue, record.ns,
                              SignalStepName(record.step), record.index);
    }
  }
}

}  // namespace ringside
