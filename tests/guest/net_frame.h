// Frames of a network as the guest and the programs of the host that measure beside it write and
// read them: Ethernet, ARP, IPv4, ICMP echo, and the stream of numbered frames of net_stream.h.
// Bytes only: no device, no console, nothing of this machine but that it is little-endian.
//
// Source: RFC 826 (ARP), 791 (IPv4), 792 (ICMP), 1071 (checksums).

#ifndef RINGSIDE_TESTS_GUEST_NET_FRAME_H_
#define RINGSIDE_TESTS_GUEST_NET_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace guest {

using MacAddress = std::array<uint8_t, 6>;
constexpr MacAddress kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

constexpr uint64_t kEthernetBytes = 14;
constexpr uint64_t kIpv4Bytes = 20;
constexpr uint64_t kIcmpBytes = 8;
constexpr uint64_t kEchoPayload = kEthernetBytes + kIpv4Bytes + kIcmpBytes;  // where it begins
constexpr uint64_t kMinFrame = 60;  // of Ethernet, without the check sequence
constexpr uint64_t kMaxFrame = 65535;

// Ethernet types; the last two are those for local experiments (IEEE 802, clause 9.2.4).
constexpr uint16_t kTypeIpv4 = 0x0800;
constexpr uint16_t kTypeArp = 0x0806;
constexpr uint16_t kTypeStream = 0x88b5;
constexpr uint16_t kTypeStreamControl = 0x88b6;

