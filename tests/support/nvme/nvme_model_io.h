// The namespaces of an NvmeModel and the commands of its I/O queues.
//
// Threads: under the model's lock.
// Source: NVM Command Set Specification 1.0.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tests/support/nvme/nvme_model_bus.h"
#include "tests/support/nvme/nvme_model_namespace.h"

namespace ringside::testing {

class NvmeModelIo {
 public:
  NvmeModelIo(const NvmeModelConfig& config, NvmeModelMemory& memory);

  nvme::Status Execute(const nvme::Command& command);

  // Whether writes may stay in the cache. Switching it off empties it.
  void SetWriteCache(bool on);
  bool write_cache() const { return write_cache_; }
  void FlushAll();
  void PowerCut(std::optional<uint64_t> seed);
  // Null if there is none, or if it is not active.
  NvmeModelMedia* media(uint32_t nsid);

 private:
  nvme::Status Transfer(const nvme::Command& command, NvmeModelMedia& media);
  nvme::Status Flush(uint32_t nsid);
  nvme::Status WriteZeroes(const nvme::Command& command, NvmeModelMedia& media);
  nvme::Status ManageDataset(const nvme::Command& command, NvmeModelMedia& media);
  bool IsDurable(const nvme::Command& command) const;

  const NvmeModelConfig& config_;
  NvmeModelMemory& memory_;
  std::vector<std::unique_ptr<NvmeModelMedia>> media_;
  bool write_cache_;
};

}  // namespace ringside::testing
