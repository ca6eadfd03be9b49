// PciPlatform over KVM: MSI-X vectors as irqfds with a GSI each, doorbells as ioeventfds.
//
// KVM_SET_GSI_ROUTING replaces KVM's whole table, so the router keeps it whole: what KVM's own
// default routing has, and the message of every vector that was ever unmasked. A vector keeps its
// route while it is masked: masking and unmasking, which Linux does often, then costs an irqfd and
// no new table.
//
// Threads: any; a mutex guards the table. Of one vector: one at a time.
// Ownership: the KvmVm outlives the router, and the router its vectors.
// Errors: what KVM refuses leaves the vector masked, or the doorbell to its handler; the first such
// failure is logged, the others would only repeat it.
// Spec: Linux Documentation/virt/kvm/api.rst, KVM_SET_GSI_ROUTING, KVM_IRQFD, KVM_IOEVENTFD.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/log.h"
#include "base/sync.h"
#include "devices/interrupt.h"
#include "kvm/kvm.h"

namespace ringside {

class InterruptRouter final : public PciPlatform {
 public:
  InterruptRouter(KvmVm& vm, Logger log) : vm_(vm), log_(log) {}

  absl::StatusOr<std::unique_ptr<MsiVector>> NewMsiVector() override;
  absl::Status AddDoorbell(uint64_t address, const EventFd& kick) override;
  void RemoveDoorbell(uint64_t address, const EventFd& kick) override;

  // While nobody signals a vector: waits until none of their interrupts is on its way any more.
  absl::Status Settle();

  // How often the table was handed to KVM.
  uint64_t table_updates() const;

 private:
  class Vector;
  struct MsiMessage {
    uint64_t address;
    uint32_t data;
    bool operator==(const MsiMessage&) const = default;
  };
  struct Route {
    bool used = false;                  // a vector has this GSI
    const EventFd* event = nullptr;     // that KVM listens to; null: masked
    std::optional<MsiMessage> message;  // as KVM has it
  };

  // None if KVM's table is full.
  std::optional<uint32_t> TakeGsi() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnGsi(uint32_t gsi);
  void SetEvent(uint32_t gsi, const EventFd* event);
  // Makes the GSI mean this message. On an error it means what it did.
  absl::Status SetRoute(uint32_t gsi, const MsiMessage& message);
  absl::Status UpdateTable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogFailure(const absl::Status& status);

  KvmVm& vm_;
  const Logger log_;
  mutable Mutex mutex_;
  std::vector<Route> routes_ ABSL_GUARDED_BY(mutex_);  // of the GSIs behind the IOAPIC's
  uint64_t table_updates_ ABSL_GUARDED_BY(mutex_) = 0;
  bool failure_logged_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ringside
