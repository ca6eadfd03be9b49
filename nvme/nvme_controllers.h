// The NVMe controllers behind a machine's disks: one for each address or socket, shared by the
// disks on its namespaces.
//
// Threads: one. Ownership: the disks keep their controller; this is needed while they are opened
// only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "nvme/nvme_device.h"

namespace ringside {

class NvmeControllers {
 public:
  explicit NvmeControllers(Logger log) : log_(log) {}

  // Every disk of the machine that is a namespace, by the name it has in messages, before the first
  // is opened. InvalidArgument for what two of them cannot both have.
  absl::Status Announce(const std::string& disk, const NvmeConfig& config);
  // What was announced for its controller.
  NvmeSettings SettingsOf(const NvmeConfig& config) const;

  absl::StatusOr<std::unique_ptr<NvmeDevice>> Open(const NvmeConfig& config);

 private:
  struct Controller {
    std::map<uint32_t, std::string> disks;  // by namespace
    std::optional<absl::Duration> timeout;
    std::string timeout_of;  // the disk that says so
    std::shared_ptr<NvmeController> opened;
  };

  const Logger log_;
  std::map<std::string, Controller> controllers_;  // by name
};

}  // namespace ringside
