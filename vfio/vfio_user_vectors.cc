#include "vfio/vfio_user_vectors.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>

#include "base/status.h"
#include "vfio/vfio_user_session.h"

namespace ringside {
namespace {

constexpr int64_t kPatienceNs = 10'000'000;

constexpr size_t kIrqSetBytes = offsetof(vfio_irq_set, data);

VfioUserPayload SetIrqs(uint32_t flags, size_t start, size_t count) {
  VfioUserPayload payload(kIrqSetBytes);
  const uint32_t fields[] = {kIrqSetBytes, flags, VFIO_PCI_MSIX_IRQ_INDEX,
                             static_cast<uint32_t>(start), static_cast<uint32_t>(count)};
  static_assert(sizeof fields == kIrqSetBytes);
  std::memcpy(payload.data(), fields, sizeof fields);
  return payload;
}

}  // namespace

void VfioUserVectors::Up(uint32_t count, Control control, uint32_t max_fds) {
  const MutexLock lock(mutex_);
  if (vectors_ == nullptr) {
    count_ = count;
    vectors_ = std::make_unique<Vector[]>(count);
  }
  for (uint32_t i = 0; i < count_; ++i) vectors_[i].held = Held::kNothing;
  control_ = control;
  max_fds_ = max_fds;
  enabled_.reset();
  under_way_.reset();
  refused_ = false;
  down_.store(false, std::memory_order_relaxed);
}

void VfioUserVectors::Down() {
  const MutexLock lock(mutex_);
  // Relaxed: it says nothing of other memory. Whoever has missed it asks again.
  down_.store(true, std::memory_order_relaxed);
  Tell(absl::UnavailableError("it is gone"));
}

absl::Status VfioUserVectors::Set(std::span<const int> eventfds) {
  std::vector<UniqueFd> copies;
  for (const int fd : eventfds) {
    copies.emplace_back(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (fd >= 0 && !copies.back().valid()) return ErrnoError(errno, "cannot keep an interrupt");
  }
  {
    // In one go: a server that is told between the two would be told the same once more.
    const MutexLock lock(mutex_);
    eventfds_.swap(copies);
    taken_.assign(eventfds_.size(), 0);
    if (down_) return absl::OkStatus();
    Forget();
  }
  return Settle();
}

absl::Status VfioUserVectors::Restore() {
  {
    const MutexLock lock(mutex_);
    if (down_) return absl::OkStatus();
    Forget();
  }
  return Settle();
}

void VfioUserVectors::Forget() {
  for (uint32_t i = 0; i < count_; ++i) {
    if (vectors_[i].held != Held::kNothing) vectors_[i].held = Held::kForgotten;
  }
  enabled_.reset();
  refused_ = false;
  if (under_way_) under_way_->is_stale = true;
}

absl::Status VfioUserVectors::Settle() {
  Event settled;
  {
    const MutexLock lock(mutex_);
    if (down_) return absl::UnavailableError("it is gone");
    waiter_ = &settled;
  }
  wake_.Signal();
  // Bounded: each command is, and what breaks the connection tells.
  settled.Wait();
  const MutexLock lock(mutex_);
  return outcome_;
}

void VfioUserVectors::Tell(const absl::Status& status) {
  if (waiter_ == nullptr) return;
  outcome_ = status;
  std::exchange(waiter_, nullptr)->Notify();
}

void VfioUserVectors::Mask(uint32_t vector) {
  Vector& each = vectors_[vector];
  const uint32_t wish = each.wish.load(std::memory_order_relaxed);  // this thread's alone
  if ((wish & 1) != 0) return;
  each.was_in_force = each.IsInForce(wish);
  each.wish.store(wish + 1, std::memory_order_relaxed);  // a wish says nothing of other memory
  wake_.Signal();
}

bool VfioUserVectors::Unmask(uint32_t vector) {
  Vector& each = vectors_[vector];
  uint32_t wish = each.wish.load(std::memory_order_relaxed);
  if ((wish & 1) != 0) {
    // A store and a load, against those in TakeWish: in one order of all, either this sees that
    // the server is told, or that sees that it need not be.
    each.wish.store(wish + 1, std::memory_order_seq_cst);
    if (each.was_in_force && each.told.load(std::memory_order_seq_cst) != wish) {
      each.in_force_without = wish + 1;
    } else {
      wake_.Signal();
    }
    ++wish;
  }
  return each.IsInForce(wish) || down_.load(std::memory_order_relaxed);
}

std::optional<VfioUserVectors::Request> VfioUserVectors::Next(int64_t now_ns, int64_t& again_ns) {
  const MutexLock lock(mutex_);
  if (down_ || refused_ || under_way_) return std::nullopt;
  std::optional<Request> request = Find(now_ns, again_ns);
  if (request) {
    request->ticket = ++ticket_;
  } else {
    Tell(absl::OkStatus());
  }
  return request;
}

uint32_t VfioUserVectors::TakeWish(Vector& vector, int64_t now_ns, int64_t& again_ns) {
  const uint32_t wish = vector.wish.load(std::memory_order_relaxed);
  if ((wish & 1) == 0 || vector.told.load(std::memory_order_relaxed) == wish) return wish;
  if (vector.seen != wish) {
    vector.seen = wish;
    vector.seen_ns = now_ns;
  }
  if (now_ns - vector.seen_ns < kPatienceNs) {
    again_ns = std::min(again_ns, vector.seen_ns + kPatienceNs);
    return wish - 1;
  }
  vector.told.store(wish, std::memory_order_seq_cst);  // see Unmask
  return vector.wish.load(std::memory_order_seq_cst);
}

std::optional<VfioUserVectors::Request> VfioUserVectors::Find(int64_t now_ns, int64_t& again_ns) {
  bool any_listens = false;
  for (size_t i = 0; i < eventfds_.size(); ++i) {
    taken_[i] = TakeWish(vectors_[i], now_ns, again_ns);
    any_listens |= eventfds_[i].valid() && !IsMasked(i);
  }
  bool any_left_over = false;
  for (size_t i = 0; i < count_; ++i) {
    const bool has_eventfd = i < eventfds_.size() && eventfds_[i].valid();
    any_left_over |= !has_eventfd && vectors_[i].held != Held::kNothing;
  }
  // Off before they are taken away: SPDK stops for good when an interrupt has nowhere to go. And
  // while all are off, it does not matter which of those that are masked the server has.
  if (!any_listens || any_left_over) {
    if (auto request = Enable(false)) return request;
  }
  if (any_left_over) return DisableAll();
  if (!any_listens && control_.offset != 0) return std::nullopt;
  if (auto request = Assign(Held::kOwn)) return request;
  if (auto request = Enable(true)) return request;
  for (size_t i = 0; i < eventfds_.size(); ++i) {
    if (!IsMasked(i)) vectors_[i].acknowledged.store(taken_[i], std::memory_order_release);
  }
  return Assign(Held::kSpare);
}

// A run of vectors that are to have their own, or the spare one, and have not.
std::optional<VfioUserVectors::Request> VfioUserVectors::Assign(Held held) {
  const auto is_due = [&](size_t i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return eventfds_[i].valid() && IsMasked(i) == (held == Held::kSpare) &&
           vectors_[i].held != held;
  };
  size_t first = 0;
  while (first < eventfds_.size() && !is_due(first)) ++first;
  if (first == eventfds_.size()) return std::nullopt;
  Request request{.command = VfioUserCommand::kSetIrqs};
  for (size_t i = first; i < eventfds_.size() && is_due(i) && request.fds.size() < max_fds_; ++i) {
    request.fds.push_back(held == Held::kSpare ? spare_.fd() : eventfds_[i].get());
  }
  request.payload =
      SetIrqs(VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, first, request.fds.size());
  under_way_ = {.first = first, .count = request.fds.size(), .held = held};
  return request;
}

std::optional<VfioUserVectors::Request> VfioUserVectors::Enable(bool enabled) {
  if (control_.offset == 0 || enabled_ == enabled) return std::nullopt;
  const auto rest = control_.value & ~(PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
  under_way_ = {.enabled = enabled};
  return Request{.command = VfioUserCommand::kRegionWrite,
                 .payload = VfioUserRegionWrite(
                     VFIO_PCI_CONFIG_REGION_INDEX, control_.offset, 2,
                     static_cast<uint32_t>(rest) | (enabled ? PCI_MSIX_FLAGS_ENABLE : 0U))};
}

VfioUserVectors::Request VfioUserVectors::DisableAll() {
  under_way_ = {.first = 0, .count = count_, .held = Held::kNothing};
  return {.command = VfioUserCommand::kSetIrqs,
          .payload = SetIrqs(VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, 0, 0)};
}

absl::Status VfioUserVectors::Done(uint64_t ticket, const absl::Status& status) {
  const MutexLock lock(mutex_);
  if (down_ || !under_way_ || ticket != ticket_) return absl::OkStatus();
  const Change change = *std::exchange(under_way_, std::nullopt);
  if (!status.ok()) {
    refused_ = true;
    const bool is_waited_for = waiter_ != nullptr;
    Tell(status);
    return is_waited_for ? absl::OkStatus() : status;
  }
  const bool is_forgotten = change.is_stale && change.held != Held::kNothing;
  for (size_t i = 0; i < change.count; ++i) {
    vectors_[change.first + i].held = is_forgotten ? Held::kForgotten : change.held;
  }
  if (change.enabled && !change.is_stale) enabled_ = change.enabled;
  return absl::OkStatus();
}

}  // namespace ringside
