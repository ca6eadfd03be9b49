// What a transport saves, and what it takes back.
#include <bit>

#include "base/status.h"
#include "devices/state_check.h"
#include "devices/virtio_transport.h"

namespace ringside {
namespace {

VirtioTransport::Queue Registers(const VirtioTransport::QueueState& state) {
  return {.size = state.size,
          .enabled = state.enabled != 0,
          .descriptor_area = state.descriptor_area,
          .driver_area = state.driver_area,
          .device_area = state.device_area,
          .vector = state.vector};
}

bool Has(const VirtioTransport::State& state, uint8_t bits) {
  return (state.status & bits) != 0;
}

}  // namespace

absl::StatusOr<VirtioTransport::State> VirtioTransport::Save() const {
  const MutexLock call(calls_);  // so that no reset begins
  State state;
  bool active;
  {
    const MutexLock lock(mutex_);
    if (resetting()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s is being reset; save its state once the reset has ended", name_));
    }
    active = active_;
    state = {.device_id = device_.id(),
             .status = status_,
             .config_generation = config_generation_,
             .isr = isr(),
             .config_vector = config_vector_,
             .driver_features = driver_features_,
             .queues = {},
             .device = {}};
    for (uint16_t i = 0; i < queue_count(); ++i) {
      const Queue& queue = queues_[i];
      state.queues.push_back({.max_size = device_.max_queue_size(i),
                              .size = queue.size,
                              .enabled = queue.enabled,
                              .descriptor_area = queue.descriptor_area,
                              .driver_area = queue.driver_area,
                              .device_area = queue.device_area,
                              .vector = queue.vector});
    }
  }
  RINGSIDE_RETURN_IF_ERROR(Of(name_, device_.CheckSaved()));
  state.device = device_.SaveState();
  for (uint16_t i = 0; i < queue_count() && active; ++i) {
    if (state.queues[i].enabled != 0) state.queues[i].next = device_.Position(i);
  }
  return state;
}

// Checks.

absl::Status VirtioTransport::Check(const State& state) const {
  RINGSIDE_RETURN_IF_ERROR(CheckNew());
  absl::Status status = CheckRegisters(state);
  if (status.ok()) status = device_.CheckState(state.device);
  for (uint16_t i = 0; i < queue_count() && status.ok(); ++i) status = CheckQueue(state, i);
  return Of(name_, status);
}

absl::Status VirtioTransport::CheckNew() const {
  const MutexLock lock(mutex_);
  if (status_ == 0 && !active_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s has a driver already, its status is %#x; restore into a device that is new", name_,
      status_));
}

absl::Status VirtioTransport::CheckRegisters(const State& state) const {
  if (state.device_id != device_.id()) {
    return BadInput("the saved virtio device id is %d; it is %d here", state.device_id,
                    device_.id());
  }
  if (state.queues.size() != queue_count()) {
    return BadInput("the saved state has %d queues; there are %d here", state.queues.size(),
                    queue_count());
  }
  RINGSIDE_RETURN_IF_ERROR(CheckBits("device status", state.status, kDriverBits | kNeedsReset));
  RINGSIDE_RETURN_IF_ERROR(CheckBits("ISR status", state.isr, kIsrQueue | kIsrConfig));
  RINGSIDE_RETURN_IF_ERROR(CheckVector(state.config_vector));
  const auto& features = state.driver_features;
  if (Has(state, kFeaturesOk) && !Acceptable(features)) {
    return BadInput(
        "the saved driver runs with the features %08x %08x %08x %08x; it has to have VERSION_1 and "
        "nothing but what is offered here, %016x",
        features[3], features[2], features[1], features[0], offered());
  }
  if (Has(state, kDriverOk) && !Has(state, kFeaturesOk)) {
    return BadInput("the saved device status is %#x; DRIVER_OK comes with FEATURES_OK only",
                    state.status);
  }
  if (Has(state, kNeedsReset) && !Has(state, kDriverOk)) {
    return BadInput("the saved device status is %#x; DEVICE_NEEDS_RESET comes with DRIVER_OK only",
                    state.status);
  }
  if (!Has(state, kDriverOk) || Has(state, kNeedsReset)) return absl::OkStatus();
  // A device that could not be activated says so (section 2.1.2).
  const std::optional<std::string> fault = FaultOf(state);
  if (!fault) return absl::OkStatus();
  return BadInput("%s; the saved device status, %#x, does not have DEVICE_NEEDS_RESET", *fault,
                  state.status);
}

absl::Status VirtioTransport::CheckQueue(const State& state, uint16_t index) const {
  const QueueState& queue = state.queues[index];
  const uint16_t max_size = device_.max_queue_size(index);
  if (queue.max_size != max_size) {
    return BadInput("queue %d takes up to %d entries in the saved state, and up to %d here", index,
                    queue.max_size, max_size);
  }
  if (!std::has_single_bit(queue.size) || queue.size > max_size) {
    return BadInput("the saved size of queue %d is %d; it is a power of two up to %d", index,
                    queue.size, max_size);
  }
  RINGSIDE_RETURN_IF_ERROR(CheckBits("queue_enable", queue.enabled, 1));
  RINGSIDE_RETURN_IF_ERROR(CheckVector(queue.vector));
  if (queue.next != 0 && (queue.enabled == 0 || !Runs(state))) {
    return BadInput("the saved position of queue %d is %d; it is 0 while the queue does not run",
                    index, queue.next);
  }
  return absl::OkStatus();
}

absl::Status VirtioTransport::CheckVector(uint16_t vector) const {
  if (Valid(vector) == vector) return absl::OkStatus();
  return BadInput("a saved MSI-X vector is %d; there are %d, and %#x is none", vector,
                  vectors_.size(), kNoVector);
}

// Whether the device is active with it.
bool VirtioTransport::Runs(const State& state) {
  return Has(state, kDriverOk) && !FaultOf(state);
}

std::optional<std::string> VirtioTransport::FaultOf(const State& state) {
  uint16_t index = 0;
  for (const QueueState& queue : state.queues) {
    const uint16_t i = index++;
    if (queue.enabled == 0) continue;
    if (auto fault = FaultOf(i, Registers(queue))) return fault;
  }
  return std::nullopt;
}

// Restoring.

absl::Status VirtioTransport::Restore(const State& state) {
  const MutexLock call(calls_);
  RINGSIDE_RETURN_IF_ERROR(Check(state));
  std::vector<QueueSetup> setups;
  uint64_t features;
  const bool active = Runs(state);
  {
    const MutexLock lock(mutex_);
    RestoreRegisters(state);
    active_ = active;
    features = driver_features();
    setups = Setups();
  }
  device_.RestoreState(state.device);
  for (QueueSetup& setup : setups) setup.next = state.queues[setup.index].next;
  if (active) device_.Activate(features, setups, *this);
  return absl::OkStatus();
}

void VirtioTransport::RestoreRegisters(const State& state) {
  status_ = state.status;
  config_generation_ = state.config_generation;
  isr_.store(state.isr, std::memory_order_relaxed);
  driver_features_ = state.driver_features;
  config_vector_ = state.config_vector;
  config_interrupt_.Connect(VectorEvent(config_vector_));
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i] = Registers(state.queues[i]);
    ports_[i].call.Connect(VectorEvent(queues_[i].vector));
  }
}

}  // namespace ringside
