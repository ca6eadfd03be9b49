// The jobs of net_job.h on any way to send and receive frames: the guest's queues (net_pair.h), or
// a file descriptor of the host's (benchmarks/net_ceiling.cc): so both are measured alike. A Port
// has
//
//   uint16_t slots() const         frames that can be under way out
//   uint8_t* frame(slot)           where the frame of a slot is, kMaxNetFrame bytes of room
//   void Transmit(slot, length)    sends it, at Flush at the latest; the slot is not to be touched
//   bool TakeTransmitted(slot&)    until it comes back here
//   bool TakeReceived(NetFrame&)   a frame that has come, if any
//   void GiveBack(const NetFrame&) when it has been read, before the next is taken
//   void Flush()
//   bool WaitForWork(Wake, tick)   until what Wake says or the tick; false if there was work but
//                                  no interrupt told of it
//   uint64_t kicks(), interrupts() since ever

#ifndef RINGSIDE_TESTS_GUEST_NET_LOAD_H_
#define RINGSIDE_TESTS_GUEST_NET_LOAD_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "clock.h"
#include "machine.h"
#include "measured_span.h"
#include "net_job.h"
#include "net_result.h"
#include "net_stream.h"
#include "wait.h"

namespace guest {

struct NetFrame {
  const uint8_t* data;
  uint64_t length;
  uint16_t slot;  // the port's
};

// Asks for the host's MAC address until it is told; false if it never is.
template <typename Port>
bool Resolve(Port& port, NetPeer& peer) {
  constexpr uint64_t kTries = 100;
  constexpr uint64_t kTryNs = 100'000'000;
  uint16_t slot = 0;
  bool known = false, sent = true;
  for (uint64_t i = 0; i < kTries; ++i) {
    if (sent && !known) {
      port.Transmit(slot, WriteArpRequest(port.frame(slot), peer));
      port.Flush();
      sent = false;
    }
    const uint64_t end = TimeStamp() + NsToTicks(kTryNs);
    while ((!known || !sent) && TimeStamp() < end) {
      sent = port.TakeTransmitted(slot) || sent;
      NetFrame frame;
      if (!port.TakeReceived(frame)) continue;
      known = ReadArpReply(frame.data, frame.length, peer) || known;
      port.GiveBack(frame);
      port.Flush();
    }
    if (known && sent) return true;
  }
  return false;
}

template <typename Port>
class NetLoad {
 public:
  NetLoad(Port& port, const NetJob& job, const NetPeer& peer)
      : port_(port), job_(job), peer_(peer), span_(job.warmup_ns, job.runtime_ns) {}

  // Null if the job was done, else why it could not be.
  const char* Run(uint32_t number) {
    switch (job_.kind) {
      case NetKind::kEcho:
        return RunEcho();
      case NetKind::kOut:
        return RunOut();
      case NetKind::kIn:
        return RunIn(number);
    }
    return "no such job";
  }
  const NetResult& result() const { return result_; }

 private:
  // An echo goes on when its reply has come and its frame is free.
  struct Echo {
    uint64_t number;
    uint64_t start;
    Checksum sum;
    bool answered;
    bool transmitted;
  };

  const char* RunEcho();
  void IssueEcho(uint16_t slot, uint64_t now);
  void GoOn(uint16_t slot, uint64_t now);
  void TakeReply(const NetFrame& frame, uint64_t now);
  void LookForLost(uint64_t now);
  const char* RunOut();
  void SendNumbered(uint16_t slot);
  const char* RunIn(uint32_t number);
  bool Send(const StreamRequest& request);
  template <typename Look>
  void TakeStream(Look look);
  template <typename Look, typename Done>
  const char* Ask(const StreamRequest& request, Look look, Done done);
  void TakeNumbered(const NetFrame& frame);

  void SetTimes(uint64_t start) {
    span_.Begin(start);
    wait_ = NsToTicks(kMostOfATurnNs);
  }
  void Wait(Wake wake, uint64_t end) {
    if (!port_.WaitForWork(wake, end)) ++result_.errors;
  }
  // At the end of each turn of a loop; false when the job is over.
  bool Count(uint64_t now) {
    if (span_.Goes(now, port_)) return true;
    result_.ticks = span_.ticks();
    result_.kicks = span_.kicks();
    result_.interrupts = span_.interrupts();
    return false;
  }
  // Takes back what is under way out; false if it does not come.
  bool DrainTransmits() {
    const uint64_t end = TimeStamp() + NsToTicks(kPatienceNs);
    uint16_t slot = 0;
    while (transmits_ > 0) {
      if (port_.TakeTransmitted(slot)) {
        --transmits_;
      } else if (TimeStamp() > end) {
        result_.errors += transmits_;
        return false;
      }
    }
    return true;
  }

