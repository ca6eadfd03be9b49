#include <algorithm>
#include <cstring>
#include <elf.h>
#include <span>

#include "base/status.h"
#include "boot/kernel_image.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr uint16_t kMaxProgramHeaders = 128;
constexpr uint64_t kMaxNotes = 64 << 10;  // bytes of one PT_NOTE
constexpr uint32_t kXenPhys32Entry = 18;  // XEN_ELFNOTE_PHYS32_ENTRY
constexpr char kXenName[] = "Xen";
// Linux's COMMAND_LINE_SIZE on x86 is 2048 with the zero; ELF has no header to say so.
constexpr uint32_t kCommandLineMax = 2047;

bool InFile(const BootFile& file, uint64_t offset, uint64_t size) {
  return offset <= file.size() && size <= file.size() - offset;
}

absl::Status CheckHeader(const BootFile& file, const Elf64_Ehdr& header) {
  const bool is_64_bit = header.e_ident[EI_CLASS] == ELFCLASS64;
  if (!is_64_bit || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_X86_64) {
    return BadInput(
        "%s is an ELF file for another machine (class %d, byte order %d, machine %d); a "
        "64-bit x86 kernel is needed",
        file.name(), header.e_ident[EI_CLASS], header.e_ident[EI_DATA], header.e_machine);
  }
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) {
    return BadInput("%s is an ELF file of type %d, not an executable", file.name(), header.e_type);
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phnum > kMaxProgramHeaders) {
    return BadInput("%s has %d program headers of %d bytes; 1 to %d of %d are expected",
                    file.name(), header.e_phnum, header.e_phentsize, kMaxProgramHeaders,
                    sizeof(Elf64_Phdr));
  }
  if (!InFile(file, header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr))) {
    return BadInput("%s is truncated: its program headers lie behind its end", file.name());
  }
  return absl::OkStatus();
}

absl::Status AddSegment(const BootFile& file, const Elf64_Phdr& header,
                        std::vector<KernelSegment>& segments) {
  if (header.p_filesz > header.p_memsz) {
    return BadInput("%s has a segment at %#x with more bytes in the file than in memory",
                    file.name(), header.p_paddr);
  }
  if (header.p_memsz == 0) return absl::OkStatus();
  if (!InFile(file, header.p_offset, header.p_filesz)) {
    return BadInput("%s is truncated: its segment at %#x lies behind its end", file.name(),
                    header.p_paddr);
  }
  if (header.p_paddr < kHighMemoryStart || header.p_paddr > kLowMemoryEnd ||
      header.p_memsz > kLowMemoryEnd - header.p_paddr) {
    return BadInput("%s has a segment of %d bytes at %#x, outside 1 MiB to 3 GiB", file.name(),
                    header.p_memsz, header.p_paddr);
  }
  segments.push_back({.file_offset = header.p_offset,
                      .file_size = header.p_filesz,
                      .guest_address = header.p_paddr,
                      .memory_size = header.p_memsz});
  return absl::OkStatus();
}

absl::Status SortAndCheckOverlap(const BootFile& file, std::vector<KernelSegment>& segments) {
  if (segments.empty()) return BadInput("%s has no segment to load", file.name());
  std::ranges::sort(segments, {}, &KernelSegment::guest_address);
  for (size_t i = 1; i < segments.size(); ++i) {
    const KernelSegment& below = segments[i - 1];
    if (segments[i].guest_address - below.guest_address < below.memory_size) {
      return BadInput("%s has overlapping segments at %#x and %#x", file.name(),
                      below.guest_address, segments[i].guest_address);
    }
  }
  return absl::OkStatus();
}

// Walks the notes of one PT_NOTE segment; what is malformed ends the walk, as in Linux.
// Descriptions are aligned, not names padded: with an alignment of 8 that differs.
absl::StatusOr<std::optional<uint32_t>> FindPvhEntry(const BootFile& file,
                                                     const Elf64_Phdr& header) {
  if (header.p_filesz > kMaxNotes || !InFile(file, header.p_offset, header.p_filesz)) {
    return BadInput("%s is truncated, or its notes are larger than %d bytes", file.name(),
                    kMaxNotes);
  }
  std::vector<std::byte> notes(header.p_filesz);
  RINGSIDE_RETURN_IF_ERROR(file.ReadAt(header.p_offset, notes));
  const uint64_t alignment = header.p_align == 8 ? 8 : 4;
  const auto round_up = [alignment](uint64_t n) { return (n + alignment - 1) & ~(alignment - 1); };

  for (uint64_t at = 0; notes.size() - at >= sizeof(Elf64_Nhdr);) {
    Elf64_Nhdr note;
    std::memcpy(&note, &notes[at], sizeof note);
    const uint64_t name = at + sizeof note;
    const uint64_t description = round_up(name + note.n_namesz);
    if (description > notes.size() || note.n_descsz > notes.size() - description) break;
    if (note.n_type == kXenPhys32Entry && note.n_namesz == sizeof kXenName &&
        std::memcmp(&notes[name], kXenName, sizeof kXenName) == 0 && note.n_descsz >= 4) {
      uint32_t entry;
      std::memcpy(&entry, &notes[description], sizeof entry);
      return entry;
    }
    at = std::min<uint64_t>(round_up(description + note.n_descsz), notes.size());
  }
  return std::nullopt;
}

bool InSegments(const std::vector<KernelSegment>& segments, uint64_t address) {
  return std::ranges::any_of(segments, [address](const KernelSegment& segment) {
    return address - segment.guest_address < segment.memory_size;
  });
}

}  // namespace

absl::StatusOr<KernelImage> ParseElf(const BootFile& file) {
  Elf64_Ehdr header;
  if (file.size() < sizeof header) {
    return BadInput("%s is truncated: %d bytes do not hold an ELF header", file.name(),
                    file.size());
  }
  RINGSIDE_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&header, 1))));
  RINGSIDE_RETURN_IF_ERROR(CheckHeader(file, header));
  std::vector<Elf64_Phdr> program_headers(header.e_phnum);
  RINGSIDE_RETURN_IF_ERROR(
      file.ReadAt(header.e_phoff, std::as_writable_bytes(std::span(program_headers))));

  KernelImage image = {.format = "ELF"};
  for (const Elf64_Phdr& program_header : program_headers) {
    if (program_header.p_type == PT_LOAD) {
      RINGSIDE_RETURN_IF_ERROR(AddSegment(file, program_header, image.segments));
    } else if (program_header.p_type == PT_NOTE && !image.pvh_entry.has_value()) {
      RINGSIDE_ASSIGN_OR_RETURN(image.pvh_entry, FindPvhEntry(file, program_header));
    }
  }
  RINGSIDE_RETURN_IF_ERROR(SortAndCheckOverlap(file, image.segments));

  if (image.pvh_entry.has_value() && !InSegments(image.segments, *image.pvh_entry)) {
    return BadInput("%s has its PVH entry %#x outside its segments", file.name(), *image.pvh_entry);
  }
  if (InSegments(image.segments, header.e_entry)) {
    image.linux_entry = header.e_entry;
  } else if (!image.pvh_entry.has_value()) {
    return BadInput("%s has its entry %#x outside its segments", file.name(), header.e_entry);
  }
  image.initrd_address_max = kLowMemoryEnd - 1;
  image.command_line_max = kCommandLineMax;
  return image;
}

}  // namespace ringside
