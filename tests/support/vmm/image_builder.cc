#include "tests/support/vmm/image_builder.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace ringside {
namespace {

constexpr uint64_t kSetupHeaderOffset = 0x1f1;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

template <typename T>
void Put(Bytes& bytes, uint64_t offset, const T& value) {
  if (bytes.size() < offset + sizeof value) bytes.resize(offset + sizeof value);
  std::memcpy(&bytes[offset], &value, sizeof value);
}

void Append(Bytes& bytes, const Bytes& part) {
  bytes.insert(bytes.end(), part.begin(), part.end());
}

void AlignTo(Bytes& bytes, uint64_t alignment) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
}

}  // namespace

Bytes Pattern(size_t count, uint8_t seed) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(1 + (i + seed) % 251);
  return bytes;
}

UniqueFd MakeMemFd(const Bytes& content) {
  UniqueFd fd(memfd_create("test-image", MFD_CLOEXEC));
  if (!fd.valid()) Die("memfd_create");
  for (size_t done = 0; done < content.size();) {
    const ssize_t written = write(fd.get(), &content[done], content.size() - done);
    if (written <= 0) Die("write");
    done += static_cast<size_t>(written);
  }
  return fd;
}

BootFile MakeBootFile(const Bytes& content, const std::string& kind, const std::string& path) {
  absl::StatusOr<BootFile> file = BootFile::FromFd(kind, path, MakeMemFd(content));
  if (!file.ok()) Die("BootFile::FromFd");
  return *std::move(file);
}

Bytes Encode(const ElfNote& note) {
  const Elf64_Nhdr header = {.n_namesz = static_cast<uint32_t>(note.name.size()),
                             .n_descsz = static_cast<uint32_t>(note.description.size()),
                             .n_type = note.type};
  Bytes bytes;
  Put(bytes, 0, header);
  Append(bytes, note.name);
  AlignTo(bytes, note.alignment);
  Append(bytes, note.description);
  AlignTo(bytes, note.alignment);
  return bytes;
}

ElfNote PvhNote(uint32_t entry) {
  ElfNote note = {.type = 18, .name = {'X', 'e', 'n', 0}, .description = {}};
  Put(note.description, 0, entry);
  return note;
}

ElfBuilder::ElfBuilder() {
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_phoff = sizeof(Elf64_Ehdr);
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_phentsize = sizeof(Elf64_Phdr);
}

Elf64_Phdr& ElfBuilder::Add(uint32_t type, const Bytes& content) {
  Elf64_Phdr segment = {};
  segment.p_type = type;
  segment.p_offset = kContent + content_.size();
  segment.p_filesz = content.size();
  segment.p_memsz = content.size();
  Append(content_, content);
  ++header.e_phnum;
  return program_headers.emplace_back(segment);
}

Elf64_Phdr& ElfBuilder::AddSegment(uint64_t address, const Bytes& content, uint64_t memory_size) {
  Elf64_Phdr& segment = Add(PT_LOAD, content);
  segment.p_vaddr = 0xffffffff80000000 + address;  // as Linux's: not where it is loaded
  segment.p_paddr = address;
  segment.p_memsz = memory_size;
  return segment;
}

Elf64_Phdr& ElfBuilder::AddNotes(const Bytes& notes, uint64_t alignment) {
  Elf64_Phdr& segment = Add(PT_NOTE, notes);
  segment.p_align = alignment;
  return segment;
}

Bytes ElfBuilder::Build() const {
  Bytes bytes(kContent);
  Put(bytes, 0, header);
  for (size_t i = 0; i < program_headers.size(); ++i) {
    Put(bytes, sizeof header + i * sizeof(Elf64_Phdr), program_headers[i]);
  }
  Append(bytes, content_);
  return bytes;
}

ElfBuilder SmallElf() {
  ElfBuilder elf;
  elf.AddSegment(kTextAddress, Pattern(kTextSize), kTextSize);
  elf.AddSegment(kDataAddress, Pattern(kDataFileSize, 77), kDataMemorySize);
  elf.header.e_entry = kElfEntry;
  return elf;
}

ElfBuilder SmallElfWithPvh(uint32_t entry) {
  ElfBuilder elf = SmallElf();
  elf.AddNotes(Encode(PvhNote(entry)));
  return elf;
}

BzImageBuilder::BzImageBuilder(Bytes payload) : payload_(std::move(payload)) {
  setup.setup_sects = kSetupSize / 512 - 1;
  setup.syssize = static_cast<uint32_t>(payload_.size() / 16);
  setup.boot_flag = 0xaa55;
  setup.jump = 0xeb;
  SetHeaderLength(kSetupHeaderOffset + sizeof setup - 0x202);
  setup.header = 0x53726448;  // "HdrS"
  setup.version = 0x020f;
  setup.loadflags = LOADED_HIGH;
  setup.code32_start = kLoadAddress;
  setup.initrd_addr_max = 0x7fffffff;
  setup.kernel_alignment = 0x200000;
  setup.relocatable_kernel = 1;
  setup.min_alignment = 21;
  setup.xloadflags = XLF_KERNEL_64;
  setup.cmdline_size = 2047;
  setup.pref_address = kLoadAddress;
  setup.init_size = 0x3000;
}

void BzImageBuilder::SetHeaderLength(uint8_t length) {
  setup.jump = static_cast<uint16_t>((setup.jump & 0xff) | (length << 8));
}

Bytes BzImageBuilder::Build() const {
  Bytes bytes(kSetupSize, 0xcc);
  Put(bytes, kSetupHeaderOffset, setup);
  Append(bytes, payload_);
  return bytes;
}

}  // namespace ringside