  // Nothing takes so long that comes at all, however busy the host is.
  static constexpr uint64_t kPatienceNs = 3'000'000'000;
  static constexpr uint64_t kMostOfATurnNs = 250'000'000;

  Port& port_;
  const NetJob job_;
  const NetPeer peer_;
  NetResult result_;
  MeasuredSpan span_;
  uint64_t wait_ = 0;       // kMostOfATurnNs
  uint64_t transmits_ = 0;  // under way
  std::array<Echo, kMaxNetDepth> echoes_ = {};
  uint64_t unanswered_ = 0;
  uint64_t looked_for_lost_ = 0;
  bool ending_ = false;
  uint64_t next_number_ = 0;
  Sequence sequence_;
  uint32_t stream_ = 0;
};

// ---- Round trips ----

template <typename Port>
void NetLoad<Port>::IssueEcho(uint16_t slot, uint64_t now) {
  Echo& echo = echoes_[slot];
  ++echo.number;
  echo.start = now;
  echo.answered = echo.transmitted = false;
  NumberEcho(port_.frame(slot), echo.sum, echo.number);
  port_.Transmit(slot, job_.frame_bytes);
  ++transmits_;
  ++unanswered_;
}

template <typename Port>
void NetLoad<Port>::GoOn(uint16_t slot, uint64_t now) {
  const Echo& echo = echoes_[slot];
  if (echo.answered && echo.transmitted && !ending_) IssueEcho(slot, now);
}

template <typename Port>
void NetLoad<Port>::TakeReply(const NetFrame& frame, uint64_t now) {
  EchoReply reply;
  if (!ReadEchoReply(frame.data, frame.length, reply) || reply.sequence >= job_.depth) return;
  Echo& echo = echoes_[reply.sequence];
  if (reply.number != echo.number || echo.answered) {
    ++result_.duplicates;  // or given up
    return;
  }
  echo.answered = true;
  --unanswered_;
  ++result_.all_ios;
  if (span_.counting()) {
    ++result_.ios;
    result_.latency.Add(now - echo.start);
  }
  if (job_.verify &&
      !IsWholeEchoReply(frame.data, frame.length, job_.frame_bytes, peer_, job_.seed)) {
    ++result_.mismatches;
  }
  GoOn(reply.sequence, now);
}

// Gives up what was not answered for long, now and then.
template <typename Port>
void NetLoad<Port>::LookForLost(uint64_t now) {
  const uint64_t patience = NsToTicks(kPatienceNs);
  if (now - looked_for_lost_ < wait_) return;
  looked_for_lost_ = now;
  for (uint16_t slot = 0; slot < job_.depth; ++slot) {
    Echo& echo = echoes_[slot];
    if (echo.answered || now - echo.start < patience) continue;
    echo.answered = true;
    --unanswered_;
    ++result_.lost;
    GoOn(slot, now);
  }
}

template <typename Port>
const char* NetLoad<Port>::RunEcho() {
  if (job_.depth > port_.slots()) return "qd is more than the ring has room for";
  const auto depth = static_cast<uint16_t>(job_.depth);
  uint64_t now = looked_for_lost_ = TimeStamp();
  SetTimes(now);
  for (uint16_t slot = 0; slot < depth; ++slot) {
    echoes_[slot].sum = WriteEcho(port_.frame(slot), job_.frame_bytes, peer_, slot, job_.seed);
    IssueEcho(slot, now);
  }
  const uint64_t patience = NsToTicks(kPatienceNs);
  while (!ending_ || ((unanswered_ > 0 || transmits_ > 0) && now < span_.end() + patience)) {
    port_.Flush();
    Wait({.receive = true, .transmit = unanswered_ < depth}, now + wait_);
    now = TimeStamp();
    if (!ending_ && !Count(now)) ending_ = true;
    uint16_t slot = 0;
    for (uint16_t i = 0; i < depth && port_.TakeTransmitted(slot); ++i) {
      --transmits_;
      echoes_[slot].transmitted = true;
      GoOn(slot, now);
    }
    NetFrame frame;
    for (uint16_t i = 0; i < depth && port_.TakeReceived(frame); ++i) {
      TakeReply(frame, now);
      port_.GiveBack(frame);
    }
    LookForLost(now);
  }
  port_.Flush();
  result_.lost += unanswered_;
  result_.errors += transmits_;
  return nullptr;
}

// ---- Out ----

template <typename Port>
void NetLoad<Port>::SendNumbered(uint16_t slot) {
  StoreTo(port_.frame(slot) + kEthernetBytes,
          StreamHeader{.stream = stream_, .number = next_number_++});
  port_.Transmit(slot, job_.frame_bytes);
  ++transmits_;
}

template <typename Port>
const char* NetLoad<Port>::RunOut() {
  uint64_t now = TimeStamp();
  SetTimes(now);
  for (uint16_t slot = 0; slot < port_.slots(); ++slot) {
    uint8_t* const frame = port_.frame(slot);
    WriteEthernet(frame, peer_.host_mac, peer_.own_mac, kTypeStream);
    FillPayload(frame, kStreamPayload, job_.frame_bytes, job_.seed);
    SendNumbered(slot);
  }
  for (bool going = true; going;) {
    port_.Flush();
    Wait({.receive = false, .transmit = true}, now + wait_);
    now = TimeStamp();
    going = Count(now);
    uint16_t slot = 0;
    // So many and no more: where a frame is gone at once there is always another.
    for (uint16_t i = 0; i < port_.slots() && port_.TakeTransmitted(slot); ++i) {
      --transmits_;
      ++result_.all_ios;
      if (span_.counting()) ++result_.ios;
      if (going) SendNumbered(slot);
    }
  }
  result_.all_ios += transmits_;
  DrainTransmits();
  result_.sent = next_number_;
  return nullptr;
}

// ---- In ----

template <typename Port>
bool NetLoad<Port>::Send(const StreamRequest& request) {
  port_.Transmit(
      0, WriteStream(port_.frame(0), peer_.host_mac, peer_.own_mac, kTypeStreamControl, request));
  ++transmits_;
  port_.Flush();
  return DrainTransmits();
}

template <typename Port>
void NetLoad<Port>::TakeNumbered(const NetFrame& frame) {
  StreamHeader header;
  if (!ReadStream(frame.data, frame.length, kTypeStream, header) || header.stream != stream_) {
    return;
  }
  sequence_.Add(header.number);
  ++result_.all_ios;
  if (span_.counting()) ++result_.ios;
  if (frame.length != job_.frame_bytes) {
    ++result_.mismatches;
  } else if (job_.verify && !IsPayload(frame.data, kStreamPayload, frame.length, job_.seed)) {
    ++result_.mismatches;
  }
}

// Takes what has come, up to a ring of it, and gives the buffers back together.
template <typename Port>
template <typename Look>
void NetLoad<Port>::TakeStream(Look look) {
  NetFrame frame;
  for (uint64_t i = 0; i < kMaxNetDepth && port_.TakeReceived(frame); ++i) {
    TakeNumbered(frame);
    look(frame);
    port_.GiveBack(frame);
  }
  port_.Flush();
}

// Sends the request again and again until `done` says so; null then, else why it never did.
template <typename Port>
template <typename Look, typename Done>
const char* NetLoad<Port>::Ask(const StreamRequest& request, Look look, Done done) {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    if (!Send(request)) return "a request to the host is not taken out of the ring";
    const uint64_t end = TimeStamp() + wait_;
    while (TimeStamp() < end) {
      TakeStream(look);
      if (done()) return nullptr;
    }
  }
  return "the host does not answer: is its sender there?";
}

