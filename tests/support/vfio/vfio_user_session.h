// One client of a VfioUserServer: what it has negotiated, mapped and assigned, and the device that
// its messages act on. Dropping it drops the device's handle.
//
// Threads: one at a time.
// Errors: what a client must not send is a violation, and mostly refused.
// Source: the vfio-user protocol 0.1, docs/interop/vfio-user.rst of QEMU, whose sections have the
// commands' names; linux/vfio.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/support/vfio/vfio_user_server.h"
#include "tests/support/vfio/vfio_user_wire.h"

namespace ringside::testing {

class VfioUserSession {
 public:
  VfioUserSession(const VfioUserServerConfig& config, VfioUserServed served,
                  std::vector<std::string>& violations);
  ~VfioUserSession();

  // What comes as a reply, if the message wants one.
  VfioUserReply Handle(const VfioUserMessage& message);
  // There is no talking to such a client.
  bool is_over() const { return over_; }
  size_t mappings() const { return mappings_.size(); }
  // Vectors that have an eventfd.
  size_t assigned() const;

 private:
  struct Mapping {
    std::byte* host;
    uint64_t size;
  };

  template <typename... Args>
  VfioUserReply Violate(int error, const absl::FormatSpec<Args...>& format, const Args&... args) {
    violations_.push_back(absl::StrFormat(format, args...));
    return {.error = error};
  }
  // Of the header, the size and the descriptors: false if the message cannot be acted on.
  bool IsSound(const VfioUserMessage& message);
  void CheckFlags(const VfioUserMessage& message);
  VfioUserReply Version(const VfioUserMessage& message);
  VfioUserReply GetInfo(const VfioUserMessage& message);
  VfioUserReply GetRegionInfo(const VfioUserMessage& message);
  VfioUserReply GetIrqInfo(const VfioUserMessage& message);
  VfioUserReply DmaMap(const VfioUserMessage& message);
  VfioUserReply DmaUnmap(const VfioUserMessage& message);
  VfioUserReply RegionAccess(const VfioUserMessage& message);
  // False: not in such pieces.
  bool Access(uint32_t region, uint64_t offset, std::span<std::byte> data, bool write);
  VfioUserReply SetIrqs(const VfioUserMessage& message);
  VfioUserReply SetEventfds(uint32_t start, uint32_t count, const std::vector<UniqueFd>& fds);
  VfioUserReply ApplyVectors();
  // With the capability that the server gives the device.
  uint32_t ReadConfig(uint32_t offset, uint32_t size);
  void WriteConfig(uint32_t offset, uint32_t size, uint32_t value);
  bool msix_enabled() const { return !config_.msix_control || (msix_control_ & 0xc0) == 0x80; }
  VfioUserReply Reset();
  uint64_t bar_size() const;

  const VfioUserServerConfig& config_;
  std::vector<std::string>& violations_;
  VfioUserServed served_;
  bool negotiated_ = false;
  bool over_ = false;
  uint32_t max_fds_ = kVfioUserDefaultMessageFds;  // that the client may send at once
  std::map<uint64_t, Mapping> mappings_;           // by I/O address
  std::vector<UniqueFd> eventfds_;                 // by vector
  uint8_t msix_control_ = 0;                       // its upper half
};

}  // namespace ringside::testing
