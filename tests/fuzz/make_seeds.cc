// make_seeds DIRECTORY: writes the inputs that kernel_image_fuzz starts from.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/support/image_builder.h"

namespace ringside {
namespace {

void Write(const std::filesystem::path& path, const Bytes& content) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(content.data()),
             static_cast<std::streamsize>(content.size()));
  if (!file.flush()) {
    std::cerr << "cannot write " << path << "\n";
    std::exit(1);
  }
}

Bytes ElfWithNotesAlignedTo8() {
  ElfNote other = {.type = 5, .name = {'G', 'N', 'U', 0}, .description = Pattern(16)};
  ElfNote pvh = PvhNote(kPvhEntry);
  other.alignment = pvh.alignment = 8;
  Bytes notes = Encode(other);
  const Bytes last = Encode(pvh);
  notes.insert(notes.end(), last.begin(), last.end());
  ElfBuilder elf = SmallElf();
  elf.AddNotes(notes, 8);
  return elf.Build();
}

Bytes BzImageWithoutSetupSectors() {
  BzImageBuilder bz_image(Pattern(0x1000));
  bz_image.setup.setup_sects = 0;
  bz_image.setup.syssize = 0x40;
  bz_image.SetHeaderLength(0x60);
  return bz_image.Build();
}

void WriteSeeds(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  Write(directory / "elf", SmallElf().Build());
  Write(directory / "elf-pvh", SmallElfWithPvh().Build());
  Write(directory / "elf-pvh-aligned-8", ElfWithNotesAlignedTo8());
  Write(directory / "bzimage", BzImageBuilder().Build());
  Write(directory / "bzimage-no-setup-sectors", BzImageWithoutSetupSectors());
  Write(directory / "neither", Pattern(1024));
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_seeds DIRECTORY\n";
    return 2;
  }
  ringside::WriteSeeds(argv[1]);
}
