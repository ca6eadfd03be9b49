// See virtio_blk.h.

#include "virtio_blk.h"

#include <algorithm>

#include "console.h"
#include "processors.h"

namespace guest {

bool VirtioBlk::Open(const PciFunction& function, int index) {
  index_ = index;
  transport_ = &pci_;
  return pci_.Open(function);
}

bool VirtioBlk::Open(const MmioDevice& device, int index) {
  index_ = index;
  transport_ = &mmio_;
  return mmio_.Open(device);
}

bool VirtioBlk::Start(const Options& options) {
  started_ = 0;
  VirtioTransport& transport = *transport_;
  if (!transport.Reset()) return false;
  uint64_t wanted = kBlkFeatureSegMax | kBlkFeatureReadOnly | kBlkFeatureBlockSize |
                    kBlkFeatureFlush | kBlkFeatureTopology | kBlkFeatureConfigWce |
                    kBlkFeatureMultiQueue | kBlkFeatureDiscard | kBlkFeatureWriteZeroes;
  if (options.event_idx) wanted |= kFeatureEventIdx;
  if (options.indirect) wanted |= kFeatureIndirect;
  offered_ = transport.OfferedFeatures();
  if (!transport.Negotiate(wanted)) return false;
  const uint64_t high = transport.Config<uint32_t>(blk_config::kCapacity + 4);
  sectors_ = high << 32 | transport.Config<uint32_t>(blk_config::kCapacity);
  if (Offers(kBlkFeatureBlockSize)) {
    block_sectors_ =
        std::max<uint64_t>(transport.Config<uint32_t>(blk_config::kBlockSize) / kSectorSize, 1);
  }
  if (options.queues > std::min(queue_count(), VirtioTransport::kMaxQueues)) {
    return Expect("disk: queues it has", options.queues, queue_count());
  }

  transport.EnableInterrupts();
  for (uint16_t i = 0; i < options.queues; ++i) {
    if (!queues_[i].Start(transport, i, ProcessorOf(i), options)) return false;
  }
  started_ = options.queues;
  transport.SetDriverOk();
  return true;
}

// Section 5.2.6.2: without CONFIG_WCE a device that offers FLUSH has a write-back cache.
bool VirtioBlk::write_back() const {
  if (Offers(kBlkFeatureConfigWce)) return transport_->Config<uint8_t>(blk_config::kWriteBack) != 0;
  return Offers(kBlkFeatureFlush);
}

uint16_t VirtioBlk::queue_count() const {
  return Offers(kBlkFeatureMultiQueue) ? transport_->Config<uint16_t>(blk_config::kQueueCount) : 1;
}

void VirtioBlk::FindAddresses() {
  pci_.FindAddresses();
  for (BlkQueue& queue : queues()) queue.FindNotify();
}

}  // namespace guest
