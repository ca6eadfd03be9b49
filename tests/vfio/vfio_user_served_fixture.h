// The client of vfio-user against a server in the same process, behind which is a device that keeps
// what it is told.
#pragma once

#include <array>
#include <gmock/gmock.h>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "tests/support/descriptors.h"
#include "tests/support/directories.h"
#include "tests/support/recording_log.h"
#include "tests/support/shared_pages.h"
#include "tests/support/vfio/vfio_user_server.h"
#include "vfio/vfio_user_device.h"

namespace ringside::testing {

// What a device has been told, whoever told it.
//
// Threads: any.
class FarEnd {
 public:
  static constexpr uint64_t kMappable = 4096;
  static constexpr uint64_t kBarSize = uint64_t{4} * 4096;

  explicit FarEnd(uint32_t vectors) : vectors_(vectors) {}

  VfioUserServed Attach();
  const SharedPages& bar() const { return bar_; }
  // A register that is no memory.
  uint32_t reg(uint64_t offset) const { return Get(registers_, offset); }
  void SetRegister(uint64_t offset, uint32_t value) {
    const MutexLock lock(mutex_);
    registers_[offset] = value;
  }
  uint32_t config(uint32_t offset) const { return Get(config_, offset); }
  // Null: not mapped.
  std::byte* Dma(uint64_t iova) const {
    const MutexLock lock(mutex_);
    const auto found = mappings_.find(iova);
    return found == mappings_.end() ? nullptr : found->second.host;
  }
  size_t mappings() const {
    const MutexLock lock(mutex_);
    return mappings_.size();
  }
  // False: the vector has no eventfd.
  bool Raise(uint32_t vector) const {
    const MutexLock lock(mutex_);
    const uint64_t one = 1;
    return vector < eventfds_.size() && eventfds_[vector].valid() &&
           write(eventfds_[vector].get(), &one, sizeof one) == sizeof one;
  }
  int resets() const {
    const MutexLock lock(mutex_);
    return resets_;
  }

 private:
  class Handle;

  template <typename Map>
  uint32_t Get(const Map& map, typename Map::key_type at) const {
    const MutexLock lock(mutex_);
    const auto found = map.find(at);
    return found == map.end() ? 0 : found->second;
  }

  const uint32_t vectors_;
  const SharedPages bar_{kBarSize};
  mutable Mutex mutex_;
  std::map<uint64_t, uint32_t> registers_;
  std::map<uint32_t, uint32_t> config_;  // by offset, as it was written
  std::map<uint64_t, DmaMapping> mappings_;
  std::vector<UniqueFd> eventfds_;
  int resets_ = 0;
};

class FarEnd::Handle final : public PciDevice {
 public:
  explicit Handle(FarEnd& end) : end_(end) {}
  ~Handle() override {
    const MutexLock lock(end_.mutex_);
    end_.mappings_.clear();
    end_.eventfds_.clear();
  }

