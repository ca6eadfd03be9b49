// A queue whose chains are answered at once. Once a turn has moved kTurnBytes, or kSharedTurnBytes,
// the rest is for the next, so that a greedy guest cannot hog the thread.
//
// Threads and ownership: as QueueWorker.
#pragma once

#include "devices/queue_worker.h"

namespace ringside {

class AnsweringQueue : public QueueWorker {
 public:
  using QueueWorker::QueueWorker;
  void Run() final;

 protected:
  static constexpr uint64_t kTurnBytes = 64 << 10;
  static constexpr uint64_t kSharedTurnBytes = 8 << 10;  // of a thread that serves many machines

  // Returns how many bytes it wrote to the chain's buffers. Break()s the queue where the chain
  // breaks the rules of the device.
  virtual uint32_t Serve(ChainBuffers& buffers) = 0;

 private:
  template <typename Observer>
  void ServeAll(Observer observer);

  ChainBuffers buffers_;  // of the chain at hand
};

}  // namespace ringside
