// libFuzzer: drivers of virtio-vsock that keep to no rule, with any packets and any descriptors in
// any of its three queues, while programs of the host connect, send, stop and go, queues move, and
// the device rests and is reset. Whatever they do, a reset ends, and the next driver, which keeps
// to the rules, has a stream to a program of the host.
#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <sys/stat.h>

#include "devices/virtio_vsock.h"
#include "tests/fuzz/queued_device_run.h"
#include "tests/support/net/host_socket.h"

namespace ringside::testing {
namespace {

constexpr uint64_t kCid = 3;
constexpr uint32_t kListened = 9;
constexpr int kFeatures[] = {28, 29};  // indirect tables, EVENT_IDX
// No more than there are steps can be waiting to be accepted when their driver goes, and the next
// one's connection needs room beside them.
constexpr int kSteps = 96;
constexpr size_t kPrograms = kSteps + 8;

// A directory for the process, which goes with it.
class Directory {
 public:
  Directory() {
    if (mkdtemp(name_.data()) == nullptr) std::abort();
  }
  ~Directory() { std::filesystem::remove_all(name_); }
  std::string socket() const { return name_ + "/s"; }

 private:
  std::string name_ = "/tmp/ringside-vsock-fuzz-XXXXXX";
};

const std::string& Path() {
  static const Directory directory;
  static const std::string path = directory.socket();
  return path;
}

class Run : public QueuedDeviceRun<VirtioVsock> {
 public:
  Run(const uint8_t* data, size_t size)
      : QueuedDeviceRun(data, size),
        host_(*VsockHost::Listen(Path())),
        listener_(ListenAnew()),
        device_(*VirtioVsock::Create(
            *host_, Memory(), Thread(input_.Next()),
            {.name = "vsock0", .cid = kCid, .max_connections = kPrograms, .log = Logger()})) {}

  void Go() {
    Start(kFeatures);
    for (int i = 0; i < kSteps && !input_.empty(); ++i) Step();
    Reset();
    Check(host_->counts().open.Get() == 0, "a reset closes all connections");
    programs_.clear();
    KeepsToTheRules();
  }

 private:
  VirtioVsock& device() override { return *device_; }

  static HostSocket ListenAnew() {
    const std::string path = Path() + "_" + std::to_string(kListened);
    std::filesystem::remove(path);
    HostSocket listener = HostSocket::ListenAt(path);
    fcntl(listener.fd(), F_SETFL, O_NONBLOCK);
    return listener;
  }

  // Right in most fields, so that what is wrong in one gets past the looks at the others.
  VsockHeader AnyHeader() {
    const uint32_t wrong = input_.Next();
    const auto or_wrong = [&](int bit, uint64_t right) {
      return (wrong >> bit & 1) != 0 && wrong % 3 == 0 ? uint64_t{input_.Next(4)} : right;
    };
    const uint32_t ports = input_.Next(), op = input_.Next();
    return {.src_cid = or_wrong(0, kCid),
            .dst_cid = or_wrong(1, kVsockHostCid),
            .src_port = ports % 4,
            .dst_port = ports / 4 % 4 == 0 ? kListened : VsockHub::kFirstOwnPort + ports / 16 % 4,
            .length = static_cast<uint32_t>(or_wrong(2, input_.Next(2) % 5000)),
            .type = static_cast<uint16_t>(or_wrong(3, kVsockStream)),
            .op = static_cast<VsockOp>(or_wrong(4, 1 + op % 7)),
            .flags = static_cast<uint32_t>(or_wrong(5, op / 8 % 4)),
            .buf_alloc = static_cast<uint32_t>(or_wrong(6, 1U << (op / 32 * 3))),
            .fwd_cnt = static_cast<uint32_t>(or_wrong(7, input_.Next(2)))};
  }
  // A packet as it should be laid out, in one or two descriptors of their own.
  void SendPacket() {
    const VsockHeader header = AnyHeader();
    const uint64_t at = kBuffers + uint64_t{input_.Next() % 16} * 8192;
    const VsockHeaderBytes bytes = EncodeVsockHeader(header);
    std::memcpy(Memory().At(at, bytes.size()), bytes.data(), bytes.size());
    const auto index = static_cast<uint16_t>(input_.Next() % (kSize - 1));
    const uint32_t length = std::min<uint32_t>(header.length, 5000);
    Queue& queue = queues_[VirtioVsock::kTransmit];
    if (index % 2 == 0) {
      queue.ring->SetDescriptor(index, {.address = at, .length = 44 + length, .flags = 0});
    } else {
      const auto next = static_cast<uint16_t>(index + 1);
      queue.ring->SetDescriptor(index, {.address = at, .length = 44, .flags = 1, .next = next});
      queue.ring->SetDescriptor(next, {.address = at + 44, .length = length, .flags = 0});
    }
    Offer(queue, index);
  }
  // A buffer as it should be.
  void GiveBuffer() {
    const auto index = static_cast<uint16_t>(input_.Next() % kSize);
    const uint64_t at = kBuffers + (uint64_t{2} << 20) + uint64_t{index} * 4096;
    Queue& queue = queues_[input_.Next() % 2 == 0 ? VirtioVsock::kReceive : VirtioVsock::kEvent];
    queue.ring->SetDescriptor(index, {.address = at, .length = 4096, .flags = 2});
    Offer(queue, index);
  }

