// libFuzzer: any bytes as what a vfio-user server answers, while a client opens its device, uses it
// and has it come back. Nothing may be left behind, and nobody may wait for ever.
//
// The input says what becomes of each answer in turn: a byte for the change, then what the change
// takes. At its end answers are as they should be, so that this target needs no seeds.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/support/directories.h"
#include "tests/support/vfio/scripted_vfio_user_server.h"
#include "vfio/mmio.h"
#include "vfio/vfio_user_device.h"

namespace ringside {
namespace {

using testing::ScriptedReply;
using testing::ScriptedVfioUserServer;

// Read by the servers' threads, one after the other.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }
  template <typename T>
  T Take() {
    T value{};
    const auto bytes = left_.first(std::min(left_.size(), sizeof value));
    std::memcpy(&value, bytes.data(), bytes.size());
    left_ = left_.subspan(bytes.size());
    return value;
  }
  std::string TakeBytes() {
    const size_t count = std::min<size_t>(Take<uint8_t>(), left_.size());
    std::string bytes(reinterpret_cast<const char*>(left_.data()), count);
    left_ = left_.subspan(count);
    return bytes;
  }

 private:
  std::span<const uint8_t> left_;
};

class Files {
 public:
  // Descriptors of several kinds, also one whose pages are there.
  int Get(uint8_t which) const {
    const int fds[] = {page_.get(), null_.get(), event_.fd(), empty_.get()};
    return fds[which % std::size(fds)];
  }

 private:
  static UniqueFd Pages(off_t size) {
    UniqueFd fd(testing::Must(memfd_create("fuzz", MFD_CLOEXEC), "memfd_create"));
    testing::Must(ftruncate(fd.get(), size), "ftruncate");
    return fd;
  }

  const UniqueFd page_ = Pages(0x2000);
  const UniqueFd null_ = testing::DevNull();
  const EventFd event_ = *EventFd::Create();
  const UniqueFd empty_ = Pages(0);
};

// A command of the server's own.
std::string Command(Input& input) {
  VfioUserPayload message;
  const auto command = input.Take<uint8_t>();
  const bool is_access = command % 2 == 0;
  const std::string data = input.TakeBytes();
  VfioUserDmaAccess access = {.address = uint64_t{0x100000} + input.Take<uint16_t>(),
                              .count = data.size()};
  if (command >= 128) access.count = input.Take<uint64_t>();
  AppendTo(message, VfioUserHeader{
                        .command = static_cast<uint16_t>(11 + command / 2 % 4),
                        .size = static_cast<uint32_t>(
                            sizeof(VfioUserHeader) + (is_access ? sizeof access : 0) + data.size()),
                        .flags = command >= 64 && command < 128 ? kVfioUserNoReply : 0});
  if (is_access) AppendTo(message, access);
  for (const char each : data) AppendTo(message, each);
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

void Change(Input& input, const Files& files, ScriptedReply& reply) {
  switch (input.Take<uint8_t>() % 16) {
    case 0: {
      const auto value = input.Take<uint32_t>();
      const size_t offset = input.Take<uint8_t>();
      if (offset + sizeof value <= reply.payload.size()) {
        std::memcpy(reply.payload.data() + offset, &value, sizeof value);
      }
      break;
    }
    case 1:
      reply.payload.resize(input.Take<uint8_t>());
      break;
    case 2: {
      const std::string bytes = input.TakeBytes();
      const auto all = std::as_bytes(std::span(bytes));
      reply.payload.assign(all.begin(), all.end());
      break;
    }
    case 3:
      reply.raw = input.TakeBytes();
      break;
    case 4:
      reply.fds.clear();
      for (int left = input.Take<uint8_t>() % (kVfioUserMaxMessageFds + 1); left > 0; --left) {
        reply.fds.push_back(files.Get(input.Take<uint8_t>()));
      }
      break;
    case 5:
      reply.error = input.Take<uint32_t>();
      break;
    case 6:
      reply.id = input.Take<uint16_t>();
      break;
    case 7:
      reply.command = input.Take<uint16_t>();
      break;
    case 8:
      reply.flags = input.Take<uint32_t>();
      break;
    case 9:
      reply.before = Command(input);
      break;
    case 10:
      reply.hangs_up = true;
      break;
    case 11: {  // a version with other capabilities
      const std::string json = input.TakeBytes();
      reply.payload.resize(sizeof(VfioUserVersion));
      for (const char each : json + '\0') AppendTo(reply.payload, each);
      break;
    }
    default:  // as it should be
      break;
  }
}

void Use(PciDevice& device, const DmaMapping& memory) {
  device.ReadConfig(0, 4);
  device.WriteBar(0, 0x14, 1);
  const auto doorbells = device.MapBar(0, testing::kScriptedArea, 16);
  if (doorbells.ok()) StoreRelease(reinterpret_cast<uint32_t*>(*doorbells), 1U);
  const bool is_mapped = device.MapDma(memory).ok();
  const EventFd event = *EventFd::Create();
  const std::vector<int> fds(std::min(device.vectors(), 3U), event.fd());
  device.SetVectors(fds).IgnoreError();
  device.MaskVector(1);
  device.UnmaskVector(1);
  device.Reset().IgnoreError();
  if (doorbells.ok()) StoreRelease(reinterpret_cast<uint32_t*>(*doorbells), 2U);
  device.SetVectors({}).IgnoreError();
  if (is_mapped) device.UnmapDma(memory.iova, memory.size).IgnoreError();
}

size_t OpenFiles() {
  return testing::CountEntries("/proc/self/fd");
}

void Run(Input& input, const std::string& path, const Files& files, const DmaMapping& memory) {
  ScriptedVfioUserServer server(path, [&](const VfioUserMessage&, ScriptedReply& reply) {
    if (!input.empty()) Change(input, files, reply);
  });
  auto device = OpenVfioUserDevice(path, {.timeout = absl::Milliseconds(20)});
  if (!device.ok()) return;
  Use(**device, memory);
  Use(**device, memory);
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  static const ringside::testing::TempDirectory directory;
  static const Files files;
  static std::byte pages[0x4000];
  static const UniqueFd file = ringside::testing::RegularFile(std::string(sizeof pages, '\0'));
  const size_t before = OpenFiles();  // the symboliser has some, too
  Input input(data, size);
  Run(input, directory / "socket", files,
      {.host = pages, .size = sizeof pages, .iova = 0x100000, .fd = file.get(), .fd_offset = 0});
  if (OpenFiles() != before) {
    std::fputs("descriptors are left behind\n", stderr);
    __builtin_trap();
  }
  return 0;
}
