// The admin commands of an NvmeModel, its features and its asynchronous events. Abort is in
// nvme_model_work.h, which knows the commands.
//
// Threads: under the model's lock.
// Source: NVM Express Base Specification 2.0, section 5.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/support/nvme/nvme_model_identify.h"
#include "tests/support/nvme/nvme_model_io.h"
#include "tests/support/nvme/nvme_model_queues.h"

namespace ringside::testing {

// What a command ends in.
struct NvmeModelOutcome {
  nvme::Status status = nvme::kSuccess;
  uint32_t result = 0;
  bool completes = true;  // now
};

class NvmeModelAdmin {
 public:
  NvmeModelAdmin(const NvmeModelConfig& config, NvmeModelMemory& memory, NvmeModelQueues& queues,
                 NvmeModelIo& io);

  void Reset();
  NvmeModelOutcome Execute(const nvme::Command& command);
  void SendEvent(uint32_t event);

 private:
  using Outcome = NvmeModelOutcome;
  Outcome Identify(const nvme::Command& command);
  Outcome CreateCq(const nvme::Command& command);
  Outcome CreateSq(const nvme::Command& command);
  Outcome DeleteCq(const nvme::Command& command);
  Outcome DeleteSq(const nvme::Command& command);
  Outcome SetFeatures(const nvme::Command& command);
  Outcome GetFeatures(const nvme::Command& command);
  Outcome GrantQueues(uint32_t asked);
  Outcome GetLogPage(const nvme::Command& command);
  Outcome SetDoorbellBuffers(const nvme::Command& command);
  Outcome TakeEventRequest(const nvme::Command& command);
  NvmeModelPage Patched(NvmeModelPage page, bool of_controller) const;
  // What both kinds of queues must keep to.
  nvme::Status CheckNewQueue(const nvme::Command& command, bool exists) const;
  void DeliverEvents();

  const NvmeModelConfig& config_;
  NvmeModelMemory& memory_;
  NvmeModelQueues& queues_;
  NvmeModelIo& io_;
  uint16_t granted_;
  uint32_t event_config_ = 0;
  std::deque<uint16_t> event_requests_;  // their identifiers
  std::deque<uint32_t> events_;
  std::array<bool, 8> is_masked_ = {};  // by type, until its log page was read
  std::array<uint32_t, 8> log_pages_ = {};
};

}  // namespace ringside::testing
