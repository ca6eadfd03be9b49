// See virtio_blk.h.

#include "virtio_blk.h"

#include <algorithm>
#include <utility>

#include "console.h"
#include "deadline.h"
#include "machine.h"

namespace guest {
namespace {

constexpr size_t kMaxDisks = 8;
constinit std::array<VirtioBlk, kMaxDisks> disks;
size_t disk_count;
bool searched;

template <typename T>
uint64_t AddressOf(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

void BlkRequest::Set(BlkType type, uint64_t sector) {
  header = {.type = type, .reserved = 0, .sector = sector};
  status = kBlkNone;
  used_length = 0;
  data_count = 0;
}

void BlkRequest::AddData(uint64_t address, uint32_t length) {
  const bool from_device = header.type == kBlkRead || header.type == kBlkGetId;
  const Access access = from_device ? Access::kDeviceWrites : Access::kDeviceReads;
  if (data_count < kMaxData) data[data_count++] = {address, length, access};
}

bool VirtioBlk::Open(const PciFunction& function, int index) {
  index_ = index;
  return pci_.Open(function);
}

bool VirtioBlk::Start(const Options& options) {
  options_ = options;
  if (!pci_.Reset()) return false;
  uint64_t wanted = kBlkFeatureSegMax | kBlkFeatureReadOnly | kBlkFeatureBlockSize |
                    kBlkFeatureFlush | kBlkFeatureTopology | kBlkFeatureConfigWce |
                    kBlkFeatureMultiQueue | kBlkFeatureDiscard | kBlkFeatureWriteZeroes;
  if (options.event_idx) wanted |= kFeatureEventIdx;
  if (options.indirect) wanted |= kFeatureIndirect;
  offered_ = pci_.OfferedFeatures();
  if (!pci_.Negotiate(wanted)) return false;
  sectors_ = pci_.Config<uint64_t>(blk_config::kCapacity);
  if (Offers(kBlkFeatureBlockSize)) {
    block_sectors_ = std::max<uint64_t>(pci_.Config<uint32_t>(blk_config::kBlockSize) / 512, 1);
  }

  pci_.msix().Route(kConfigEntry, config_slot());
  pci_.msix().Route(kQueueEntry, queue_slot());
  pci_.msix().SetEnabled(true);
  Store<uint16_t>(pci_.common().address + common_config::kConfigVector, kConfigEntry);

  queue_.Init(std::min(options.queue_size, pci_.MaxQueueSize(0)),
              (pci_.features() & kFeatureEventIdx) != 0, (pci_.features() & kFeatureIndirect) != 0);
  by_head_ = {};
  in_flight_ = 0;
  interrupt_due_ = false;
  if (!pci_.EnableQueue(0, queue_, kQueueEntry)) return false;
  pci_.SetDriverOk();
  return true;
}

// Section 5.2.6.2: without CONFIG_WCE a device that offers FLUSH has a write-back cache.
bool VirtioBlk::write_back() const {
  if (Offers(kBlkFeatureConfigWce)) return pci_.Config<uint8_t>(blk_config::kWriteBack) != 0;
  return Offers(kBlkFeatureFlush);
}

bool VirtioBlk::Submit(BlkRequest& request) {
  std::array<Buffer, Virtqueue::kMaxBuffers> chain;
  size_t count = 0;
  chain[count++] = {AddressOf(&request.header), sizeof request.header, Access::kDeviceReads};
  for (size_t i = 0; i < request.data_count; ++i) chain[count++] = request.data[i];
  chain[count++] = {AddressOf(&request.status), 1, Access::kDeviceWrites};
  const int head = queue_.Add({chain.data(), count});
  if (head < 0) return false;
  by_head_[head] = &request;
  if (options_.wait == Wait::kInterrupt && in_flight_ == 0) {
    // Asked for before the device can see the request: this interrupt must come.
    interrupts_seen_ = interrupts();
    queue_.RequestInterrupt();
    interrupt_due_ = true;
  }
  ++in_flight_;
  queue_.Publish();
  return true;
}

void VirtioBlk::Kick() {
  if (!queue_.KickWanted()) return;
  ++kicks_;
  pci_.Kick(0);
}

BlkRequest* VirtioBlk::NextIfAny() {
  Virtqueue::Used used;
  if (!queue_.TakeUsed(used) || used.head >= by_head_.size()) return nullptr;
  BlkRequest* const request = std::exchange(by_head_[used.head], nullptr);
  if (request == nullptr) return nullptr;
  --in_flight_;
  request->used_length = used.length;
  return request;
}

bool VirtioBlk::SpinForInterrupt() {
  return SpinUntil([this] { return interrupts() != interrupts_seen_; }) ||
         Expect("disk: an interrupt came", 1, 0);
}

// Looks at the ring only after an interrupt, so that a lost one shows.
bool VirtioBlk::WaitForInterrupt() {
  if (interrupt_due_) {
    interrupt_due_ = false;
    return SpinForInterrupt();
  }
  interrupts_seen_ = interrupts();
  queue_.RequestInterrupt();
  return queue_.HasUsed() || SpinForInterrupt();
}

BlkRequest* VirtioBlk::Next() {
  if (interrupt_due_ && !WaitForInterrupt()) return nullptr;
  const Deadline deadline(kAllPatience);
  for (;;) {
    if (BlkRequest* const request = NextIfAny()) return request;
    if (deadline.Passed()) {
      Expect("disk: a completion came", 1, 0);
      return nullptr;
    }
    if (options_.wait == Wait::kPolled) {
      Pause();
    } else if (!WaitForInterrupt()) {
      return nullptr;
    }
  }
}

BlkStatus VirtioBlk::Do(BlkRequest& request) {
  if (!Submit(request)) return kBlkNone;
  Kick();
  const BlkRequest* const done = Next();
  if (done == nullptr || !Expect("disk: the request that completed", AddressOf(&request),
                                 reinterpret_cast<uint64_t>(done))) {
    return kBlkNone;
  }
  return static_cast<BlkStatus>(request.status);
}

std::span<VirtioBlk> Disks() {
  if (!searched) {
    searched = true;
    InitMessages();
    if (InitPci() == ConfigAccess::kNone) {
      Expect("pci: a bus", 1, 0);
      return {};
    }
    for (int device = 0; device < kPciDevices && disk_count < kMaxDisks; ++device) {
      const PciFunction function(device);
      if (!function.IsPresent()) continue;
      if (function.Read<uint16_t>(pci_register::kVendor) != kVirtioVendor) continue;
      if (function.Read<uint16_t>(pci_register::kDevice) != kVirtioBlockDevice) continue;
      if (disks[disk_count].Open(function, static_cast<int>(disk_count))) ++disk_count;
    }
  }
  return {disks.data(), disk_count};
}

}  // namespace guest
