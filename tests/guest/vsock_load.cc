// See vsock_load.h.

#include "vsock_load.h"

#include <algorithm>
#include <cstring>

#include "machine.h"

namespace guest {

// ---- What the streams tell ----

bool VsockLoad::Accepts(uint32_t guest_port) {
  ended_ = ended_ || (guest_port == kVsockEndPort && job_.kind == VsockKind::kServe);
  return guest_port == kVsockServicePort;
}

void VsockLoad::Opened(VsockStream& stream) {
  result_.most_streams = std::max<uint64_t>(result_.most_streams, streams_.open());
  if (job_.kind != VsockKind::kFlood || &stream == control_) return;
  ++result_.all_ios;
  if (span_.counting()) ++result_.ios;
}

bool VsockLoad::Take(VsockStream& stream, const VsockPacket& packet) {
  if (&stream == control_) {
    auto* const report = reinterpret_cast<uint8_t*>(&result_.client);
    const auto bytes =
        std::min<uint32_t>(packet.header.length, sizeof(VsockReport) - report_bytes_);
    std::memcpy(report + report_bytes_, packet.data, bytes);
    report_bytes_ += bytes;
    return true;
  }
  if (held_count_ == 0 && Echo(stream, packet)) return true;
  held_[(held_first_ + held_count_++) % held_.size()] = {&stream, packet};
  return false;
}

void VsockLoad::HostEnded(VsockStream& stream) {
  EndIfDone(stream);
}

// What the host has sent to the end goes back before the guest ends its half.
void VsockLoad::EndIfDone(VsockStream& stream) {
  if (!stream.host_ended || stream.has_ended || stream.forwarded != stream.received) return;
  if (!streams_.has_slot()) return;  // SendHeld looks again
  stream.has_ended = true;
  streams_.Say(stream, VsockOp::kShutdown, kVsockNoReceive | kVsockNoSend);
}

void VsockLoad::Closed(VsockStream& stream) {
  for (size_t i = 0; i < held_count_; ++i) {
    Held& held = held_[(held_first_ + i) % held_.size()];
    if (held.stream == &stream) held.stream = nullptr;
  }
  if (&stream == control_) control_ = nullptr;
  std::replace(sinks_.begin(), sinks_.begin() + sink_count_, &stream,
               static_cast<VsockStream*>(nullptr));
}

// ---- Echoes ----

// False: there is no credit for it, or no slot.
bool VsockLoad::Echo(VsockStream& stream, const VsockPacket& packet) {
  const uint32_t length = packet.header.length;
  uint8_t* const data = streams_.Prepare(stream, length);
  if (data == nullptr) return false;
  std::memcpy(data, packet.data, length);
  stream.forwarded += length;  // which the echo tells the host
  streams_.Send(stream, length);
  stream.forwarded -= length;
  CountEcho(stream, length);
  return true;
}

void VsockLoad::CountEcho(VsockStream& stream, uint64_t bytes) {
  stream.bytes += bytes;
  if (stream.bytes < job_.message_bytes) return;
  stream.bytes -= job_.message_bytes;
  ++result_.all_ios;
  if (span_.counting()) {
    ++result_.ios;
    if (stream.since != 0) result_.latency.Add(now_ - stream.since);
  }
  stream.since = now_;
}

void VsockLoad::SendHeld() {
  while (held_count_ > 0) {
    Held& held = held_[held_first_];
    if (held.stream == nullptr) {
      pair_.GiveBack(held.packet);
    } else if (Echo(*held.stream, held.packet)) {
      streams_.Release(*held.stream, held.packet);
      EndIfDone(*held.stream);
    } else {
      return;
    }
    held_first_ = (held_first_ + 1) % held_.size();
    --held_count_;
  }
}

// ---- Out ----

const char* VsockLoad::OpenSinks() {
  if (job_.connections > sinks_.size()) return "qd is more than vsock=out has room for";
  for (uint64_t i = 0; i < job_.connections; ++i) {
    if (!TurnUntil([this] { return streams_.has_slot(); })) return "packets stay in the ring";
    sinks_[sink_count_++] = streams_.Connect(kVsockSinkPort);
  }
  const bool open = TurnUntil([this] {
    return std::all_of(sinks_.begin(), sinks_.begin() + sink_count_,
                       [](const VsockStream* sink) { return sink == nullptr || sink->open; });
  });
  if (!open || std::count(sinks_.begin(), sinks_.begin() + sink_count_, nullptr) > 0) {
    return "the host does not take streams: is its client there?";
  }
  if (!TurnUntil([this] { return streams_.is_idle(); })) return "packets stay in the ring";
  FillSlots();
  sent_before_ = streams_.sent_packets();
  return nullptr;
}

// The data of all slots is the same, but for its number.
void VsockLoad::FillSlots() {
  for (uint16_t slot = 0; slot < pair_.slots(); ++slot) {
    uint8_t* const data = pair_.data(slot);
    for (uint64_t i = 0; i < job_.message_bytes; ++i) data[i] = VsockByte(i, job_.seed);
  }
}

// As many as there is room and credit for. Only packets of data that have come back count.
void VsockLoad::SendOut() {
  const auto length = static_cast<uint32_t>(job_.message_bytes);
  const uint64_t gone = streams_.sent_packets() - sent_before_;
  if (span_.counting()) result_.ios += gone - result_.all_ios;
  result_.all_ios = gone;
  size_t starved = 0;
  for (size_t turns = 0; turns < pair_.slots() && starved < sink_count_; ++turns) {
    VsockStream* const sink = sinks_[next_sink_];
    next_sink_ = (next_sink_ + 1) % sink_count_;
    uint8_t* const data = sink == nullptr ? nullptr : streams_.Prepare(*sink, length);
    if (data == nullptr) {
      if (!streams_.has_slot()) return;
      ++starved;
      continue;
    }
    starved = 0;
    std::memcpy(data, &number_, sizeof number_);
    ++number_;
    streams_.Send(*sink, length);
    result_.sent_bytes += length;
    starved_since_ = 0;
  }
  if (starved == sink_count_) AskForCredit();
}

// The host tells of room by itself, but not of all.
void VsockLoad::AskForCredit() {
  if (starved_since_ == 0) starved_since_ = now_;
  if (now_ - starved_since_ < NsToTicks(kAskNs)) return;
  starved_since_ = now_;
  for (size_t i = 0; i < sink_count_ && streams_.has_slot(); ++i) {
    if (sinks_[i] != nullptr) streams_.Say(*sinks_[i], VsockOp::kCreditRequest);
  }
}

// ---- The client ----

const char* VsockLoad::Order(bool is_over) {
  if (control_ == nullptr && !is_over) {
    control_ = streams_.Connect(kVsockControlPort);
    TurnUntil([this] { return control_ == nullptr || control_->open; });
  }
  if (control_ == nullptr || !control_->open) return "the host's client is not there";
  uint8_t* data = nullptr;
  if (!TurnUntil([&] {
        data = control_ == nullptr ? nullptr : streams_.Prepare(*control_, sizeof(VsockOrder));
        return data != nullptr || control_ == nullptr;
      }) ||
      data == nullptr) {
    return "the host's client takes no order";
  }
  const VsockOrder order = {.kind = job_.kind,
                            .message_bytes = static_cast<uint32_t>(job_.message_bytes),
                            .connections = static_cast<uint32_t>(job_.connections),
                            .verify = job_.verify,
                            .is_over = is_over,
                            .seed = job_.seed,
                            .sent_bytes = result_.sent_bytes};
  std::memcpy(data, &order, sizeof order);
  streams_.Send(*control_, sizeof order);
  return nullptr;
}

const char* VsockLoad::AwaitReport() {
  const char* const error = Order(/*is_over=*/true);
  if (error != nullptr) return error;
  TurnUntil([this] { return control_ == nullptr || report_bytes_ == sizeof(VsockReport); });
  if (report_bytes_ < sizeof(VsockReport)) return "the host's client does not report";
  // All streams end with the job: the client closes its own.
  for (size_t i = 0; i < sink_count_; ++i) {
    if (sinks_[i] == nullptr ||
        !TurnUntil([&] { return sinks_[i] == nullptr || streams_.has_slot(); })) {
      continue;
    }
    if (sinks_[i] != nullptr) {
      streams_.Say(*sinks_[i], VsockOp::kShutdown, kVsockNoReceive | kVsockNoSend);
    }
  }
  if (!TurnUntil([this] { return streams_.open() == 0 && streams_.is_idle(); })) {
    return "streams do not end with their job";
  }
  return nullptr;
}

// ---- A job ----

void VsockLoad::Turn(uint64_t now) {
  now_ = now;
  if (held_count_ < kMostHeld) streams_.Turn(*this);
  SendHeld();
  pair_.Flush();
}

template <typename Condition>
bool VsockLoad::TurnUntil(Condition condition) {
  const uint64_t end = TimeStamp() + NsToTicks(kPatienceNs);
  while (!condition()) {
    Turn(TimeStamp());
    if (now_ > end) return condition();
    if (!pair_.WaitForWork({.receive = true, .transmit = true}, now_ + NsToTicks(kMostOfATurnNs))) {
      ++result_.errors;
    }
  }
  pair_.Flush();
  return true;
}

void VsockLoad::RunUntilOver() {
  const bool sends = job_.kind == VsockKind::kOut;
  span_.Begin(TimeStamp());
  do {
    Turn(TimeStamp());
    if (sends) {
      SendOut();
      pair_.Flush();
    }
    // Who waits for slots or credit waits for both queues.
    const bool transmit = sends || held_count_ > 0 || !streams_.has_slot();
    const uint64_t most = sends ? kAskNs : kMostOfATurnNs;
    if (!pair_.WaitForWork({.receive = true, .transmit = transmit}, now_ + NsToTicks(most))) {
      ++result_.errors;
    }
  } while (span_.Goes(TimeStamp(), pair_) && !ended_);
  result_.ticks = span_.ticks();
  result_.kicks = span_.kicks();
  result_.interrupts = span_.interrupts();
}

const char* VsockLoad::Run() {
  now_ = TimeStamp();
  const uint64_t faults = streams_.faults();
  const bool serves = job_.kind == VsockKind::kServe;
  const char* error = serves ? nullptr : Order(/*is_over=*/false);
  if (error == nullptr && job_.kind == VsockKind::kOut) error = OpenSinks();
  if (error == nullptr) RunUntilOver();
  if (serves && error == nullptr && !ended_) error = "nobody connects to end it";
  if (error == nullptr && !serves) error = AwaitReport();
  result_.errors += streams_.faults() - faults;
  return error;
}

}  // namespace guest
