// Runs a guest that has a disk of zeroes: zeroes KERNEL COMMAND_LINE
#include <cstring>
#include <iostream>
#include <ringside/device.h>
#include <ringside/machine.h>
#include <unistd.h>

// A virtio-blk device of 8 MiB (VIRTIO 1.2, section 5.2).
class ZeroDisk final : public ringside::Device {
 public:
  uint16_t id() const override { return 2; }
  uint32_t pci_class() const override { return 0x010000; }  // mass storage

  // The configuration space begins with the capacity, in sectors of 512 bytes.
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override {
    const uint64_t sectors = 16384;
    for (std::byte& each : data) {
      if (offset < sizeof sectors) each = static_cast<std::byte>(sectors >> (8 * offset));
      ++offset;
    }
  }

  // Answers every request with zeroes. The last byte is the status, where zero is success.
  void Run(ringside::DeviceQueue& queue) override {
    while (queue.Pop(request_)) {
      size_t written = 0;
      for (const std::span<std::byte> buffer : request_.writable()) {
        std::memset(buffer.data(), 0, buffer.size());
        written += buffer.size();
      }
      queue.Push(request_, static_cast<uint32_t>(written));
    }
  }

 private:
  ringside::Request request_;  // keeps its storage from one request to the next
};

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ringside::MachineConfig config;
  config.kernel = argv[1];
  config.command_line = argv[2];
  config.console.output_fd = STDOUT_FILENO;
  config.devices = {{.id = "zeroes", .create = [] { return std::make_unique<ZeroDisk>(); }}};

  const auto machine = ringside::Machine::Create(config);
  const absl::Status status = machine.ok() ? (*machine)->Start() : machine.status();
  if (!status.ok()) {
    std::cerr << status << '\n';
    return 2;
  }
  const ringside::MachineEnd& end = (*machine)->Wait();
  std::cerr << (*machine)->Statistics().devices[0].queues[0].requests() << " requests\n";
  return end.kind == ringside::EndKind::kPowerOff ? 0 : 1;
}
