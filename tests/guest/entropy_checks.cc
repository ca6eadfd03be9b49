// The virtio entropy device (VIRTIO 1.2, section 5.4), which is left in use.

#include "allocator.h"
#include "checks.h"
#include "console.h"
#include "deadline.h"
#include "pci.h"
#include "virtio_pci.h"

namespace guest {
namespace {

constexpr uint16_t kVirtioEntropyDevice = 0x1044;
constexpr uint32_t kBytes = 64;

constinit VirtioPci entropy;
constinit Virtqueue requests;

bool FindEntropy() {
  if (InitPci() == ConfigAccess::kNone) return false;
  for (int device = 0; device < kPciDevices; ++device) {
    const PciFunction function(device);
    if (function.IsPresent() && function.Read<uint16_t>(pci_register::kVendor) == kVirtioVendor &&
        function.Read<uint16_t>(pci_register::kDevice) == kVirtioEntropyDevice) {
      return entropy.Open(function);
    }
  }
  return false;
}

}  // namespace

void CheckEntropy() {
  if (!Expect("entropy: device found", true, FindEntropy())) return;
  if (!entropy.Reset() || !entropy.Negotiate(0)) return;
  requests.Init(entropy.MaxQueueSize(0), false, false);
  requests.SuppressInterrupts();
  if (!entropy.EnableQueue(0, requests, 0)) return;
  entropy.SetDriverOk();
  const Buffer buffer = {AllocatePages(kBytes), kBytes, Access::kDeviceWrites};
  requests.Add({&buffer, 1});
  requests.Publish();
  entropy.Kick(0);
  Virtqueue::Used used = {};
  SpinUntil([&] { return requests.TakeUsed(used); });
  if (Expect("entropy: bytes given", kBytes, used.length)) Say("entropy ok");
}

}  // namespace guest
