#include "vfio/vfio_user_device.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_limit.h"
#include "base/slow_notice.h"
#include "base/status.h"
#include "base/sync.h"
#include "vfio/pci_capability.h"
#include "vfio/vfio_user_bars.h"
#include "vfio/vfio_user_dma.h"
#include "vfio/vfio_user_vectors.h"

namespace ringside {
namespace {

constexpr uint32_t kAllOnes = 0xffffffff;
constexpr uint32_t kConfig = VFIO_PCI_CONFIG_REGION_INDEX;
// Room enough, and nobody's sums run over.
constexpr IovaRange kIovaRange = {.first = 0, .last = (uint64_t{1} << 48) - 1};

// By which another server's device is known to be the same.
struct Identity {
  uint32_t ids;  // vendor and device
  uint32_t class_code;
  uint32_t vectors;
  std::array<uint64_t, VfioUserBars::kBars> bar_sizes;

  bool operator==(const Identity&) const = default;
};

class VfioUserDevice final : public PciDevice, private VfioUserConnection::Handler {
 public:
  VfioUserDevice(std::string path, const VfioUserOptions& options, EventFd wake, EventFd spare,
                 EventFd gone)
      : path_(std::move(path)),
        options_(options),
        log_(options.log, kMostLines),
        wake_(std::move(wake)),
        gone_(std::move(gone)),
        bars_(path_),
        dma_(path_),
        vectors_(wake_, std::move(spare)) {}
  ~VfioUserDevice() override { Replace(nullptr); }

  // Connects, sets up or restores, and resets. On an error there is no connection.
  absl::Status Connect();

  const std::string& name() const override { return path_; }
  uint32_t ReadConfig(uint32_t offset, uint32_t size) override;
  void WriteConfig(uint32_t offset, uint32_t size, uint32_t value) override;
  uint32_t ReadBar(int bar, uint64_t offset) override;
  void WriteBar(int bar, uint64_t offset, uint32_t value) override;
  absl::StatusOr<std::byte*> MapBar(int bar, uint64_t offset, uint64_t size) override;
  std::span<const IovaRange> iova_ranges() const override { return {&kIovaRange, 1}; }
  absl::Status MapDma(const DmaMapping& mapping) override;
  absl::Status UnmapDma(uint64_t iova, uint64_t size) override;
  uint32_t vectors() const override { return vectors_.count(); }
  absl::Status SetVectors(std::span<const int> eventfds) override;
  void MaskVector(uint32_t vector) override {
    if (vector < vectors_.count()) vectors_.Mask(vector);
  }
  bool UnmaskVector(uint32_t vector) override {
    return vector >= vectors_.count() || vectors_.Unmask(vector);
  }
  absl::Status Reset() override;
  void Hurry(int64_t end_ns) override;
  int gone_fd() const override { return gone_.fd(); }

 private:
  using Session = std::shared_ptr<VfioUserSession>;
  static constexpr int kMostLines = 3;  // at once; who drives the device says something too

  // All that is asked in its life is answered within the options' limit, or the connection breaks.
  class Limit {
   public:
    Limit(Session session, absl::Duration limit) : session_(std::move(session)) {
      session_->connection().EndBy(MonotonicNs() + absl::ToInt64Nanoseconds(limit));
    }
    ~Limit() { session_->connection().EndBy(VfioUserConnection::kNever); }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

   private:
    const Session session_;
  };

  absl::StatusOr<VfioUserPayload> Serve(const VfioUserMessage& command) override {
    return dma_.Serve(command);
  }
  int64_t Woken(VfioUserConnection& connection) override;
  void Gone(VfioUserConnection& connection, const absl::Status& why) override;

  // The latest, which may be broken; null: none.
  Session session();
  // The one that is set up; null while the server is gone.
  Session SessionHere();
  void Replace(Session session);
  bool IsOver();

