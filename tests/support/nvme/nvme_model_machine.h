// The thread of an NvmeModel, and the lock that it shares with everybody else.
//
// Threads: any. It keeps the lock while it runs and lets go of it when anybody wants it, so that
// a look at the doorbells costs no atomic operation.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/sync.h"
#include "tests/support/nvme/nvme_model_controller.h"

namespace ringside::testing {

class NvmeModelMachine {
 public:
  explicit NvmeModelMachine(const NvmeModelConfig& config);
  ~NvmeModelMachine();

  // False if it was so already.
  bool SetAttached(bool attached) { return is_attached_.exchange(attached) != attached; }

  // The controller for as long as this lives.
  class Locked {
   public:
    explicit Locked(NvmeModelMachine& machine) : machine_(machine) { machine.Acquire(); }
    ~Locked() { machine_.mutex_.unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    NvmeModelController* operator->() const { return &machine_.controller_; }

   private:
    NvmeModelMachine& machine_;
  };

 private:
  void Acquire();
  void Loop();
  // Without the lock.
  void Rest(uint32_t idle_turns);

  std::mutex mutex_;
  NvmeModelController controller_;
  const bool busy_;
  std::atomic<uint32_t> waiting_{0};  // for the lock, but for the thread
  std::atomic<bool> is_attached_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ringside::testing
