// The commands that an NvmeModel has fetched: when each is executed, and what the faults make of
// it.
//
// Threads: under the model's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tests/support/nvme/nvme_model_admin.h"

namespace ringside::testing {

class NvmeModelWork {
 public:
  NvmeModelWork(const NvmeModelConfig& config, NvmeModelQueues& queues, NvmeModelAdmin& admin,
                NvmeModelIo& io, NvmeModelRecord& record);

  std::vector<NvmeModelFault>& faults() { return faults_; }
  void SetAbort(NvmeModelAbort abort) { abort_ = abort; }

  // Forgets all commands.
  void Reset() { pending_.clear(); }
  // Fetches what there is and executes what is due. Whether there was anything.
  bool Run();
  // Whether commands wait for a time.
  bool has_timed() const;

  size_t held() const;
  void Release();
  // What a fault has asked for, since the last call: kFatal, kGone.
  std::optional<NvmeModelFault::Kind> TakeEnd() { return std::exchange(end_, std::nullopt); }

 private:
  enum class State : uint8_t { kTimed, kHeld, kHung, kLost };
  struct Pending {
    nvme::Command command;
    uint16_t queue;
    State state;
    int64_t due_ns;
    std::optional<NvmeModelFault> fault;
  };

  bool Fetch();
  void Take(NvmeModelSubmissionQueue& queue, const nvme::Command& command);
  // The fault that is to hit this command.
  std::optional<NvmeModelFault> Match(uint16_t queue, uint8_t opcode);
  void Keep(const nvme::Command& command, uint16_t queue,
            const std::optional<NvmeModelFault>& fault);
  bool RunDue();
  // It may have to stay, as a lost one.
  void Execute(const Pending& pending);
  NvmeModelOutcome ExecuteAny(const nvme::Command& command, uint16_t queue);
  NvmeModelOutcome Abort(const nvme::Command& command);
  void AbortAll(uint16_t queue);
  void Complete(const nvme::Command& command, uint16_t queue, const NvmeModelOutcome& outcome,
                const std::optional<NvmeModelFault>& fault);
  void Log(const nvme::Command& command, uint16_t queue, nvme::Status status);
  Pending TakeOut(size_t i);

  const NvmeModelConfig& config_;
  NvmeModelQueues& queues_;
  NvmeModelAdmin& admin_;
  NvmeModelIo& io_;
  NvmeModelRecord& record_;
  NvmeModelAbort abort_ = NvmeModelAbort::kAborts;
  std::vector<NvmeModelFault> faults_;
  std::vector<Pending> pending_;  // oldest first
  std::mt19937_64 random_;
  std::optional<NvmeModelFault::Kind> end_;
};

}  // namespace ringside::testing