  HostSocket* AnyProgram() {
    return programs_.empty() ? nullptr : &programs_[input_.Next() % programs_.size()];
  }
  void StepOfHost(uint32_t op) {
    if (op % 8 == 0 && programs_.size() < 16) {
      programs_.push_back(HostSocket::ConnectTo(Path()));
      const std::string line = "CONNECT " + std::to_string(input_.Next() % 4) + "\n";
      (void)send(programs_.back().fd(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return;
    }
    if (op % 8 == 1) {
      UniqueFd accepted(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (accepted.valid()) programs_.emplace_back(std::move(accepted));
      return;
    }
    HostSocket* const program = AnyProgram();
    if (program == nullptr) return;
    static char bytes[70000];
    if (op % 8 < 4) {
      (void)send(program->fd(), bytes, input_.Next(3) % sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else if (op % 8 < 6) {
      (void)recv(program->fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    } else if (op % 8 == 6) {
      shutdown(program->fd(), static_cast<int>(input_.Next() % 3));
    } else {
      std::swap(*program, programs_.back());
      programs_.pop_back();
    }
  }

  void Step() {
    const uint32_t op = input_.Next();
    if (TakeStep(op)) return;
    switch (op % 16) {
      case 8:
      case 9:
        return SendPacket();
      case 10:
        return GiveBuffer();
      case 11:
      case 14:
        return StepOfHost(op / 16);
      default:
        Reset();
        // As after a restore, now and then.
        if (op / 16 % 2 == 0) device_->RestoreState({});
        Start(kFeatures);
    }
  }

  void KeepsToTheRules() {
    const std::vector<std::unique_ptr<FakeDriver>> drivers = StartInGoodOrder();
    while (UniqueFd(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC)).valid()) {
    }
    for (uint32_t i = 0; i < 8; ++i) {
      drivers[0]->NewChain().AppendWritable(kBuffers + (uint64_t{2} << 20) + i * 4096, 4096).Add();
    }
    drivers[0]->Publish();
    queues_[0].kick.Signal();
    const auto give = [&](uint64_t at, VsockOp op, std::string_view data) {
      const VsockHeaderBytes bytes = EncodeVsockHeader({.src_cid = kCid,
                                                        .dst_cid = kVsockHostCid,
                                                        .src_port = 77,
                                                        .dst_port = kListened,
                                                        .length = uint32_t(data.size()),
                                                        .op = op,
                                                        .buf_alloc = 65536});
      std::byte* const to = Memory().At(at, bytes.size() + data.size());
      std::memcpy(to, bytes.data(), bytes.size());
      std::memcpy(to + bytes.size(), data.data(), data.size());
      drivers[1]->NewChain().AppendReadable(at, uint32_t(bytes.size() + data.size())).Add();
    };
    give(kBuffers, VsockOp::kRequest, "");
    give(kBuffers + 4096, VsockOp::kData, "hello");
    drivers[1]->Publish();
    queues_[1].kick.Signal();
    const HostSocket program = listener_.Accept();
    Check(program.Read(5) == "hello", "the next driver's data comes");
    Check(SpinUntil([&] { return drivers[0]->HasUsed(); }), "the next driver is answered");
    Reset();
  }

  const std::unique_ptr<VsockHost> host_;
  const HostSocket listener_;
  const std::unique_ptr<VirtioVsock> device_;
  std::vector<HostSocket> programs_;
};

}  // namespace
}  // namespace ringside::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringside::testing::Run(data, size).Go();
  return 0;
}