template <typename T>
T LoadFrom(const uint8_t* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void StoreTo(uint8_t* to, T value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// Numbers of the network's byte order.
inline uint16_t LoadBig16(const uint8_t* from) {
  return __builtin_bswap16(LoadFrom<uint16_t>(from));
}
inline uint32_t LoadBig32(const uint8_t* from) {
  return __builtin_bswap32(LoadFrom<uint32_t>(from));
}
inline void StoreBig16(uint8_t* to, uint16_t value) {
  StoreTo(to, __builtin_bswap16(value));
}
inline void StoreBig32(uint8_t* to, uint32_t value) {
  StoreTo(to, __builtin_bswap32(value));
}

// The ones' complement sum of 16-bit words; a checksum is stored as Finish() gives it, without
// swapping (RFC 1071, 2(B)). What is right sums up to 0.
class Checksum {
 public:
  void Add(const uint8_t* bytes, uint64_t count) {
    for (; count >= 2; bytes += 2, count -= 2) sum_ += LoadFrom<uint16_t>(bytes);
    if (count == 1) sum_ += *bytes;
  }
  void AddWord(uint16_t word) { sum_ += word; }
  uint16_t Finish() const {
    uint64_t sum = sum_;
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<uint16_t>(~sum);
  }

 private:
  uint64_t sum_ = 0;
};

inline uint16_t ChecksumOf(const uint8_t* bytes, uint64_t count) {
  Checksum sum;
  sum.Add(bytes, count);
  return sum.Finish();
}

// Who talks to whom; addresses of IPv4 are numbers: 10.77.0.1 is 0x0a4d0001.
struct NetPeer {
  MacAddress own_mac = {};
  MacAddress host_mac = {};
  uint32_t own_address = 0;
  uint32_t host_address = 0;
};

inline void WriteEthernet(uint8_t* frame, const MacAddress& to, const MacAddress& from,
                          uint16_t type) {
  std::memcpy(frame, to.data(), to.size());
  std::memcpy(frame + 6, from.data(), from.size());
  StoreBig16(frame + 12, type);
}
inline uint16_t EthernetType(const uint8_t* frame) {
  return LoadBig16(frame + 12);
}
inline MacAddress SourceOf(const uint8_t* frame) {
  MacAddress mac;
  std::memcpy(mac.data(), frame + 6, mac.size());
  return mac;
}

// ---- ARP ----

// Asks for the host's MAC address; returns the frame's length.
inline uint64_t WriteArpRequest(uint8_t* frame, const NetPeer& peer) {
  std::memset(frame, 0, kMinFrame);
  WriteEthernet(frame, kBroadcast, peer.own_mac, kTypeArp);
  uint8_t* const arp = frame + kEthernetBytes;
  StoreBig16(arp, 1);  // Ethernet
  StoreBig16(arp + 2, kTypeIpv4);
  arp[4] = 6;
  arp[5] = 4;
  StoreBig16(arp + 6, 1);  // request
  std::memcpy(arp + 8, peer.own_mac.data(), 6);
  StoreBig32(arp + 14, peer.own_address);
  StoreBig32(arp + 24, peer.host_address);
  return kMinFrame;
}

// Whether it answers that; takes the address.
inline bool ReadArpReply(const uint8_t* frame, uint64_t length, NetPeer& peer) {
  const uint8_t* const arp = frame + kEthernetBytes;
  if (length < kEthernetBytes + 28 || EthernetType(frame) != kTypeArp) return false;
  if (LoadBig16(arp + 6) != 2 || LoadBig32(arp + 14) != peer.host_address) return false;
  std::memcpy(peer.host_mac.data(), arp + 8, 6);
  return true;
}

// ---- ICMP echo ----

constexpr uint8_t kIcmpEchoReply = 0;
constexpr uint8_t kIcmpEchoRequest = 8;
constexpr uint16_t kEchoIdentifier = 0x5267;
constexpr uint64_t kEchoNumberBytes = 8;  // of the payload, its first
constexpr uint64_t kMinEchoFrame = kEchoPayload + kEchoNumberBytes;

// The byte of a payload at `offset`, behind the number.
constexpr uint8_t PayloadByte(uint64_t seed, uint64_t offset) {
  const uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15 + offset * 0xd6e8feb86659fd93;
  return static_cast<uint8_t>(x >> 56);
}
inline void FillPayload(uint8_t* frame, uint64_t from, uint64_t length, uint64_t seed) {
  for (uint64_t i = from; i < length; ++i) frame[i] = PayloadByte(seed, i);
}
inline bool IsPayload(const uint8_t* frame, uint64_t from, uint64_t length, uint64_t seed) {
  for (uint64_t i = from; i < length; ++i) {
    if (frame[i] != PayloadByte(seed, i)) return false;
  }
  return true;
}

// A frame of `length` bytes with number 0, to be finished by NumberEcho. Returns the sum that this
// takes.
inline Checksum WriteEcho(uint8_t* frame, uint64_t length, const NetPeer& peer, uint16_t sequence,
                          uint64_t seed) {
  WriteEthernet(frame, peer.host_mac, peer.own_mac, kTypeIpv4);
  uint8_t* const ip = frame + kEthernetBytes;
  std::memset(ip, 0, kIpv4Bytes);
  ip[0] = 0x45;
  StoreBig16(ip + 2, static_cast<uint16_t>(length - kEthernetBytes));
  StoreBig16(ip + 6, 0x4000);  // not to be fragmented
  ip[8] = 64;
  ip[9] = 1;  // ICMP
  StoreBig32(ip + 12, peer.own_address);
  StoreBig32(ip + 16, peer.host_address);
  StoreTo(ip + 10, ChecksumOf(ip, kIpv4Bytes));
  uint8_t* const icmp = ip + kIpv4Bytes;
  std::memset(icmp, 0, kIcmpBytes + kEchoNumberBytes);
  icmp[0] = kIcmpEchoRequest;
  StoreBig16(icmp + 4, kEchoIdentifier);
  StoreBig16(icmp + 6, sequence);
  FillPayload(frame, kMinEchoFrame, length, seed);
  Checksum sum;
  sum.Add(icmp, length - kEthernetBytes - kIpv4Bytes);
  return sum;
}

inline void NumberEcho(uint8_t* frame, Checksum sum, uint64_t number) {
  uint8_t* const icmp = frame + kEthernetBytes + kIpv4Bytes;
  StoreTo(icmp + kIcmpBytes, number);
  for (int shift = 0; shift < 64; shift += 16) sum.AddWord(static_cast<uint16_t>(number >> shift));
  StoreTo(icmp + 2, sum.Finish());
}

struct EchoReply {
  uint16_t sequence;
  uint64_t number;
};

// Whether it is a reply to one of our echoes: looks at nothing but what tells that.
inline bool ReadEchoReply(const uint8_t* frame, uint64_t length, EchoReply& reply) {
  if (length < kMinEchoFrame || EthernetType(frame) != kTypeIpv4) return false;
  const uint8_t* const icmp = frame + kEthernetBytes + kIpv4Bytes;
  if (frame[kEthernetBytes + 9] != 1 || icmp[0] != kIcmpEchoReply) return false;
  if (LoadBig16(icmp + 4) != kEchoIdentifier) return false;
  reply = {.sequence = LoadBig16(icmp + 6), .number = LoadFrom<uint64_t>(icmp + kIcmpBytes)};
  return true;
}

// Whether every byte is what a reply to WriteEcho's frame must have: lengths, addresses, payload
// and both checksums.
inline bool IsWholeEchoReply(const uint8_t* frame, uint64_t length, uint64_t expected_length,
                             const NetPeer& peer, uint64_t seed) {
  const uint8_t* const ip = frame + kEthernetBytes;
  const uint64_t ip_length = expected_length - kEthernetBytes;
  return length == expected_length && std::memcmp(frame, peer.own_mac.data(), 6) == 0 &&
         std::memcmp(frame + 6, peer.host_mac.data(), 6) == 0 && ip[0] == 0x45 &&
         LoadBig16(ip + 2) == ip_length && LoadBig32(ip + 12) == peer.host_address &&
         LoadBig32(ip + 16) == peer.own_address && ChecksumOf(ip, kIpv4Bytes) == 0 &&
         ChecksumOf(ip + kIpv4Bytes, ip_length - kIpv4Bytes) == 0 &&
         IsPayload(frame, kMinEchoFrame, length, seed);
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_NET_FRAME_H_
