#include "tests/support/nvme/nvme_attachment.h"

namespace ringside::testing {

struct NvmeAttachment::Parts {
  NvmeModel& model;
};

NvmeModelConfig NvmeAttachment::Prepare(NvmeModelConfig config) {
  return config;
}

NvmeAttachment::NvmeAttachment(NvmeModel& model) : parts_(new Parts{.model = model}) {}

NvmeAttachment::~NvmeAttachment() = default;

absl::StatusOr<std::unique_ptr<PciDevice>> NvmeAttachment::Connect() {
  return parts_->model.Attach();
}

void NvmeAttachment::WaitForEnd() const {}

std::vector<std::string> NvmeAttachment::violations() const {
  return {};
}

}  // namespace ringside::testing
