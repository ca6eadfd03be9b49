// A vfio-user server for tests: it offers a PciDevice, such as an NvmeModel's, on a Unix socket to
// one client at a time, and holds it to the protocol: whatever a client must not send is recorded,
// see violations(). When its client goes, the device's handle is dropped, as the kernel does it to
// a process that dies, and the next client may come.
//
// Threads: any; one of its own serves.
// Ownership: what `attach` takes from outlives the server.
// Errors: those of its own, such as a path that cannot be, end the program: it is for tests.
// Source: the vfio-user protocol 0.1, docs/interop/vfio-user.rst of QEMU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/sync.h"
#include "tests/support/nvme/nvme_model.h"
#include "vfio/pci_device.h"
#include "vfio/vfio_user_protocol.h"

namespace ringside::testing {

struct VfioUserServed {
  std::unique_ptr<PciDevice> device;
  int bar_fd = -1;        // its offsets are BAR 0's; stays as long as the device
  uint64_t mappable = 0;  // from here to the descriptor's end BAR 0 is memory
};

struct VfioUserServerConfig {
  uint16_t major = kVfioUserMajor;
  uint32_t max_fds = 16;  // max_msg_fds
  uint64_t max_dma_maps = kVfioUserDefaultDmaMaps;
  bool resets = true;    // VFIO_DEVICE_FLAGS_RESET
  bool mappable = true;  // else BAR 0 is to be had by messages only
  // Configuration space has an MSI-X capability, and there are interrupts only while it is enabled;
  // else there are always.
  bool msix_control = true;
};

struct VfioUserMessage;
class VfioUserSession;

// For models that are served: the protocol has no word about which I/O addresses there are.
inline const std::vector<IovaRange> kAllIova = {{0, UINT64_MAX}};

class VfioUserServer {
 public:
  using Attach = std::function<VfioUserServed()>;

  // Listens from now on; a socket that is at the path already is replaced.
  VfioUserServer(const std::string& path, Attach attach, const VfioUserServerConfig& config = {});
  VfioUserServer(const std::string& path, NvmeModel& model,
                 const VfioUserServerConfig& config = {});
  // As if its process ended: the socket stays at the path, and nobody listens.
  ~VfioUserServer();

  // Misbehaviour. Takes and answers no message until it is to go on.
  void Pause();
  void Resume();
  // Answers each message so much later.
  void SetDelay(absl::Duration delay);
  // Answers so many messages more; at the next it is as if its process ended.
  void DieAfter(uint32_t messages);
  // Answers that command with an errno and does nothing. 0: no longer.
  void Refuse(VfioUserCommand command, int error);
  // Sends a command of its own, which a client has to refuse, before each answer.
  void SetTalkative(bool talkative);

  // What clients must not have done, in their order.
  std::vector<std::string> violations() const;
  // How often this has come from any client.
  uint64_t received(VfioUserCommand command) const;
  // That have come so far.
  uint32_t clients() const;
  // Of the client that is there, if one is.
  bool has_client() const;
  size_t mappings() const;
  size_t assigned() const;  // vectors

 private:
  void Serve();
  void ServeClient(int socket);
  // False: it is time to die.
  bool Answer(int socket, const VfioUserMessage& message);
  void TakeReply(const VfioUserMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitBeforeAnswer() const;

  const VfioUserServerConfig config_;
  const Attach attach_;
  UniqueFd listener_;
  const EventFd stop_;
  std::atomic<bool> is_paused_{false};
  std::atomic<int64_t> delay_ns_{0};

  mutable Mutex mutex_;
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mutex_);
  std::map<VfioUserCommand, uint64_t> received_ ABSL_GUARDED_BY(mutex_);
  std::map<VfioUserCommand, int> refused_ ABSL_GUARDED_BY(mutex_);
  uint32_t messages_left_ ABSL_GUARDED_BY(mutex_) = UINT32_MAX;
  bool is_talkative_ ABSL_GUARDED_BY(mutex_) = false;
  bool expects_reply_ ABSL_GUARDED_BY(mutex_) = false;  // to what it sent of its own
  uint32_t clients_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<VfioUserSession> session_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace ringside::testing
