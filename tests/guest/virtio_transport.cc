// See virtio_transport.h.

#include "virtio_transport.h"

#include "console.h"
#include "deadline.h"

namespace guest {

bool VirtioTransport::Reset() const {
  SetStatus(0);
  if (SpinUntil([this] { return status() == 0; })) return true;
  return Expect("virtio: status after reset", 0, status());
}

bool VirtioTransport::Negotiate(uint64_t wanted) {
  using namespace virtio_status;
  SetStatus(kAcknowledge);
  SetStatus(kAcknowledge | kDriver);
  features_ = OfferedFeatures() & (wanted | kFeatureVersion1);
  AcceptFeatures(features_);
  SetStatus(kAcknowledge | kDriver | kFeaturesOk);
  return Expect("virtio: status after FEATURES_OK", kAcknowledge | kDriver | kFeaturesOk, status());
}

void VirtioTransport::SetDriverOk() const {
  SetStatus(status() | virtio_status::kDriverOk);
}

}  // namespace guest
