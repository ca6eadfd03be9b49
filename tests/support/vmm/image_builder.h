// Kernel files made in memory, correct in every field until a test breaks one.
#pragma once

#include <asm/bootparam.h>
#include <cstdint>
#include <elf.h>
#include <span>
#include <string>
#include <vector>

#include "boot/boot_file.h"

namespace ringside {

using Bytes = std::vector<uint8_t>;

// `count` bytes in which neighbours differ, so that a misplaced copy shows. Never 0.
Bytes Pattern(size_t count, uint8_t seed = 0);

// A file in a memfd of exactly these bytes (at least one), named "kernel 'test'" in errors.
BootFile MakeBootFile(const Bytes& content, const std::string& kind = "kernel",
                      const std::string& path = "test");
// A memfd of these bytes.
UniqueFd MakeMemFd(const Bytes& content);

// One note of a PT_NOTE segment. The sizes in its header are those of name and description unless
// they are set apart.
struct ElfNote {
  uint32_t type;
  Bytes name;
  Bytes description;
  uint64_t alignment = 4;
};
// gABI chapter 5: the description, and the next note, start at a multiple of the alignment.
Bytes Encode(const ElfNote& note);
// XEN_ELFNOTE_PHYS32_ENTRY.
ElfNote PvhNote(uint32_t entry);

// A 64-bit ELF executable. Its program headers follow its header, its contents start at kContent.
class ElfBuilder {
 public:
  static constexpr uint64_t kContent = 0x1000;

  ElfBuilder();
  // The returned reference is good until the next call.
  Elf64_Phdr& AddSegment(uint64_t address, const Bytes& content, uint64_t memory_size);
  Elf64_Phdr& AddNotes(const Bytes& notes, uint64_t alignment = 4);
  Bytes Build() const;

  Elf64_Ehdr header = {};
  std::vector<Elf64_Phdr> program_headers;

 private:
  Elf64_Phdr& Add(uint32_t type, const Bytes& content);
  Bytes content_;
};

// Two segments, the second with bss, the entry in the first.
inline constexpr uint64_t kTextAddress = 0x100000;
inline constexpr uint64_t kTextSize = 0x300;
inline constexpr uint64_t kDataAddress = 0x102000;
inline constexpr uint64_t kDataFileSize = 0x180;
inline constexpr uint64_t kDataMemorySize = 0x1100;
inline constexpr uint64_t kElfEntry = kTextAddress + 0x40;
ElfBuilder SmallElf();
inline constexpr uint32_t kPvhEntry = kTextAddress + 0x80;
ElfBuilder SmallElfWithPvh(uint32_t entry = kPvhEntry);

// A bzImage of two sectors of set-up code; what lies behind its header there is 0xcc.
class BzImageBuilder {
 public:
  static constexpr uint64_t kSetupSize = 1024;
  static constexpr uint64_t kLoadAddress = 0x100000;

  // `payload` is a multiple of 16 bytes.
  explicit BzImageBuilder(Bytes payload = Pattern(0x800));
  // The header's own length, as byte 0x201 gives it: it ends at 0x202 + length.
  void SetHeaderLength(uint8_t length);
  Bytes Build() const;
  const Bytes& payload() const { return payload_; }

  setup_header setup = {};

 private:
  Bytes payload_;
};

}  // namespace ringside
