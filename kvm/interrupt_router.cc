#include "kvm/interrupt_router.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr uint32_t kPicPins = 8;
constexpr uint32_t kPics = 2;
constexpr uint32_t kFirstMsiGsi = kIoApicPins;
constexpr uint32_t kMaxRoutes = 4096;  // KVM's own limit on x86, KVM_CAP_IRQ_ROUTING
constexpr uint32_t kMaxVectors = kMaxRoutes - kIoApicPins - kPics * kPicPins;

kvm_irq_routing_entry PinRoute(uint32_t gsi, uint32_t chip, uint32_t pin) {
  kvm_irq_routing_entry entry = {};
  entry.gsi = gsi;
  entry.type = KVM_IRQ_ROUTING_IRQCHIP;
  entry.u.irqchip = {.irqchip = chip, .pin = pin};
  return entry;
}

kvm_irq_routing_entry MsiRoute(uint32_t gsi, uint64_t address, uint32_t data) {
  kvm_irq_routing_entry entry = {};
  entry.gsi = gsi;
  entry.type = KVM_IRQ_ROUTING_MSI;
  entry.u.msi.address_lo = static_cast<uint32_t>(address);
  entry.u.msi.address_hi = static_cast<uint32_t>(address >> 32);
  entry.u.msi.data = data;
  return entry;
}

// What KVM_CREATE_IRQCHIP sets up: GSI n is pin n of the IOAPIC, and the first 16 reach the two
// PICs as well.
std::vector<kvm_irq_routing_entry> PinRoutes() {
  std::vector<kvm_irq_routing_entry> entries;
  for (uint32_t gsi = 0; gsi < kIoApicPins; ++gsi) {
    entries.push_back(PinRoute(gsi, KVM_IRQCHIP_IOAPIC, gsi));
    if (gsi >= kPics * kPicPins) continue;
    const uint32_t pic = gsi < kPicPins ? KVM_IRQCHIP_PIC_MASTER : KVM_IRQCHIP_PIC_SLAVE;
    entries.push_back(PinRoute(gsi, pic, gsi % kPicPins));
  }
  return entries;
}

}  // namespace

class InterruptRouter::Vector final : public MsiVector {
 public:
  Vector(InterruptRouter& router, EventFd event, uint32_t gsi)
      : MsiVector(std::move(event)), router_(router), gsi_(gsi) {}
  ~Vector() override {
    Mask();
    router_.ReturnGsi(gsi_);
  }

  void Unmask(uint64_t address, uint32_t data) override;
  void Mask() override;

 private:
  InterruptRouter& router_;
  const uint32_t gsi_;
  bool assigned_ = false;
};

// Route, assign, drain, in this order: from assignment on KVM delivers, so the route is there
// before. At assignment KVM injects what the event holds without consuming it. Left there, it would
// be pending again when the vector is masked next, and be injected a second time. Draining after
// the assignment loses nothing: the injection is decided by then and does not look at the counter
// again, and a signal that comes between the two is delivered by the irqfd within the signaller's
// write, whatever becomes of the counter. Before the assignment it would lose such a signal.
void InterruptRouter::Vector::Unmask(uint64_t address, uint32_t data) {
  if (absl::Status status = router_.SetRoute(gsi_, {address, data}); !status.ok()) {
    router_.LogFailure(status);
    return Mask();  // rather than deliver an old message
  }
  // An irqfd follows its GSI's route by itself.
  if (assigned_) return;
  if (absl::Status status = router_.vm_.AssignIrqFd(event(), gsi_); !status.ok()) {
    return router_.LogFailure(status);
  }
  assigned_ = true;
  event().Clear();
  router_.SetEvent(gsi_, &event());
}