template <typename Port>
const char* NetLoad<Port>::RunIn(uint32_t number) {
  // One that no stream of an earlier boot on this network has.
  stream_ = static_cast<uint32_t>(TimeStamp() >> 16) * 64 + number;
  StreamRequest request = {.stream = stream_,
                           .rate = job_.rate,
                           .duration_ns = job_.warmup_ns + job_.runtime_ns + kPatienceNs,
                           .seed = job_.seed,
                           .frame_bytes = static_cast<uint32_t>(job_.frame_bytes)};
  SetTimes(TimeStamp());
  const auto nothing = [](const NetFrame&) {};
  const char* error = Ask(request, nothing, [this] { return sequence_.received() > 0; });
  if (error != nullptr) return error;
  uint64_t now = TimeStamp();
  SetTimes(now);
  while (Count(now)) {
    TakeStream(nothing);
    Wait({.receive = true, .transmit = false}, now + wait_);
    now = TimeStamp();
  }
  // The report comes behind all frames that were sent before it.
  StreamReport report;
  bool reported = false;
  request.stop = 1;
  const auto look = [&](const NetFrame& frame) {
    StreamReport found;
    if (!ReadStream(frame.data, frame.length, kTypeStreamControl, found)) return;
    if (found.stream != stream_) return;
    report = found;
    reported = true;
  };
  error = Ask(request, look, [&] { return reported; });
  if (error != nullptr) return error;
  result_.sent = report.sent;
  result_.full = report.full;
  result_.lost = sequence_.lost(result_.sent);
  result_.reordered = sequence_.reordered();
  result_.duplicates = sequence_.duplicates();
  return nullptr;
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_NET_LOAD_H_
