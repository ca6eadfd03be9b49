// The stream of numbered frames that net=in asks the host for (benchmarks/net_sender.cc sends it),
// and the other way, and what tells loss from reordering. Between programs of one machine, so
// numbers are in its own byte order.

#ifndef RINGSIDE_TESTS_GUEST_NET_STREAM_H_
#define RINGSIDE_TESTS_GUEST_NET_STREAM_H_

#include <array>

#include "net_frame.h"

namespace guest {

constexpr uint32_t kStreamMagic = 0x6d745352;  // "RStm"

// Of every frame of a stream, of type kTypeStream; then FillPayload's bytes.
struct StreamHeader {
  uint32_t magic = kStreamMagic;
  uint32_t stream = 0;
  uint64_t number = 0;  // from 0 on
};
constexpr uint64_t kStreamPayload = kEthernetBytes + sizeof(StreamHeader);

// From the guest, of type kTypeStreamControl: send such a stream to who asks, or stop and report. A
// request that comes again is one.
struct StreamRequest {
  uint32_t magic = kStreamMagic;
  uint32_t stream = 0;  // a number that no earlier stream had
  uint64_t rate = 0;    // frames a second; 0: as fast as the network takes them
  uint64_t duration_ns = 0;
  uint64_t seed = 0;
  uint32_t frame_bytes = 0;
  uint32_t stop = 0;
};

// The answer to a stop, of type kTypeStreamControl.
struct StreamReport {
  uint32_t magic = kStreamMagic;
  uint32_t stream = 0;
  uint64_t sent = 0;  // frames that have a number, whether the network took them or not
  uint64_t full = 0;  // times the network had no room; at a rate each is a frame it has lost
};

template <typename T>
uint64_t WriteStream(uint8_t* frame, const MacAddress& to, const MacAddress& from, uint16_t type,
                     const T& content) {
  std::memset(frame, 0, kMinFrame);
  WriteEthernet(frame, to, from, type);
  StoreTo(frame + kEthernetBytes, content);
  static_assert(kEthernetBytes + sizeof(T) <= kMinFrame);
  return kMinFrame;
}

template <typename T>
bool ReadStream(const uint8_t* frame, uint64_t length, uint16_t type, T& content) {
  if (length < kEthernetBytes + sizeof(T) || EthernetType(frame) != type) return false;
  content = LoadFrom<T>(frame + kEthernetBytes);
  return content.magic == kStreamMagic;
}

// Which of the frames that were numbered from 0 on have come, and in which order. A frame that
// comes after one with a higher number was overtaken; it is not lost. Twins are known among the
// last kWindow numbers.
class Sequence {
 public:
  constexpr void Add(uint64_t number) {
    if (number >= next_) {
      // The places of those passed over are theirs from here on.
      const uint64_t first = number - next_ >= kWindow ? number - kWindow + 1 : next_;
      for (uint64_t i = first; i <= number; ++i) Clear(i);
      next_ = number + 1;
      ++received_;
    } else if (next_ - number > kWindow) {
      ++reordered_;
      ++received_;
      return;
    } else if (IsSet(number)) {
      ++duplicates_;
      return;
    } else {
      ++reordered_;
      ++received_;
    }
    Set(number);
  }

  constexpr uint64_t received() const { return received_; }  // without twins
  constexpr uint64_t reordered() const { return reordered_; }
  constexpr uint64_t duplicates() const { return duplicates_; }
  // Of the first `sent`.
  constexpr uint64_t lost(uint64_t sent) const { return sent > received_ ? sent - received_ : 0; }

 private:
  static constexpr uint64_t kWindow = 4096;

  constexpr bool IsSet(uint64_t i) const { return (bits_[Word(i)] >> (i % 64) & 1) != 0; }
  constexpr void Set(uint64_t i) { bits_[Word(i)] |= uint64_t{1} << (i % 64); }
  constexpr void Clear(uint64_t i) { bits_[Word(i)] &= ~(uint64_t{1} << (i % 64)); }
  static constexpr size_t Word(uint64_t i) { return i % kWindow / 64; }

  std::array<uint64_t, kWindow / 64> bits_ = {};
  uint64_t next_ = 0;  // above all that have come
  uint64_t received_ = 0;
  uint64_t reordered_ = 0;
  uint64_t duplicates_ = 0;
};

// What `numbers` come to: received, reordered, twins, in decimal digits 100, 10, 1.
template <size_t kCount>
constexpr uint64_t SequenceOf(const uint64_t (&numbers)[kCount]) {
  Sequence sequence;
  for (const uint64_t number : numbers) sequence.Add(number);
  return 100 * sequence.received() + 10 * sequence.reordered() + sequence.duplicates();
}
static_assert(SequenceOf({0, 1, 2, 3}) == 400);
static_assert(SequenceOf({0, 2, 1, 3}) == 410);
static_assert(SequenceOf({5, 5, 4, 4, 5}) == 213);
static_assert(SequenceOf({0, 100'000, 99'999, 1, 100'000, 104'096}) == 521);
static_assert(SequenceOf({0, 4096, 4096, 8191, 4097}) == 411);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_NET_STREAM_H_