  absl::Status SetUp(VfioUserSession& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mutex_);
  absl::Status Compare(const Identity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mutex_);
  VfioUserVectors::Control FindVectorControl();
  // `command`: what the command register holds afterwards.
  absl::Status ResetFunction(VfioUserSession& session, uint32_t command)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_mutex_);
  absl::Status Arrive(VfioUserSession& session);
  // Where the device is not named yet.
  absl::Status Named(const absl::Status& status) const;
  bool IsLatest(const VfioUserConnection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t Read(uint32_t region, uint64_t offset, uint32_t size);
  void Write(uint32_t region, uint64_t offset, uint32_t size, uint32_t value);

  const std::string path_;
  const VfioUserOptions options_;
  LogLimit log_;        // a server may go and come back for ever
  const EventFd wake_;  // the connection's thread
  const EventFd gone_;
  VfioUserBars bars_;
  VfioUserDma dma_;
  VfioUserVectors vectors_;

  Mutex control_mutex_;  // one at a time of what asks the server, but for registers
  std::optional<Identity> identity_ ABSL_GUARDED_BY(control_mutex_);
  bool can_reset_ ABSL_GUARDED_BY(control_mutex_) = false;

  Mutex mutex_;
  Session session_ ABSL_GUARDED_BY(mutex_);
  bool is_here_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> hurry_ns_ ABSL_GUARDED_BY(mutex_);  // the machine is over
};

VfioUserDevice::Session VfioUserDevice::session() {
  const MutexLock lock(mutex_);
  return session_;
}

VfioUserDevice::Session VfioUserDevice::SessionHere() {
  const MutexLock lock(mutex_);
  return is_here_ ? session_ : nullptr;
}

// What was there ends behind the lock: that waits for its thread, which may want it.
void VfioUserDevice::Replace(Session session) {
  const MutexLock lock(mutex_);
  if (session != nullptr && hurry_ns_) session->connection().Hurry(*hurry_ns_);
  session_.swap(session);
}

bool VfioUserDevice::IsOver() {
  const MutexLock lock(mutex_);
  return hurry_ns_.has_value();
}

void VfioUserDevice::Hurry(int64_t end_ns) {
  const MutexLock lock(mutex_);
  hurry_ns_ = std::min(end_ns, hurry_ns_.value_or(end_ns));
  if (session_ != nullptr) session_->connection().Hurry(*hurry_ns_);
}

absl::Status VfioUserDevice::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return {status.code(),
          absl::StrFormat("cannot set up vfio-user device '%s': %s", path_, Message(status))};
}

bool VfioUserDevice::IsLatest(const VfioUserConnection& connection) {
  return session_ != nullptr && &session_->connection() == &connection;
}

absl::Status VfioUserDevice::Connect() {
  const MutexLock lock(control_mutex_);
  Replace(nullptr);
  if (IsOver()) return absl::UnavailableError("it is not needed any more");
  RINGSIDE_ASSIGN_OR_RETURN(Session fresh,
                            VfioUserSession::Connect(path_, options_.timeout, *this, wake_));
  Replace(fresh);  // before it is waited for, so that Hurry finds it
  std::optional<Limit> limit(std::in_place, fresh, options_.limit);
  absl::Status status = fresh->Negotiate();
  if (status.ok()) status = SetUp(*fresh);
  if (status.ok()) status = Arrive(*fresh);
  limit.reset();
  if (!status.ok()) {
    fresh.reset();
    Replace(nullptr);
    vectors_.Down();
    bars_.Detach();
  }
  return status;
}

absl::Status VfioUserDevice::SetUp(VfioUserSession& session) {
  RINGSIDE_ASSIGN_OR_RETURN(const VfioUserDeviceInfo info, session.GetInfo());
  can_reset_ = (info.flags & VFIO_DEVICE_FLAGS_RESET) != 0;
  VfioUserBars::Regions regions;
  Identity identity{};
  for (uint32_t bar = 0; bar < VfioUserBars::kBars; ++bar) {
    RINGSIDE_ASSIGN_OR_RETURN(regions[bar], session.GetRegion(VFIO_PCI_BAR0_REGION_INDEX + bar));
    identity.bar_sizes[bar] = regions[bar].layout.size;
  }
  RINGSIDE_ASSIGN_OR_RETURN(identity.vectors, session.GetVectors(info));
  RINGSIDE_ASSIGN_OR_RETURN(identity.ids, session.Read(kConfig, PCI_VENDOR_ID, 4));
  RINGSIDE_ASSIGN_OR_RETURN(const uint32_t class_revision,
                            session.Read(kConfig, PCI_CLASS_REVISION, 4));
  identity.class_code = class_revision >> 8;
  RINGSIDE_RETURN_IF_ERROR(Compare(identity));

  vectors_.Up(identity.vectors, FindVectorControl(), session.capabilities().max_fds);
  // Who is broken already will not say so again, and nobody would tell the vectors.
  RINGSIDE_RETURN_IF_ERROR(Named(session.connection().status()));
  RINGSIDE_RETURN_IF_ERROR(ResetFunction(session, PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE));
  RINGSIDE_RETURN_IF_ERROR(dma_.MapAll(session));
  RINGSIDE_RETURN_IF_ERROR(bars_.Attach(std::move(regions)));
  identity_ = identity;
  return absl::OkStatus();
}

absl::Status VfioUserDevice::Compare(const Identity& identity) {
  if (!identity_ || *identity_ == identity) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat(
      "vfio-user device '%s' has come back as another: PCI device %04x:%04x of class %06x with %d "
      "vectors instead of %04x:%04x of class %06x with %d, or its BARs differ",
      path_, identity.ids & 0xffff, identity.ids >> 16, identity.class_code, identity.vectors,
      identity_->ids & 0xffff, identity_->ids >> 16, identity_->class_code, identity_->vectors));
}

