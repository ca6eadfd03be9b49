// make_seeds DIRECTORY: writes the inputs that kernel_image_fuzz and virtio_blk_fuzz start from,
// each into a folder of its own there.
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>

#include "tests/support/vmm/image_builder.h"

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

// What virtio_blk_fuzz makes of bytes, in its order; zeroes are ordinary choices.
class BlkSeed {
 public:
  // `log2_size`: of the ring.
  BlkSeed(bool traced, bool batched, uint8_t log2_size) {
    Put({traced, batched});
    Put({0, 0, 0, 0});    // the disk
    Put({log2_size, 0});  // the ring, without EVENT_IDX
    Put({0, 0, 0});       // no reset, no write to the configuration, no read of it
  }
  BlkSeed& Round(bool hold, uint8_t requests) {
    return Put({static_cast<uint8_t>(hold ? 3 : 0), 0, static_cast<uint8_t>(requests - 1)});
  }
  // Each through an indirect table of its own, so that it takes one descriptor.
  BlkSeed& Read() { return Put({0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}); }
  BlkSeed& GetId() { return Put({3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}); }
  // The end of the round's requests: interrupts, no broken chain, then what is wild.
  BlkSeed& Twist() { return Put({0, 0, 30}); }
  BlkSeed& Reuse(uint8_t groups) { return Put({0, 0, 31, static_cast<uint8_t>(groups - 1)}); }
  BlkSeed& Group(uint8_t head, uint8_t heads, uint16_t entries) {
    return Put({head, static_cast<uint8_t>(heads - 1), static_cast<uint8_t>(entries - 1)});
  }
  BlkSeed& Put(std::initializer_list<uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

// Descriptor 0 refers to the queue's own descriptors as an indirect table of one entry.
Bytes TableInItself() {
  BlkSeed seed(false, false, 3);
  seed.Round(false, 1).GetId();
  return seed.Twist().Put({0, 0, 0, 0, 0, 4, 0}).bytes();
}

// With four reads in flight, all other entries of one turn are answered, on 32 heads in turn, and
// the last one breaks the ring: nothing of that is published. Then the reads are done.
Bytes HeadsOfABrokenRing() {
  BlkSeed seed(true, false, 8);
  seed.Round(true, 5).Read().Read().Read().Read().GetId();
  return seed.Reuse(2).Group(4, 32, 255).Group(200, 1, 1).bytes();
}

// The same with every entry good, while results are shown late.
Bytes HeadsUsedAgainTooSoon() {
  BlkSeed seed(true, true, 8);
  seed.Round(true, 5).Read().Read().Read().Read().GetId();
  return seed.Reuse(1).Group(4, 32, 256).bytes();
}

void WriteBlkSeeds(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  Write(directory / "table-in-itself", TableInItself());
  Write(directory / "heads-of-a-broken-ring", HeadsOfABrokenRing());
  Write(directory / "heads-used-again-too-soon", HeadsUsedAgainTooSoon());
}

void WriteKernelSeeds(const std::filesystem::path& directory) {
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
  const std::filesystem::path directory = argv[1];
  ringside::WriteKernelSeeds(directory / "kernel_image");
  ringside::WriteBlkSeeds(directory / "virtio_blk");
}
