// libFuzzer: any bytes as a kernel file. Whatever parses must keep the promises of KernelImage, and
// loading it, by either protocol, must stay inside guest memory.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "boot/boot.h"
#include "tests/support/devices/guest_memory.h"

namespace ringside {
namespace {

constexpr uint64_t kMemorySize = 32 * kMiB;

void Check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  __builtin_trap();
}

// One file for all inputs: making one each time would cost more than what is tested.
BootFile MakeFile(const uint8_t* data, size_t size) {
  static const int shared = memfd_create("fuzz-input", MFD_CLOEXEC);
  Check(ftruncate(shared, 0) == 0, "the input file can be emptied");
  Check(pwrite(shared, data, size, 0) == static_cast<ssize_t>(size),
        "the input file can be filled");
  absl::StatusOr<BootFile> file = BootFile::FromFd("kernel", "fuzz", UniqueFd(dup(shared)));
  Check(file.ok(), "the input file is an image file");
  return *std::move(file);
}

void CheckError(const absl::Status& status) {
  Check(absl::IsInvalidArgument(status), "bad input is InvalidArgument");
  Check(Message(status).find('\n') == std::string_view::npos, "an error has one line");
  Check(Message(status).find("kernel 'fuzz'") != std::string_view::npos, "an error names its file");
}

bool InSegments(const KernelImage& image, uint64_t address) {
  for (const KernelSegment& segment : image.segments) {
    if (address >= segment.guest_address && address < segment.guest_address + segment.memory_size) {
      return true;
    }
  }
  return false;
}

void CheckImage(const KernelImage& image, const BootFile& file) {
  Check(!image.segments.empty(), "there is a segment");
  uint64_t end_of_last = kHighMemoryStart;
  for (const KernelSegment& segment : image.segments) {
    Check(segment.memory_size > 0, "no segment is empty");
    Check(segment.file_size <= segment.memory_size, "what is in the file is in memory");
    Check(segment.file_offset <= file.size() &&
              segment.file_size <= file.size() - segment.file_offset,
          "segments are in the file");
    Check(segment.guest_address >= end_of_last, "segments ascend from 1 MiB, disjoint");
    end_of_last = segment.guest_address + segment.memory_size;
    Check(end_of_last > segment.guest_address && end_of_last <= kLowMemoryEnd,
          "segments end below 3 GiB");
  }
  Check(image.linux_entry.has_value() || image.pvh_entry.has_value(), "there is an entry");
  if (image.linux_entry.has_value()) {
    Check(InSegments(image, *image.linux_entry), "the Linux entry is in a segment");
  }
  if (image.pvh_entry.has_value()) {
    Check(InSegments(image, *image.pvh_entry), "the PVH entry is in a segment");
  }
}

void Load(const BootFile& kernel, const KernelImage& image, BootProtocol protocol) {
  static const std::unique_ptr<GuestMemory> memory = MakeMemory(kMemorySize);
  static const std::string command_line = "console=ttyS0";
  const BootRequest request = {.kernel = kernel,
                               .initrd = &kernel,  // any file will do
                               .command_line = command_line,
                               .protocol = protocol,
                               .acpi_rsdp = kAcpiTables};
  const absl::StatusOr<BootEntry> entry = LoadKernel(request, *memory);
  if (!entry.ok()) return CheckError(entry.status());
  Check(entry->protocol == protocol, "the protocol is the one asked for");
  Check(InSegments(image, entry->address), "the machine is entered in a segment");
  Check(memory->At(entry->address, 1) != nullptr, "the machine is entered in memory");
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  if (size == 0) return 0;  // refused before it is parsed
  const BootFile file = MakeFile(data, size);
  const absl::StatusOr<KernelImage> image = ParseKernelImage(file);
  if (!image.ok()) {
    CheckError(image.status());
    return 0;
  }
  CheckImage(*image, file);
  Load(file, *image, BootProtocol::kLinux);
  Load(file, *image, BootProtocol::kPvh);
  return 0;
}
