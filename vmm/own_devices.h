// The embedder's own devices as virtio devices of the machine.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "devices/device_context.h"
#include "devices/virtio_device.h"
#include "ringside/config.h"

namespace ringside {

// InvalidArgument and NotFound: what cannot be in a machine's configuration of such a device.
absl::Status CheckOwnDevice(const DeviceConfig& config, const IoThreads& io_threads);
// The I/O threads run; in the place of one that has been removed comes another. Errors are those of
// DeviceConfig::create, and InvalidArgument for a device that cannot be.
absl::StatusOr<std::unique_ptr<VirtioDevice>> MakeOwnDevice(const DeviceConfig& config,
                                                            const DeviceContext& context);

}  // namespace ringside
