// Sends the streams of numbered frames that a guest's net=in asks for (tests/guest/net_stream.h),
// one at a time, until it is killed; without a stream it sleeps.
//
//   net_sender --tap tap0
//
// Frames go straight into the tap's own queue, past the host's, so that one the tap has no room for
// is known at once: at a rate it is lost and counted, without a rate it is tried again a little
// later.
#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "benchmarks/tap.h"
#include "command/exit_codes.h"
#include "tests/guest/net_job.h"
#include "tests/guest/net_stream.h"

namespace ringside {
namespace {

constexpr size_t kBatch = 64;                 // frames in one call
constexpr int64_t kStepNs = 50'000;           // between two looks at what is due, or at a full tap
constexpr int64_t kMostBehindNs = 2'000'000;  // more is not caught up with: it would be a burst

class Sender {
 public:
  static absl::StatusOr<Sender> Open(const std::string& tap);
  // Until a call fails.
  absl::Status Run();

 private:
  Sender(UniqueFd socket) : socket_(std::move(socket)) {}

  absl::Status TakeRequests(int timeout_ms);
  void Start(const guest::StreamRequest& request, const guest::MacAddress& to,
             const guest::MacAddress& from);
  uint64_t Due();
  absl::Status SendSome(uint64_t due);
  absl::Status Report();

  UniqueFd socket_;
  guest::StreamRequest request_ = {};
  bool streaming_ = false;
  int64_t start_ns_ = 0;  // moves on by what is not caught up with
  int64_t end_ns_ = 0;
  uint64_t sent_ = 0;
  uint64_t full_ = 0;
  bool was_full_ = false;
  guest::MacAddress to_ = {};
  guest::MacAddress from_ = {};
  std::array<std::array<uint8_t, guest::kMaxNetFrame>, kBatch> frames_ = {};
};

absl::StatusOr<Sender> Sender::Open(const std::string& tap) {
  RINGSIDE_ASSIGN_OR_RETURN(const int index, InterfaceIndex(tap));
  const uint16_t protocol = htons(guest::kTypeStreamControl);
  UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!socket.valid()) {
    return ErrnoError(errno, "no packet socket can be had", "run this as root");
  }
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = protocol;
  address.sll_ifindex = index;
  const int bypass = 1;
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      setsockopt(socket.get(), SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof bypass) != 0) {
    return ErrnoError(errno, "the packet socket cannot be bound to the tap");
  }
  return Sender(std::move(socket));
}

void Sender::Start(const guest::StreamRequest& request, const guest::MacAddress& to,
                   const guest::MacAddress& from) {
  request_ = request;
  to_ = to;
  from_ = from;
  start_ns_ = MonotonicNs();
  end_ns_ = start_ns_ + static_cast<int64_t>(request.duration_ns);
  sent_ = full_ = 0;
  was_full_ = false;
  streaming_ = true;
  for (auto& frame : frames_) {
    guest::WriteStream(frame.data(), to, from, guest::kTypeStream, guest::StreamHeader{});
    guest::FillPayload(frame.data(), guest::kStreamPayload, request.frame_bytes, request.seed);
  }
}

absl::Status Sender::TakeRequests(int timeout_ms) {
  pollfd waits = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (timeout_ms != 0 && poll(&waits, 1, timeout_ms) < 0 && errno != EINTR) {
    return ErrnoError(errno, "the packet socket cannot be waited for");
  }
  std::array<uint8_t, guest::kMaxNetFrame> frame;
  ssize_t length = 0;
  while ((length = recv(socket_.get(), frame.data(), frame.size(), MSG_DONTWAIT)) > 0) {
    guest::StreamRequest request;
    if (!guest::ReadStream(frame.data(), static_cast<uint64_t>(length), guest::kTypeStreamControl,
                           request)) {
      continue;
    }
    if (request.stop != 0 && request.stream == request_.stream) {
      streaming_ = false;
      RINGSIDE_RETURN_IF_ERROR(Report());
    } else if (request.stop == 0 && request.stream != request_.stream &&
               request.frame_bytes >= guest::kMinFrame &&
               request.frame_bytes <= guest::kMaxNetFrame) {
      guest::MacAddress own;
      std::memcpy(own.data(), frame.data(), own.size());
      Start(request, guest::SourceOf(frame.data()), own);
    }
  }
  return absl::OkStatus();
}

