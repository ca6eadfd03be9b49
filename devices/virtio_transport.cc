#include "devices/virtio_transport.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace ringside {
namespace {

bool IsPowerOfTwo(uint16_t size) {
  return size != 0 && (size & (size - 1)) == 0;
}

// The areas of a split queue (section 2.7): alignment, and length by the queue's size. The rings
// end in the event index that EVENT_IDX adds; room for it is asked for either way.
struct Area {
  std::string_view name;
  uint64_t VirtioTransport::Queue::* address;
  uint64_t alignment;
  uint64_t fixed_size;
  uint64_t entry_size;
};
constexpr Area kAreas[] = {
    {"descriptor", &VirtioTransport::Queue::descriptor_area, 16, 0, 16},
    {"driver", &VirtioTransport::Queue::driver_area, 2, 6, 2},
    {"device", &VirtioTransport::Queue::device_area, 4, 6, 8},
};

}  // namespace

std::optional<std::string> VirtioTransport::FaultOf(uint16_t index, const Queue& queue) {
  for (const Area& area : kAreas) {
    const uint64_t address = queue.*area.address;
    const uint64_t size = area.fixed_size + area.entry_size * queue.size;
    if (address % area.alignment != 0) {
      return absl::StrFormat("the %s area of queue %d, at %#x, is not aligned to %d bytes",
                             area.name, index, address, area.alignment);
    }
    if (address + size < address) {
      return absl::StrFormat("the %s area of queue %d, at %#x, is beyond the end of addresses",
                             area.name, index, address);
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<VirtioTransport>> VirtioTransport::Create(
    VirtioDevice& device, std::string name, Logger log, std::vector<const EventFd*> vectors) {
  std::unique_ptr<VirtioTransport> transport(
      new VirtioTransport(device, std::move(name), log, std::move(vectors)));
  for (uint16_t i = 0; i < device.queue_count(); ++i) {
    RINGSIDE_ASSIGN_OR_RETURN(EventFd kick, EventFd::Create());
    transport->ports_.emplace_back(std::move(kick), transport->isr_);
  }
  const MutexLock lock(transport->mutex_);
  transport->queues_.resize(device.queue_count());
  transport->ResetRegisters();
  return transport;
}

VirtioTransport::VirtioTransport(VirtioDevice& device, std::string name, Logger log,
                                 std::vector<const EventFd*> vectors)
    : device_(device),
      name_(std::move(name)),
      vectors_(std::move(vectors)),
      complaints_(log, kMaxComplaints) {}

VirtioTransport::~VirtioTransport() {
  ResetAndWait();
}

// Status and reset.

uint8_t VirtioTransport::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

void VirtioTransport::SetStatus(uint8_t status) {
  const MutexLock call(calls_);
  if (status == 0) {
    if (BeginReset()) device_.Reset(done_);
    return;
  }
  bool activate;
  {
    const MutexLock lock(mutex_);
    if (resetting()) return;
    activate = AddStatus(status & kDriverBits);
  }
  if (activate) Activate();
}

bool VirtioTransport::AddStatus(uint8_t bits) {
  const uint8_t old = status_;
  if (!Acceptable(driver_features_)) bits &= ~kFeaturesOk;
  uint8_t status = old | bits;
  // A driver that gave up does not start (section 2.1.1), nor does one that skips the negotiation
  // (section 3.1.1).
  const bool starts = (status & kFeaturesOk) != 0 && (status & kFailed) == 0;
  if (!starts && (old & kDriverOk) == 0) status &= ~kDriverOk;
  status_ = status;
  return (status & ~old & kDriverOk) != 0;
}

void VirtioTransport::Activate() {
  std::vector<QueueSetup> setups;
  std::optional<std::string> fault;
  uint64_t features;
  {
    const MutexLock lock(mutex_);
    features = driver_features();
    setups = Setups();
    for (const QueueSetup& setup : setups) {
      if (!fault) fault = FaultOf(setup.index, queues_[setup.index]);
    }
    if (fault) {
      MarkNeedsReset();
    } else {
      active_ = true;
    }
  }
  if (fault) return TellOfNeedsReset(*fault);
  device_.Activate(features, setups, *this);
}

std::vector<QueueSetup> VirtioTransport::Setups() {
  std::vector<QueueSetup> setups;
  for (uint16_t i = 0; i < queue_count(); ++i) {
    const Queue& queue = queues_[i];
    if (!queue.enabled) continue;
    setups.push_back({.index = i,
                      .size = queue.size,
                      .descriptor_area = queue.descriptor_area,
                      .driver_area = queue.driver_area,
                      .device_area = queue.device_area,
                      .kick = &ports_[i].kick,
                      .call = &ports_[i].call});
  }
  return setups;
}

bool VirtioTransport::BeginReset() {
  const MutexLock lock(mutex_);
  if (resetting()) return false;
  if (!active_) {
    ResetRegisters();
    return false;
  }
  reset_done_ = std::make_shared<Event>();
  return true;
}

// On any thread: the device's, or the one that is in device_.Reset.
void VirtioTransport::FinishReset() {
  std::shared_ptr<Event> done;  // of our own: whoever waits for it may destroy the transport
  {
    const MutexLock lock(mutex_);
    ResetRegisters();
    active_ = false;
    done = std::exchange(reset_done_, nullptr);
  }
  done->Notify();
}

void VirtioTransport::ResetRegisters() {
  status_ = 0;
  driver_features_ = {};
  config_vector_ = kNoVector;
  config_interrupt_.Connect(nullptr);
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i] = {.size = device_.max_queue_size(static_cast<uint16_t>(i))};
  }
  for (Port& port : ports_) port.call.Connect(nullptr);
  isr_.store(0, std::memory_order_relaxed);
}

void VirtioTransport::ResetAndWait() {
  SetStatus(0);
  if (const auto done = ResetUnderWay(); done != nullptr) done->Wait();
}

bool VirtioTransport::ResetEnds(absl::Duration limit) {
  const auto done = ResetUnderWay();
  return done == nullptr || done->WaitFor(limit);
}

std::shared_ptr<Event> VirtioTransport::ResetUnderWay() const {
  const MutexLock lock(mutex_);
  return reset_done_;
}

void VirtioTransport::NeedsReset(std::string_view why) {
  {
    const MutexLock lock(mutex_);
    // A reset mends what it would report, and one that is done has ended the device's say.
    if (!active_ || resetting() || !MarkNeedsReset()) return;
  }
  TellOfNeedsReset(why);
}

bool VirtioTransport::MarkNeedsReset() {
  if ((status_ & kNeedsReset) != 0) return false;
  status_ |= kNeedsReset;
  // Section 2.1.2. DRIVER_OK is set: the device only runs, and queues are only checked, with it.
  SignalConfig();
  return true;
}

void VirtioTransport::SignalConfig() {
  // The bit is set with vectors too (section 4.1.4.5.1).
  isr_.fetch_or(kIsrConfig, std::memory_order_relaxed);
  config_interrupt_.Signal();
}

void VirtioTransport::TellOfNeedsReset(std::string_view why) {
  complaints_.Log(Severity::kWarning, "%s: stopped until its driver resets it: %s", name_, why);
  if (reports_ != nullptr) reports_->NeedsReset(why);
}

// Features.

uint32_t VirtioTransport::DeviceFeatures(uint32_t select) const {
  return select < 2 ? static_cast<uint32_t>(offered() >> (32 * select)) : 0;
}

uint32_t VirtioTransport::DriverFeatures(uint32_t select) const {
  const MutexLock lock(mutex_);
  return select < driver_features_.size() ? driver_features_[select] : 0;
}

void VirtioTransport::SetDriverFeatures(uint32_t select, uint32_t bits) {
  const MutexLock lock(mutex_);
  if (resetting() || (status_ & kFeaturesOk) != 0 || select >= driver_features_.size()) return;
  driver_features_[select] = bits;
}

uint64_t VirtioTransport::driver_features() const {
  return uint64_t{driver_features_[1]} << 32 | driver_features_[0];
}

bool VirtioTransport::Acceptable(const std::array<uint32_t, 4>& features) const {
  const uint64_t low = uint64_t{features[1]} << 32 | features[0];
  return (low & kVirtioVersion1) != 0 && (low & ~offered()) == 0 && features[2] == 0 &&
         features[3] == 0;
}

// Queues.

VirtioTransport::Queue VirtioTransport::queue(uint16_t index) const {
  const MutexLock lock(mutex_);
  return index < queues_.size() ? queues_[index] : Queue{};
}

VirtioTransport::Queue* VirtioTransport::Writable(uint16_t index) {
  if (resetting() || (status_ & kDriverOk) != 0 || index >= queues_.size()) return nullptr;
  return queues_[index].enabled ? nullptr : &queues_[index];
}

void VirtioTransport::SetQueueSize(uint16_t index, uint16_t size) {
  const MutexLock lock(mutex_);
  Queue* queue = Writable(index);
  if (queue == nullptr || !IsPowerOfTwo(size) || size > device_.max_queue_size(index)) return;
  queue->size = size;
}

void VirtioTransport::SetQueueAddress(uint16_t index, uint64_t Queue::* area, Half half,
                                      uint32_t bits) {
  const MutexLock lock(mutex_);
  Queue* queue = Writable(index);
  if (queue == nullptr) return;
  const int shift = half == Half::kHigh ? 32 : 0;
  uint64_t& address = queue->*area;
  address = (address & ~(uint64_t{0xffffffff} << shift)) | uint64_t{bits} << shift;
}

void VirtioTransport::EnableQueue(uint16_t index) {
  const MutexLock lock(mutex_);
  if (Queue* queue = Writable(index)) queue->enabled = true;
}

// Interrupts.

uint16_t VirtioTransport::Valid(uint16_t vector) const {
  return vector < vectors_.size() ? vector : kNoVector;
}

const EventFd* VirtioTransport::VectorEvent(uint16_t vector) const {
  return vectors_enabled_ && vector != kNoVector ? vectors_[vector] : nullptr;
}

void VirtioTransport::SetQueueVector(uint16_t index, uint16_t vector) {
  const MutexLock lock(mutex_);
  if (resetting() || index >= queues_.size()) return;
  queues_[index].vector = Valid(vector);
  ports_[index].call.Connect(VectorEvent(queues_[index].vector));
}

void VirtioTransport::SetConfigVector(uint16_t vector) {
  const MutexLock lock(mutex_);
  if (resetting()) return;
  config_vector_ = Valid(vector);
  config_interrupt_.Connect(VectorEvent(config_vector_));
}

uint16_t VirtioTransport::config_vector() const {
  const MutexLock lock(mutex_);
  return config_vector_;
}

void VirtioTransport::EnableVectors(bool enabled) {
  const MutexLock lock(mutex_);
  vectors_enabled_ = enabled;
  config_interrupt_.Connect(VectorEvent(config_vector_));
  for (size_t i = 0; i < queues_.size(); ++i)
    ports_[i].call.Connect(VectorEvent(queues_[i].vector));
}

// Configuration.

uint8_t VirtioTransport::config_generation() const {
  const MutexLock lock(mutex_);
  return config_generation_;
}

void VirtioTransport::ReadConfig(uint64_t offset, std::span<std::byte> data) {
  const MutexLock call(calls_);
  device_.ReadConfig(offset, data);
}

void VirtioTransport::WriteConfig(uint64_t offset, std::span<const std::byte> data) {
  const MutexLock call(calls_);
  uint64_t features = 0;
  {
    const MutexLock lock(mutex_);
    if (resetting()) return;
    if ((status_ & kFeaturesOk) != 0) features = driver_features();
  }
  device_.WriteConfig(offset, data, features);
  // Whether it changed anything only the device knows, so it counts as a change
  // (section 4.1.4.3.1).
  const MutexLock lock(mutex_);
  ++config_generation_;
}

void VirtioTransport::ConfigChanged() {
  const MutexLock lock(mutex_);
  ++config_generation_;
  // Nothing is sent before DRIVER_OK (section 3.1.1), nor by what a reset is on its way to.
  if (active_ && !resetting()) SignalConfig();
}

void VirtioTransport::ChangeConfig(absl::FunctionRef<void()> change) {
  const MutexLock call(calls_);
  change();
  ConfigChanged();
}

}  // namespace ringside