VfioUserVectors::Control VfioUserDevice::FindVectorControl() {
  const uint32_t capability = FindPciCapability(*this, PCI_CAP_ID_MSIX);
  if (capability == 0) return {};
  const uint32_t offset = capability + PCI_MSIX_FLAGS;
  return {.offset = offset, .value = static_cast<uint16_t>(ReadConfig(offset, 2))};
}

absl::Status VfioUserDevice::ResetFunction(VfioUserSession& session, uint32_t command) {
  if (can_reset_) RINGSIDE_RETURN_IF_ERROR(session.Reset());
  // Some servers take these back to what a reset leaves, as the function itself would.
  RINGSIDE_RETURN_IF_ERROR(session.Write(kConfig, PCI_COMMAND, 2, command));
  return Named(vectors_.Restore());
}

absl::Status VfioUserDevice::Arrive(VfioUserSession& session) {
  const MutexLock lock(mutex_);
  RINGSIDE_RETURN_IF_ERROR(Named(session.connection().status()));
  is_here_ = true;
  gone_.Clear();
  return absl::OkStatus();
}

int64_t VfioUserDevice::Woken(VfioUserConnection& connection) {
  {
    const MutexLock lock(mutex_);
    if (!IsLatest(connection)) {
      // A broken one may have taken the signal from its successor.
      if (session_ != nullptr) wake_.Signal();
      return VfioUserConnection::kNever;
    }
  }
  int64_t again_ns = VfioUserConnection::kNever;
  std::optional<VfioUserVectors::Request> request = vectors_.Next(MonotonicNs(), again_ns);
  if (!request) return again_ns;
  const auto done = [this, &connection,
                     ticket = request->ticket](const VfioUserConnection::Answer& answer) {
    const absl::Status refused = vectors_.Done(ticket, answer.status());
    if (!refused.ok()) connection.Break(refused);
    if (answer.ok()) wake_.Signal();  // there may be more
  };
  connection.Start(request->command, request->payload, request->fds, done);
  return again_ns;
}

void VfioUserDevice::Gone(VfioUserConnection& connection, const absl::Status& why) {
  // Under the lock to the end: a successor begins with Replace.
  const MutexLock lock(mutex_);
  if (!IsLatest(connection)) return;
  vectors_.Down();
  if (!std::exchange(is_here_, false)) return;
  bars_.Detach();
  // That its time is over is the machine's doing.
  if (!hurry_ns_ || MonotonicNs() < *hurry_ns_) {
    log_.Log(Severity::kWarning, "vfio-user device '%s' is gone: %s", path_, Message(why));
  }
  gone_.Signal();
}