// How many frames there are to be sent now.
uint64_t Sender::Due() {
  if (request_.rate == 0) return kBatch;
  const int64_t now = MonotonicNs();
  const auto rate = static_cast<double>(request_.rate);
  const auto due = static_cast<uint64_t>(static_cast<double>(now - start_ns_) * rate / 1e9);
  if (due <= sent_) return 0;
  const auto most = static_cast<uint64_t>(static_cast<double>(kMostBehindNs) * rate / 1e9) + 1;
  if (due - sent_ > most) {
    start_ns_ += static_cast<int64_t>(static_cast<double>(due - sent_ - most) * 1e9 / rate);
    return most;
  }
  return due - sent_;
}

absl::Status Sender::SendSome(uint64_t due) {
  std::array<iovec, kBatch> parts;
  std::array<mmsghdr, kBatch> messages = {};
  const auto count = static_cast<unsigned>(std::min<uint64_t>(due, kBatch));
  for (unsigned i = 0; i < count; ++i) {
    guest::StoreTo(frames_[i].data() + guest::kEthernetBytes,
                   guest::StreamHeader{.stream = request_.stream, .number = sent_ + i});
    parts[i] = {.iov_base = frames_[i].data(), .iov_len = request_.frame_bytes};
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int done = sendmmsg(socket_.get(), messages.data(), count, 0);
  if (done >= 0) {
    sent_ += static_cast<unsigned>(done);
    was_full_ = false;
    return absl::OkStatus();
  }
  // ENETDOWN: whoever serves the tap is just starting or ending.
  if (errno != ENOBUFS && errno != EAGAIN && errno != ENETDOWN) {
    return ErrnoError(errno, "frames cannot be sent");
  }
  ++full_;
  was_full_ = true;
  if (request_.rate != 0) ++sent_;
  return absl::OkStatus();
}

absl::Status Sender::Report() {
  std::array<uint8_t, guest::kMinFrame> frame;
  const guest::StreamReport report = {.stream = request_.stream, .sent = sent_, .full = full_};
  guest::WriteStream(frame.data(), to_, from_, guest::kTypeStreamControl, report);
  // If there is no room for it, the guest asks again.
  if (send(socket_.get(), frame.data(), frame.size(), 0) < 0 && errno != ENOBUFS &&
      errno != ENETDOWN) {
    return ErrnoError(errno, "the report cannot be sent");
  }
  return absl::OkStatus();
}

absl::Status Sender::Run() {
  constexpr timespec kStep = {.tv_sec = 0, .tv_nsec = kStepNs};
  for (;;) {
    if (streaming_ && MonotonicNs() >= end_ns_) streaming_ = false;
    RINGSIDE_RETURN_IF_ERROR(TakeRequests(streaming_ ? 0 : -1));
    if (!streaming_) continue;
    const uint64_t due = Due();
    if (due > 0) RINGSIDE_RETURN_IF_ERROR(SendSome(due));
    if (due == 0 || (was_full_ && request_.rate == 0)) nanosleep(&kStep, nullptr);
  }
}

absl::Status Main(const std::string& tap) {
  // So that a step is one, and not 50 us more. It cannot fail.
  prctl(PR_SET_TIMERSLACK, 1UL);
  RINGSIDE_ASSIGN_OR_RETURN(Sender sender, Sender::Open(tap));
  return sender.Run();
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  std::string tap;
  CLI::App app("Sends the numbered frames that a measuring guest asks for.", "net_sender");
  app.add_option("--tap", tap, "the guest's tap")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ringside::kExitOk : ringside::kExitBadInput;
  }
  const absl::Status status = ringside::Main(tap);
  const std::string message(ringside::Message(status));
  std::fprintf(stderr, "net_sender: %s\n", message.c_str());
  return ringside::ExitCodeOf(status);
}
