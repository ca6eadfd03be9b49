// A connection of a vsock as the device has it: the host's socket, what that has not taken yet of
// the guest's data, and the connection with the guest.
//
// Threads: the I/O thread of the device's queues. Ownership: the hub's (vsock_hub.h); it is in the
// lists by pointers of its own, so that none of them allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <sys/uio.h>
#include <vector>

#include "base/fd.h"
#include "devices/virtqueue.h"
#include "devices/vsock_connection.h"

namespace ringside {

// What of the guest's data waits for the host: bytes in a ring that is as large as the guest's
// credit, and there only while it holds some.
class VsockBacklog {
 public:
  static constexpr size_t kSize = VsockConnection::kRoom;
  using Memory = std::unique_ptr<std::byte[]>;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool has_memory() const { return memory_ != nullptr; }
  void Give(Memory memory) { memory_ = std::move(memory); }
  // Of one that is empty, or whose bytes nobody wants.
  Memory TakeMemory() {
    begin_ = size_ = 0;
    return std::move(memory_);
  }
  // Behind what there is. The credit has seen to it that there is room.
  void Put(std::span<const iovec> parts, size_t skipped) {
    for (const iovec& part : parts) {
      const size_t skip = std::min(skipped, part.iov_len);
      skipped -= skip;
      Append(static_cast<const std::byte*>(part.iov_base) + skip, part.iov_len - skip);
    }
  }
  // All there is, in order.
  std::array<iovec, 2> pieces() const {
    const size_t first = std::min(size_, kSize - begin_);
    return {{{&memory_[begin_], first}, {&memory_[0], size_ - first}}};
  }
  void Drop(size_t length) {
    begin_ = (begin_ + length) % kSize;
    size_ -= length;
  }

 private:
  void Append(const std::byte* bytes, size_t length) {
    while (length > 0) {
      const size_t at = (begin_ + size_) % kSize;
      const size_t some = std::min(length, kSize - at);
      std::memcpy(&memory_[at], bytes, some);
      bytes += some;
      length -= some;
      size_ += some;
    }
  }

  Memory memory_;
  size_t begin_ = 0, size_ = 0;
};

// The pieces of a packet's payload.
using VsockPayload = std::array<iovec, ChainBuffers::kMax>;

// Those of as many of a chain's bytes behind its header as there are, `most` at most.
inline std::span<iovec> BehindVsockHeader(std::span<const Segment> chain, uint32_t most,
                                          VsockPayload& parts) {
  size_t count = 0, skipped = kVsockHeaderSize;
  for (const Segment& segment : chain) {
    const auto skip = std::min<size_t>(skipped, segment.length);
    const auto some = std::min<size_t>(segment.length - skip, most);
    skipped -= skip;
    most -= static_cast<uint32_t>(some);
    if (some > 0) parts[count++] = {segment.host + skip, some};
  }
  return std::span(parts).first(count);
}

struct VsockClient;

// Data of one client's packets that goes to its host in one system call, while it is still in the
// guest's memory.
struct VsockGathered {
  // One turn's packets, in a descriptor or two each.
  static constexpr size_t kMaxPieces = 32;

  VsockClient* client = nullptr;  // null: there is none
  std::array<iovec, kMaxPieces> pieces;
  size_t count = 0;
  uint32_t length = 0;
};

// Where a client stands in a list of one kind.
struct VsockLinks {
  VsockClient* next = nullptr;
  VsockClient* previous = nullptr;
  bool linked = false;
};

struct VsockClient {
  enum class Stage {
    kGreeting,   // it has connected, and is to say to which port
    kJoined,     // the guest knows of it, or is about to
    kLingering,  // the guest is done with it; the host has not taken all of its data
    kGone,       // only a batch of events may still refer to it
  };
  // What it has a limited time for; of each kind all have the same time.
  enum class Wait { kGreeting, kAnswer, kCredit, kCreditAgain, kEnd, kLinger, kNothing };

  Stage stage = Stage::kGreeting;
  UniqueFd fd;
  std::optional<VsockConnection> connection;  // once it has joined
  VsockBacklog backlog;
  uint32_t watched = 0;   // epoll's events
  bool readable = false;  // there may be something to read
  bool hung_up = false;   // so that reading comes to an end, which no further event tells
  Wait wait = Wait::kNothing;
  int64_t wait_ends_ns = 0;
  size_t index = 0;  // in the hub's list of all
  VsockLinks ready_links, wait_links;
  VsockClient* next_in_bucket = nullptr;  // VsockTable
};

// First in, first out.
template <VsockLinks VsockClient::* kLinks>
class VsockList {
 public:
  bool empty() const { return first_ == nullptr; }
  VsockClient* front() const { return first_; }
  void PushBack(VsockClient& client) {
    client.*kLinks = {.next = nullptr, .previous = last_, .linked = true};
    (last_ != nullptr ? (last_->*kLinks).next : first_) = &client;
    last_ = &client;
  }
  // Nothing if it is in none.
  void Remove(VsockClient& client) {
    VsockLinks& links = client.*kLinks;
    if (!std::exchange(links.linked, false)) return;
    (links.previous != nullptr ? (links.previous->*kLinks).next : first_) = links.next;
    (links.next != nullptr ? (links.next->*kLinks).previous : last_) = links.previous;
  }

 private:
  VsockClient* first_ = nullptr;
  VsockClient* last_ = nullptr;
};

// Clients that have joined, by their ports. The guest chooses ports, so which of them share a
// bucket hangs on a secret.
class VsockTable {
 public:
  // For so many at most.
  VsockTable(size_t most, uint64_t secret) : secret_(secret | 1), buckets_(std::bit_ceil(most)) {}

  VsockClient* Find(const VsockConnection::Ports& ports) {
    VsockClient* client = Bucket(ports);
    while (client != nullptr && client->connection->ports() != ports) {
      client = client->next_in_bucket;
    }
    return client;
  }
  void Add(VsockClient& client) {
    VsockClient*& bucket = Bucket(client.connection->ports());
    client.next_in_bucket = bucket;
    bucket = &client;
  }
  // Nothing if it is not there.
  void Remove(VsockClient& client) {
    VsockClient** link = &Bucket(client.connection->ports());
    while (*link != nullptr && *link != &client) link = &(*link)->next_in_bucket;
    if (*link != nullptr) *link = client.next_in_bucket;
  }

 private:
  VsockClient*& Bucket(const VsockConnection::Ports& ports) {
    uint64_t hash = (uint64_t{ports.host} << 32 | ports.guest) ^ secret_;
    hash *= secret_;
    hash ^= hash >> 32;
    hash *= secret_;
    return buckets_[(hash >> 32) & (buckets_.size() - 1)];
  }

  const uint64_t secret_;
  std::vector<VsockClient*> buckets_;
};

}  // namespace ringside