uint32_t VfioUserDevice::Read(uint32_t region, uint64_t offset, uint32_t size) {
  const Session latest = session();
  const uint32_t all_ones = kAllOnes >> (32 - 8 * std::min(size, 4U));
  return latest == nullptr ? all_ones : latest->Read(region, offset, size).value_or(all_ones);
}

void VfioUserDevice::Write(uint32_t region, uint64_t offset, uint32_t size, uint32_t value) {
  // Goes nowhere if it fails, as on the bus.
  if (const Session latest = session()) latest->Write(region, offset, size, value).IgnoreError();
}

uint32_t VfioUserDevice::ReadConfig(uint32_t offset, uint32_t size) {
  return Read(kConfig, offset, size);
}

void VfioUserDevice::WriteConfig(uint32_t offset, uint32_t size, uint32_t value) {
  Write(kConfig, offset, size, value);
}

uint32_t VfioUserDevice::ReadBar(int bar, uint64_t offset) {
  return Read(VFIO_PCI_BAR0_REGION_INDEX + static_cast<uint32_t>(bar), offset, sizeof(uint32_t));
}

void VfioUserDevice::WriteBar(int bar, uint64_t offset, uint32_t value) {
  Write(VFIO_PCI_BAR0_REGION_INDEX + static_cast<uint32_t>(bar), offset, sizeof value, value);
}

absl::StatusOr<std::byte*> VfioUserDevice::MapBar(int bar, uint64_t offset, uint64_t size) {
  const MutexLock lock(control_mutex_);
  return bars_.Map(static_cast<size_t>(bar), offset, size);
}

absl::Status VfioUserDevice::MapDma(const DmaMapping& mapping) {
  const MutexLock lock(control_mutex_);
  return dma_.Map(mapping, SessionHere().get());
}

absl::Status VfioUserDevice::UnmapDma(uint64_t iova, uint64_t size) {
  const MutexLock lock(control_mutex_);
  return dma_.Unmap(iova, size, SessionHere().get());
}

absl::Status VfioUserDevice::SetVectors(std::span<const int> eventfds) {
  if (eventfds.size() > vectors()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "vfio-user device '%s' has %d MSI-X vectors, not %d", path_, vectors(), eventfds.size()));
  }
  const MutexLock lock(control_mutex_);
  std::optional<Limit> limit;
  if (Session here = SessionHere()) limit.emplace(std::move(here), options_.limit);
  absl::Status status = vectors_.Set(eventfds);
  if (status.ok()) return status;
  return {status.code(), absl::StrFormat("cannot set the interrupts of vfio-user device '%s': %s",
                                         path_, Message(status))};
}

absl::Status VfioUserDevice::Reset() {
  {
    const MutexLock lock(control_mutex_);
    if (const Session here = SessionHere()) {
      if (!can_reset_) {
        return absl::FailedPreconditionError(
            absl::StrFormat("vfio-user device '%s' cannot be reset", path_));
      }
      const Limit limit(here, options_.limit);
      RINGSIDE_ASSIGN_OR_RETURN(const uint32_t command, here->Read(kConfig, PCI_COMMAND, 2));
      return ResetFunction(*here, command);
    }
  }
  // Whatever fails, another try may do.
  const absl::Status status = Connect();
  return status.ok() ? status : absl::UnavailableError(status.message());
}

// What a user gives may be the directory that he gave SPDK.
std::string SocketPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path inside = std::filesystem::path(path) / "cntrl";
  return std::filesystem::is_socket(inside, error) ? inside.string() : path;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PciDevice>> OpenVfioUserDevice(const std::string& path,
                                                              const VfioUserOptions& options) {
  const SlowNotice notice(options.log,
                          absl::StrFormat("the server of vfio-user device '%s', %s at most", path,
                                          absl::FormatDuration(options.limit)));
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd spare, EventFd::Create());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd gone, EventFd::Create());
  auto device = std::make_unique<VfioUserDevice>(SocketPath(path), options, std::move(wake),
                                                 std::move(spare), std::move(gone));
  const absl::Status status = device->Connect();
  if (status.ok()) return device;
  // That its server is not there, or does not answer, is the user's to mend.
  return absl::IsUnavailable(status) ? absl::FailedPreconditionError(status.message()) : status;
}

}  // namespace ringside
