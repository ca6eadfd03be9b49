// What a tap of this machine allows: the guest's network jobs (tests/guest/net_job.h) without a
// guest, by one thread that writes each frame and reads each frame, and does nothing else. No
// machine monitor that copies frames by itself can be quicker by much.
//
//   net_ceiling --tap tap0 --cmdline "net=echo qd=1,32"
//
// Prints what the guest would: a line of JSON a job. With --busy N beside that many threads that
// only spin, as the vCPU of a guest that polls does.
#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <poll.h>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "benchmarks/support/guest_words.h"
#include "benchmarks/tap.h"
#include "command/exit_codes.h"
#include "tests/guest/console.h"
#include "tests/guest/net_load.h"

namespace ringside {
namespace {

// A Port of net_load.h. Frames that are written are gone.
class TapPort {
 public:
  explicit TapPort(int fd) : fd_(fd) {}
  void SetWait(guest::Wait wait) { wait_ = wait; }

  static constexpr uint16_t slots() { return guest::kMaxNetDepth; }
  uint8_t* frame(uint16_t slot) { return frames_[slot].data(); }
  void Transmit(uint16_t slot, uint64_t length) {
    while (write(fd_, frames_[slot].data(), length) < 0 && (errno == EAGAIN || errno == EINTR)) {
    }
    transmitted_[last_++ % slots()] = slot;
  }
  bool TakeTransmitted(uint16_t& slot) {
    if (first_ == last_) return false;
    slot = transmitted_[first_++ % slots()];
    return true;
  }
  bool TakeReceived(guest::NetFrame& frame) {
    const ssize_t length = read(fd_, received_.data(), received_.size());
    if (length <= 0) return false;
    frame = {.data = received_.data(), .length = static_cast<uint64_t>(length), .slot = 0};
    return true;
  }
  void GiveBack(const guest::NetFrame&) {}
  void Flush() {}
  bool WaitForWork(guest::Wake wake, uint64_t) {
    if (wait_ == guest::Wait::kPolled || (wake.transmit && first_ != last_)) return true;
    constexpr int kMostMs = 100;
    pollfd waits = {.fd = fd_, .events = POLLIN, .revents = 0};
    poll(&waits, 1, kMostMs);  // whatever it says: the next read tells
    return true;
  }
  static constexpr uint64_t kicks() { return 0; }
  static constexpr uint64_t interrupts() { return 0; }

 private:
  const int fd_;
  guest::Wait wait_ = guest::Wait::kPolled;
  std::array<std::array<uint8_t, guest::kMaxNetFrame>, guest::kMaxNetDepth> frames_ = {};
  std::array<uint16_t, guest::kMaxNetDepth> transmitted_ = {};  // a ring
  uint64_t first_ = 0;
  uint64_t last_ = 0;
  std::array<uint8_t, guest::kMaxFrame> received_ = {};
};

// Threads that spin as long as this is there.
class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        prctl(PR_SET_NAME, "vcpu");  // what tools/compare takes a guest's threads by
        while (!end_.load(std::memory_order_relaxed)) __builtin_ia32_pause();
      });
    }
  }
  ~BusyThreads() {
    end_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> end_{false};
  std::vector<std::thread> threads_;
};

struct Options {
  std::string tap;
  std::string mac = "52:54:00:4d:00:02";
  std::string command_line;
  int busy = 0;
};

absl::StatusOr<guest::MacAddress> ParseMac(const std::string& text) {
  guest::MacAddress mac = {};
  char end = 0;
  const int found = std::sscanf(text.c_str(), "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%c", &mac[0],
                                &mac[1], &mac[2], &mac[3], &mac[4], &mac[5], &end);
  if (found == 6) return mac;
  return BadInput("--mac '%s' is no address; give one like 52:54:00:4d:00:02", text);
}

absl::Status Run(const Options& options) {
  const guest::CommandLine words(options.command_line);
  const std::span<const guest::NetJob> jobs = guest::ReadNetJobs(words);
  guest::NetPeer peer;
  if (jobs.empty() || !guest::ReadNetAddresses(words, peer)) {
    return BadInput("--cmdline '%s' asks for no job; give net=echo, net=out or net=in",
                    options.command_line);
  }
  RINGSIDE_ASSIGN_OR_RETURN(peer.own_mac, ParseMac(options.mac));
  RINGSIDE_ASSIGN_OR_RETURN(const UniqueFd tap, OpenBareTap(options.tap));
  guest::InitClock();
  const auto port = std::make_unique<TapPort>(tap.get());
  if (!guest::Resolve(*port, peer)) {
    return absl::UnavailableError(
        "the tap's host does not answer to ARP: give net-host= its address");
  }
  port->SetWait(jobs[0].wait);
  const BusyThreads busy(options.busy);
  // A line before the first job, as a guest has one: who reads this takes the time between lines.
  guest::Say("tap=", std::string_view(options.tap));
  FlushGuestConsole();
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto load = std::make_unique<guest::NetLoad<TapPort>>(*port, jobs[i], peer);
    const char* const error = load->Run(static_cast<uint32_t>(i));
    guest::PrintNetJob(i, jobs[i], "tap", error, load->result());
    FlushGuestConsole();
  }
  guest::Say("end=exit");
  FlushGuestConsole();
  // Who reads this looks at the threads' times when the last job's line has come.
  constexpr auto kForItsReader = std::chrono::milliseconds(100);
  std::this_thread::sleep_for(kForItsReader);
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  ringside::Options options;
  CLI::App app("What a tap of this machine allows: a guest's network jobs without a guest.",
               "net_ceiling");
  app.add_option("--tap", options.tap, "one that nobody else has open")->required();
  app.add_option("--mac", options.mac, "of this side")->capture_default_str();
  app.add_option("--cmdline", options.command_line, "the jobs, such as 'net=echo qd=1'")
      ->required();
  app.add_option("--busy", options.busy, "threads that spin beside it")->check(CLI::Range(0, 64));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ringside::kExitOk : ringside::kExitBadInput;
  }
  const absl::Status status = ringside::Run(options);
  if (status.ok()) return ringside::kExitOk;
  const std::string message(ringside::Message(status));
  std::fprintf(stderr, "net_ceiling: %s\n", message.c_str());
  return ringside::ExitCodeOf(status);
}
