// How the driver of a test comes to its NvmeModel: with the model's own handle, or over vfio-user
// with a server between, by which of nvme_attachment.cc and nvme_attachment_user.cc is linked.
//
// Threads: one. Ownership: the model and the devices outlive and precede it, respectively.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/nvme/nvme_model.h"

namespace ringside::testing {

class NvmeAttachment {
 public:
  // What there must be for that.
  static NvmeModelConfig Prepare(NvmeModelConfig config);

  explicit NvmeAttachment(NvmeModel& model);
  ~NvmeAttachment();

  absl::StatusOr<std::unique_ptr<PciDevice>> Connect();
  // Once the last device has ended: the model has no handle any more.
  void WaitForEnd() const;
  // What was wrong on the way.
  std::vector<std::string> violations() const;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace ringside::testing
