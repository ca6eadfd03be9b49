// A virtio-vsock device on I/O threads, with the guest's side of its queues, and programs of the
// host at its Unix sockets.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "devices/virtio_vsock.h"
#include "tests/support/devices/queued_device_fixture.h"
#include "tests/support/directories.h"
#include "tests/support/net/host_socket.h"

namespace ringside::testing {

struct VsockPacket {
  VsockHeader header;
  std::string payload;
};

class VirtioVsockTest : public QueuedDeviceTest<VirtioVsock> {
 protected:
  static constexpr uint64_t kCid = 3;
  static constexpr uint32_t kSlot = 64 << 10;  // of one buffer

  std::string path() const { return directory_ / "vm.sock"; }
  std::string PathOf(uint32_t port) const { return path() + "_" + std::to_string(port); }

  void Make(size_t max_connections = 1024, const PollConfig& poll = {}) {
    host_ = *VsockHost::Listen(path());
    StartThreads("vsock", poll);
    device_ = *VirtioVsock::Create(
        *host_, *memory_, *threads_[0],
        {.name = "vsock0", .cid = kCid, .max_connections = max_connections, .log = Logger(&log_)});
  }
  // With as many receive buffers as fit.
  void Start(uint32_t buffer_size = 4096) {
    if (device_ == nullptr) Make();
    Activate(VirtioVsock::kStreamFeature);
    if (buffer_size > 0) GiveBuffers(kRingSize, buffer_size);
  }

  Queue& rx() { return *queues_[0]; }
  Queue& tx() { return *queues_[1]; }
  VsockCounts& counts() { return host_->counts(); }
  void GiveBuffers(size_t count, uint32_t size = 4096) {
    QueuedDeviceTest::GiveBuffers(rx(), count, size, kSlot);
  }
  void GiveEventBuffer() {
    Queue& queue = *queues_[VirtioVsock::kEvent];
    const uint64_t address = queue.buffers + 8 * queue.next++;
    std::memset(At(address, 8), 0x55, 8);
    queue.driver.NewChain().AppendWritable(address, 8).Add();
    Publish(queue);
  }
  bool HasEvent() { return queues_[VirtioVsock::kEvent]->driver.HasUsed(); }
  bool HasPacket() { return rx().driver.HasUsed(); }
  // The next packet for the guest, whose buffer is given back.
  std::optional<VsockPacket> NextPacket(uint32_t buffer_size = 4096) {
    if (!SpinUntil([&] { return HasPacket(); })) return std::nullopt;
    const std::optional<UsedElement> used = rx().driver.TakeUsed();
    if (!used.has_value() || used->written < kVsockHeaderSize) return std::nullopt;
    const std::byte* const bytes = At(rx().address_of[used->head], used->written);
    VsockPacket packet;
    VsockHeaderBytes header;
    std::copy_n(bytes, header.size(), header.begin());
    packet.header = DecodeVsockHeader(header);
    packet.payload.assign(reinterpret_cast<const char*>(bytes) + kVsockHeaderSize,
                          used->written - kVsockHeaderSize);
    EXPECT_EQ(packet.header.dst_cid, kCid);
    EXPECT_EQ(packet.header.length, packet.payload.size());
    if (buffer_size > 0) GiveBuffers(1, buffer_size);
    return packet;
  }
  // Which has this op; others that only tell of credit are left out.
  VsockHeader NextOp(VsockOp op) {
    while (std::optional<VsockPacket> packet = NextPacket()) {
      if (packet->header.op == op) return packet->header;
      if (packet->header.op != VsockOp::kCreditUpdate &&
          packet->header.op != VsockOp::kCreditRequest) {
        ADD_FAILURE() << "op " << static_cast<int>(packet->header.op) << " instead of "
                      << static_cast<int>(op);
        break;
      }
    }
    return {};
  }
  std::string NextData(size_t size, uint32_t* packets = nullptr) {
    std::string data;
    while (data.size() < size) {
      const std::optional<VsockPacket> packet = NextPacket();
      if (!packet.has_value()) break;
      if (packet->header.op == VsockOp::kData && packets != nullptr) ++*packets;
      data += packet->payload;
    }
    return data;
  }

  // A packet of the guest, in so many descriptors.
  void Add(const VsockHeader& header, std::string_view payload = {}, size_t pieces = 1) {
    Queue& queue = tx();
    while (queue.driver.free_descriptors() < pieces) {
      if (!SpinUntil([&] { return queue.driver.HasUsed(); })) std::abort();
      while (queue.driver.TakeUsed()) {
      }
    }
    const uint64_t address = queue.buffers + (queue.next++ % kRingSize) * 2 * kSlot;
    const VsockHeaderBytes bytes = EncodeVsockHeader(header);
    const size_t size = bytes.size() + payload.size();
    std::memcpy(At(address, size), bytes.data(), bytes.size());
    payload.copy(reinterpret_cast<char*>(At(address, size)) + bytes.size(), payload.size());
    AddReadable(queue, address, size, pieces);
  }
  void SendRaw(const VsockHeader& header, std::string_view payload = {}, size_t pieces = 1) {
    Add(header, payload, pieces);
    Publish(tx());
  }
  // All that was sent has been taken.
  bool WaitForTaken() {
    return SpinUntil([&] {
      while (tx().driver.TakeUsed()) {
      }
      return tx().driver.free_descriptors() == kRingSize;
    });
  }

  // A connection as the guest has it.
  struct Stream {
    uint32_t guest_port = 0;
    uint32_t host_port = 0;
    uint32_t buf_alloc = 256 << 10;
    uint32_t fwd_cnt = 0;
  };
  static VsockHeader HeaderOf(const Stream& stream, VsockOp op, uint32_t length = 0,
                              uint32_t flags = 0) {
    return {.src_cid = kCid,
            .dst_cid = kVsockHostCid,
            .src_port = stream.guest_port,
            .dst_port = stream.host_port,
            .length = length,
            .op = op,
            .flags = flags,
            .buf_alloc = stream.buf_alloc,
            .fwd_cnt = stream.fwd_cnt};
  }
  void Send(const Stream& stream, VsockOp op, uint32_t flags = 0) {
    SendRaw(HeaderOf(stream, op, 0, flags));
  }
  void SendData(const Stream& stream, std::string_view data, size_t pieces = 1) {
    SendRaw(HeaderOf(stream, VsockOp::kData, static_cast<uint32_t>(data.size())), data, pieces);
  }
  // A program of the host connects, and the guest accepts.
  HostSocket Join(Stream& stream, uint32_t guest_port = 1024) {
    HostSocket socket = HostSocket::ConnectTo(path());
    EXPECT_TRUE(socket.Write("CONNECT " + std::to_string(guest_port) + "\n"));
    const VsockHeader request = NextOp(VsockOp::kRequest);
    EXPECT_EQ(request.dst_port, guest_port);
    stream.guest_port = guest_port;
    stream.host_port = request.src_port;
    Send(stream, VsockOp::kResponse);
    EXPECT_EQ(socket.ReadLine(), "OK " + std::to_string(stream.host_port) + "\n");
    return socket;
  }

  const TempDirectory directory_;
  std::unique_ptr<VsockHost> host_;
};

}  // namespace ringside::testing