// Older kernels deliver without consuming, and what was delivered must not look pending now, hence
// the drain. It comes while KVM still delivers: what is signalled after it is delivered, kept, or
// (on those kernels) both, never lost.
void InterruptRouter::Vector::Mask() {
  if (!assigned_) return;
  event().Clear();
  if (absl::Status status = router_.vm_.DeassignIrqFd(event(), gsi_); !status.ok()) {
    return router_.LogFailure(status);
  }
  assigned_ = false;
  router_.SetEvent(gsi_, nullptr);
}

absl::StatusOr<std::unique_ptr<MsiVector>> InterruptRouter::NewMsiVector() {
  RINGSIDE_ASSIGN_OR_RETURN(EventFd event, EventFd::Create());
  const MutexLock lock(mutex_);
  const std::optional<uint32_t> gsi = TakeGsi();
  if (!gsi) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a machine has room for %d MSI-X vectors; ask for fewer devices or queues", kMaxVectors));
  }
  return std::make_unique<Vector>(*this, std::move(event), *gsi);
}

std::optional<uint32_t> InterruptRouter::TakeGsi() {
  const auto free = std::ranges::find(routes_, false, &Route::used);
  const auto index = static_cast<uint32_t>(free - routes_.begin());
  if (free == routes_.end()) {
    if (routes_.size() == kMaxVectors) return std::nullopt;
    routes_.emplace_back();
  }
  routes_[index].used = true;
  return kFirstMsiGsi + index;
}

void InterruptRouter::SetEvent(uint32_t gsi, const EventFd* event) {
  const MutexLock lock(mutex_);
  routes_[gsi - kFirstMsiGsi].event = event;
}

absl::Status InterruptRouter::Settle() {
  const MutexLock lock(mutex_);
  for (uint32_t i = 0; i < routes_.size(); ++i) {
    if (const EventFd* const event = routes_[i].event; event != nullptr) {
      RINGSIDE_RETURN_IF_ERROR(vm_.SettleIrqFd(*event, kFirstMsiGsi + i));
    }
  }
  return absl::OkStatus();
}

void InterruptRouter::ReturnGsi(uint32_t gsi) {
  const MutexLock lock(mutex_);
  routes_[gsi - kFirstMsiGsi] = {};  // KVM hears of it with the next table
}

absl::Status InterruptRouter::SetRoute(uint32_t gsi, const MsiMessage& message) {
  const MutexLock lock(mutex_);
  std::optional<MsiMessage>& route = routes_[gsi - kFirstMsiGsi].message;
  if (route == message) return absl::OkStatus();
  const std::optional<MsiMessage> before = std::exchange(route, message);
  absl::Status status = UpdateTable();
  // KVM has kept its old table; ours must not spoil the next one.
  if (!status.ok()) route = before;
  return status;
}

absl::Status InterruptRouter::UpdateTable() {
  std::vector<kvm_irq_routing_entry> entries = PinRoutes();
  for (uint32_t i = 0; i < routes_.size(); ++i) {
    const std::optional<MsiMessage>& message = routes_[i].message;
    if (message) entries.push_back(MsiRoute(kFirstMsiGsi + i, message->address, message->data));
  }
  ++table_updates_;
  return vm_.SetGsiRouting(entries);
}

uint64_t InterruptRouter::table_updates() const {
  const MutexLock lock(mutex_);
  return table_updates_;
}

absl::Status InterruptRouter::AddDoorbell(uint64_t address, const EventFd& kick) {
  absl::Status status = vm_.AddIoEventFd(address, kick);
  if (!status.ok()) LogFailure(status);
  return status;
}

void InterruptRouter::RemoveDoorbell(uint64_t address, const EventFd& kick) {
  if (absl::Status status = vm_.RemoveIoEventFd(address, kick); !status.ok()) LogFailure(status);
}

void InterruptRouter::LogFailure(const absl::Status& status) {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(failure_logged_, true)) return;
  }
  log_.Log(Severity::kError, "%s: an interrupt or doorbell does not work as the guest set it up",
           Message(status));
}

}  // namespace ringside
