// The controller of an NvmeModel as a whole: registers, life cycle, configuration space.
//
// Threads: under the model's lock, which NvmeModel and its handle take.
// Source: NVM Express Base Specification 2.0, sections 3.1.3, 3.5, 3.6 and 3.7.
#pragma once

#include <cstdint>

#include "tests/support/nvme/nvme_model_work.h"

namespace ringside::testing {

class NvmeModelController {
 public:
  explicit NvmeModelController(const NvmeModelConfig& config);

  // One look at everything; whether there was anything to do.
  bool Turn();
  // Whether it is to look again soon although there was nothing.
  bool IsWaitingForTime() const { return work_.has_timed(); }
  // Before the thread looks less often. False: look again.
  bool FallAsleep() { return queues_.FallAsleep(); }

  uint32_t ReadConfig(uint32_t offset, uint32_t size) const;
  void WriteConfig(uint32_t offset, uint32_t size, uint32_t value);
  uint32_t ReadRegister(uint64_t offset) const;
  void WriteRegister(uint64_t offset, uint32_t value);

  absl::Status ResetFunction();
  void Detached();
  void PowerCut(std::optional<uint64_t> seed);
  void Unplug();
  bool is_gone() const { return is_gone_; }
  void PlugIn();
  void AnnounceBlocks(uint32_t nsid, uint64_t blocks) {
    config_.namespaces.at(nsid - 1).blocks = blocks;
  }
  void BecomeLike(const NvmeModelConfig& other) {
    config_.mdts = other.mdts;
    config_.queue_entries = other.queue_entries;
    config_.doorbell_stride = other.doorbell_stride;
    config_.write_cache = other.write_cache;
    config_.deallocate = other.deallocate;
  }
  int gone_fd() const { return gone_ ? gone_->fd() : -1; }
  void SetFatal() { csts_ |= nvme::kCstsFatal; }
  void SetReady(NvmeModelReady ready);
  void FailFunctionReset(bool fail) { reset_fails_ = fail; }

  const NvmeModelConfig& config() const { return config_; }
  NvmeModelRecord& record() { return record_; }
  NvmeModelMemory& memory() { return memory_; }
  NvmeModelVectors& vectors() { return vectors_; }
  NvmeModelQueues& queues() { return queues_; }
  NvmeModelIo& io() { return io_; }
  NvmeModelAdmin& admin() { return admin_; }
  NvmeModelWork& work() { return work_; }

 private:
  bool is_enabled() const { return (cc_ & nvme::kCcEnable) != 0; }
  bool is_ready() const { return (csts_ & nvme::kCstsReady) != 0; }
  bool Runs() const {
    // Neither fatal nor shut down.
    return (csts_ & ~nvme::kCstsSubsystemReset) == nvme::kCstsReady;
  }
  void WriteCc(uint32_t value);
  void Enable();
  void WriteQueueAddress(uint64_t& address, bool high, uint32_t value);
  // RDY and SHST follow CC.
  bool FollowCc();
  // Everything but the registers, which its callers differ in.
  void LookForStrangers();
  void ForgetAll();
  void ResetRegisters();

  NvmeModelConfig config_;
  NvmeModelRecord record_;
  NvmeModelMemory memory_{config_, record_};
  NvmeModelVectors vectors_{config_, record_};
  NvmeModelQueues queues_{config_, memory_, vectors_, record_};
  NvmeModelIo io_{config_, memory_};
  NvmeModelAdmin admin_{config_, memory_, queues_, io_};
  NvmeModelWork work_{config_, queues_, admin_, io_, record_};

  uint16_t command_ = 0;  // of configuration space
  uint32_t cc_ = 0;
  uint32_t csts_ = 0;
  uint32_t aqa_ = 0;
  uint64_t asq_ = 0;
  uint64_t acq_ = 0;
  bool is_gone_ = false;
  std::optional<EventFd> gone_;  // if it returns
  bool lost_power_ = false;      // and its driver may not know yet, so it may ring at nobody
  bool follows_cc_ = true;       // else CC was written
  NvmeModelReady ready_ = NvmeModelReady::kFollows;
  bool reset_fails_ = false;
};

}  // namespace ringside::testing
