// What the VMM handed over at boot, the same for both entry points. ReadBootInfo copies it out of
// the loader's structures, so the rest of the guest may overwrite any RAM it likes.

#ifndef RINGSIDE_TESTS_GUEST_BOOT_INFO_H_
#define RINGSIDE_TESTS_GUEST_BOOT_INFO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace guest {

// Which entry point was used; boot.S passes the number.
enum class BootProtocol : uint64_t { kPvh = 0, kLinux64 = 1 };

// One entry of the memory map. The types are those of e820 in both protocols (ACPI 6.4 section 15).
struct MemoryRange {
  uint64_t start;
  uint64_t size;
  uint32_t type;
};
constexpr uint32_t kMemoryTypeRam = 1;

class BootInfo {
 public:
  // Reads the hvm_start_info (PVH) or boot_params (Linux) at physical address `structure`. Prints a
  // FAIL line for what cannot be read, and leaves it empty.
  void Read(BootProtocol protocol, uint64_t structure);

  std::string_view command_line() const { return {command_line_.data(), command_line_size_}; }
  std::span<const MemoryRange> memory_map() const { return {memory_map_.data(), memory_map_size_}; }
  // The first module, or the initrd; of size 0 if there is none.
  const MemoryRange& initrd() const { return initrd_; }
  // Physical address of the ACPI root pointer, 0 if none was given.
  uint64_t rsdp() const { return rsdp_; }

 private:
  void ReadPvh(uint64_t structure);
  void ReadLinux64(uint64_t structure);
  void CopyCommandLine(uint64_t address);
  void AddMemoryRange(uint64_t start, uint64_t size, uint32_t type);

  std::array<char, 4096> command_line_ = {};
  size_t command_line_size_ = 0;
  std::array<MemoryRange, 128> memory_map_ = {};
  size_t memory_map_size_ = 0;
  MemoryRange initrd_ = {};
  uint64_t rsdp_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_BOOT_INFO_H_
