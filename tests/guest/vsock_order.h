// What a measuring guest and its client on the host (benchmarks/vsock_client.cc) tell each other.
// The guest connects to kVsockControlPort of the host and sends an order; the client does its part
// of the job until a second order says that it is over, and then answers with a report.
//
// Bytes only: no device, no console.

#ifndef RINGSIDE_TESTS_GUEST_VSOCK_ORDER_H_
#define RINGSIDE_TESTS_GUEST_VSOCK_ORDER_H_

#include <cstdint>

namespace guest {

// Of the host: the client listens there.
constexpr uint32_t kVsockControlPort = 4000;
constexpr uint32_t kVsockSinkPort = 4001;  // for streams out
// Of a program that sends back what it gets, for what is no measuring (vsock_guest.py).
constexpr uint32_t kVsockMirrorPort = 4002;
// Of the guest.
constexpr uint32_t kVsockServicePort = 5000;
constexpr uint32_t kVsockEndPort = 5001;  // who connects there ends vsock=serve, and is refused

enum class VsockKind : uint32_t {
  kEcho,   // the client sends messages, of each connection one after the other, and gets them back
  kOut,    // the guest sends, the client reads
  kFlood,  // the client connects, and closes once it is connected
  kServe,  // without a client: the guest echoes whatever comes
};

struct VsockOrder {
  VsockKind kind = VsockKind::kEcho;
  uint32_t message_bytes = 0;
  uint32_t connections = 0;  // at the same time
  uint32_t verify = 0;       // 1: every byte
  uint32_t is_over = 0;      // 1: the job is
  uint32_t unused = 0;
  uint64_t seed = 0;
  uint64_t sent_bytes = 0;  // of kOut, once it is over: what the guest has sent
};
static_assert(sizeof(VsockOrder) == 40);

struct VsockReport {
  uint64_t connections = 0;  // that were made
  uint64_t refused = 0;      // that were not
  uint64_t bytes = 0;        // that were read
  uint64_t mismatches = 0;   // messages that were not what they should be
};
static_assert(sizeof(VsockReport) == 32);

// Byte `i` of a message. One of streams out begins with its number, eight bytes, instead.
constexpr uint8_t VsockByte(uint64_t i, uint64_t seed) {
  return static_cast<uint8_t>(i * 7 + (i >> 8) + seed);
}
constexpr uint32_t kVsockNumberBytes = 8;

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VSOCK_ORDER_H_
