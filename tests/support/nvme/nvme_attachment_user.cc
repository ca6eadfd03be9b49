#include "tests/support/directories.h"
#include "tests/support/nvme/nvme_attachment.h"
#include "tests/support/vfio/vfio_user_server.h"
#include "tests/support/wait.h"
#include "vfio/vfio_user_device.h"

namespace ringside::testing {

struct NvmeAttachment::Parts {
  explicit Parts(NvmeModel& model) : server(path, model) {}

  const TempDirectory directory;
  const std::string path = directory / "socket";
  VfioUserServer server;
};

NvmeModelConfig NvmeAttachment::Prepare(NvmeModelConfig config) {
  config.iova_ranges = kAllIova;
  return config;
}

NvmeAttachment::NvmeAttachment(NvmeModel& model) : parts_(std::make_unique<Parts>(model)) {}

NvmeAttachment::~NvmeAttachment() = default;

absl::StatusOr<std::unique_ptr<PciDevice>> NvmeAttachment::Connect() {
  return OpenVfioUserDevice(parts_->path);
}

void NvmeAttachment::WaitForEnd() const {
  if (!SpinUntil([&] { return !parts_->server.has_client(); })) std::abort();
}

std::vector<std::string> NvmeAttachment::violations() const {
  return parts_->server.violations();
}

}  // namespace ringside::testing
