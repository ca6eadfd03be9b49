// A packet of virtio-vsock as it stands in front of its payload, and what its fields may say.
//
// A header is copied out of guest memory once and then looked at: what the guest changes meanwhile
// is not seen.
//
// Units: bytes. Spec: VIRTIO 1.2, section 5.10.6.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ringside {

// Context ids (section 5.10.4). A guest's lies between the host's and kVsockLastCid.
inline constexpr uint64_t kVsockHostCid = 2;
inline constexpr uint64_t kVsockFirstCid = 3;
inline constexpr uint64_t kVsockLastCid = 0xfffffffe;

inline constexpr uint16_t kVsockStream = 1;  // the one type that is served

enum class VsockOp : uint16_t {
  kRequest = 1,
  kResponse = 2,
  kReset = 3,
  kShutdown = 4,
  kData = 5,  // VIRTIO_VSOCK_OP_RW
  kCreditUpdate = 6,
  kCreditRequest = 7,
};

// Flags of kShutdown (section 5.10.6.6): what its sender will do no more.
inline constexpr uint32_t kVsockNoReceive = 1;
inline constexpr uint32_t kVsockNoSend = 2;
inline constexpr uint32_t kVsockNeither = kVsockNoReceive | kVsockNoSend;

struct VsockHeader {
  uint64_t src_cid = 0;
  uint64_t dst_cid = 0;
  uint32_t src_port = 0;
  uint32_t dst_port = 0;
  uint32_t length = 0;  // of the payload
  uint16_t type = kVsockStream;
  VsockOp op = {};  // of a guest's packet perhaps none of those above
  uint32_t flags = 0;
  uint32_t buf_alloc = 0;  // how much the sender has room for, in all
  uint32_t fwd_cnt = 0;    // how much of what it got its user has taken, modulo 2^32
};
inline constexpr size_t kVsockHeaderSize = 44;  // without the padding that the struct ends with

using VsockHeaderBytes = std::array<std::byte, kVsockHeaderSize>;

// The fields stand on the wire as they do in the struct, little-endian.
static_assert(std::endian::native == std::endian::little);
static_assert(offsetof(VsockHeader, type) == 28 && offsetof(VsockHeader, fwd_cnt) == 40);

inline VsockHeader DecodeVsockHeader(const VsockHeaderBytes& bytes) {
  VsockHeader header;
  std::memcpy(&header, bytes.data(), bytes.size());
  return header;
}

inline VsockHeaderBytes EncodeVsockHeader(const VsockHeader& header) {
  VsockHeaderBytes bytes;
  std::memcpy(bytes.data(), &header, bytes.size());
  return bytes;
}

}  // namespace ringside