  const std::string& name() const override { return name_; }
  uint32_t ReadConfig(uint32_t offset, uint32_t size) override {
    return end_.config(offset) & (size == 4 ? ~0U : (1U << size * 8) - 1);
  }
  void WriteConfig(uint32_t offset, uint32_t, uint32_t value) override {
    const MutexLock lock(end_.mutex_);
    end_.config_[offset] = value;
  }
  uint32_t ReadBar(int bar, uint64_t offset) override { return bar == 0 ? end_.reg(offset) : ~0U; }
  void WriteBar(int, uint64_t offset, uint32_t value) override { end_.SetRegister(offset, value); }
  absl::StatusOr<std::byte*> MapBar(int, uint64_t, uint64_t) override {
    return absl::UnimplementedError("the descriptor is handed out");
  }
  std::span<const IovaRange> iova_ranges() const override { return kAllIova; }
  absl::Status MapDma(const DmaMapping& mapping) override {
    const MutexLock lock(end_.mutex_);
    if (!end_.mappings_.emplace(mapping.iova, mapping).second) {
      return absl::AlreadyExistsError("mapped");
    }
    return absl::OkStatus();
  }
  absl::Status UnmapDma(uint64_t iova, uint64_t) override {
    const MutexLock lock(end_.mutex_);
    return end_.mappings_.erase(iova) == 1 ? absl::OkStatus() : absl::NotFoundError("not mapped");
  }
  uint32_t vectors() const override { return end_.vectors_; }
  absl::Status SetVectors(std::span<const int> eventfds) override {
    const MutexLock lock(end_.mutex_);
    end_.eventfds_.clear();
    for (const int each : eventfds) end_.eventfds_.emplace_back(each < 0 ? -1 : dup(each));
    return absl::OkStatus();
  }
  void MaskVector(uint32_t) override {}
  bool UnmaskVector(uint32_t) override { return true; }
  absl::Status Reset() override {
    const MutexLock lock(end_.mutex_);
    ++end_.resets_;
    return absl::OkStatus();
  }

 private:
  FarEnd& end_;
  const std::string name_ = "far end";
};

inline VfioUserServed FarEnd::Attach() {
  VfioUserServed served = {.device = std::make_unique<Handle>(*this)};
  served.bar_fd = bar_.fd();
  served.mappable = kMappable;
  return served;
}

// Whatever a test does, the server must have nothing to complain of.
class VfioUserServedTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kVectors = 40;
  static constexpr uint64_t kMiB = 1 << 20;

  void Serve(const VfioUserServerConfig& config = {}) {
    server_ = std::make_unique<VfioUserServer>(path_, [this] { return end_.Attach(); }, config);
  }
  // The server's process ends.
  void Kill() {
    ExpectNoViolation();
    server_.reset();
  }
  absl::StatusOr<std::unique_ptr<PciDevice>> TryConnect(
      absl::Duration timeout = absl::Seconds(20)) {
    return OpenVfioUserDevice(path_, {.timeout = timeout, .log = Logger(&log_)});
  }
  void Connect(absl::Duration timeout = absl::Seconds(20)) {
    auto device = TryConnect(timeout);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  void Start(const VfioUserServerConfig& config = {}) {
    Serve(config);
    Connect();
  }
  void ExpectNoViolation() {
    if (server_ == nullptr) return;
    EXPECT_THAT(server_->violations(), ::testing::IsEmpty());
  }
  void TearDown() override {
    device_.reset();
    ExpectNoViolation();
    server_.reset();
  }
  // Each vector with an eventfd of its own.
  absl::Status SetVectors(uint32_t count) {
    std::vector<int> fds;
    eventfds_.clear();
    for (uint32_t i = 0; i < count; ++i) {
      eventfds_.push_back(EventFd::Create().value());
      fds.push_back(eventfds_.back().fd());
    }
    return device_->SetVectors(fds);
  }
  // Whether the far end's interrupt comes out at this vector, and nowhere else.
  bool Arrives(uint32_t vector) {
    if (!end_.Raise(vector)) return false;
    bool elsewhere = false;
    bool arrives = false;
    for (uint32_t i = 0; i < eventfds_.size(); ++i) {
      (i == vector ? arrives : elsewhere) |= eventfds_[i].Clear() != 0;
    }
    return arrives && !elsewhere;
  }
  bool IsGone() const {
    return device_->gone_fd() >= 0 && WaitForFd(device_->gone_fd(), POLLIN, absl::ZeroDuration());
  }
  bool WaitUntilGone() const { return WaitForFd(device_->gone_fd(), POLLIN); }

  const TempDirectory directory_;
  const std::string path_ = directory_ / "socket";
  RecordingLog log_;
  FarEnd end_{kVectors};
  std::unique_ptr<VfioUserServer> server_;
  std::unique_ptr<PciDevice> device_;
  std::vector<EventFd> eventfds_;
};

}  // namespace ringside::testing
