// Files of incremental backups that others have written, with checksums that are right: what is
// taken keeps to its disk and to its file, and what is not is told in one line.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <sys/mman.h>

#include "base/crc32c.h"
#include "base/status.h"
#include "image/delta_file.h"

namespace ringside {
namespace {

constexpr uint64_t kDisk = 16 * kOverlayBlock + 512;
constexpr size_t kHeaderBytes = 256;         // of the header, that the input changes
constexpr size_t kTableBytes = 64 + 6 * 32;  // and of a table
constexpr size_t kBlocks = 4;                // of data, behind each table

void Require(bool holds) {
  if (!holds) std::abort();
}

// The input's next bytes, over what makes sense.
void Change(std::span<const uint8_t>& input, std::span<std::byte> object) {
  const size_t count = std::min(input.size(), object.size());
  for (size_t i = 0; i < count; ++i) object[i] ^= std::byte{input[i]};
  input = input.subspan(count);
}

template <typename T>
std::span<std::byte> BytesOf(T& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

std::string MakeFile(std::span<const uint8_t> input) {
  DeltaHeader header = {.disk_bytes = kDisk, .point = {1}};
  Change(input, BytesOf(header).first(kHeaderBytes));
  header.crc = Crc32c(BytesOf(header).first(offsetof(DeltaHeader, crc)));
  std::string file(reinterpret_cast<const char*>(&header), sizeof header);
  uint64_t number = 0;
  do {
    DeltaTable table = {.is_last = 1, .number = number++, .point = {1}, .runs = 2};
    table.run[0] = {.offset = 0, .length = kBlocks * kOverlayBlock, .crc = 0};
    table.run[1] = {
        .offset = kBlocks * kOverlayBlock, .length = 4096, .kind = DeltaRun::Kind::kZeroes};
    const std::string data(kBlocks * kOverlayBlock, 'd');
    table.run[0].crc = Crc32c(std::as_bytes(std::span(data)));
    Change(input, BytesOf(table).first(kTableBytes));
    table.crc = 0;
    table.crc = Crc32c(BytesOf(table));
    file.append(reinterpret_cast<const char*>(&table), sizeof table);
    file += data;
  } while (!input.empty() && number < 8);
  return file;
}

ImageFile InMemory(const std::string& content) {
  UniqueFd fd(memfd_create("backup", MFD_CLOEXEC));
  ImageFile file(std::move(fd), "memory", "backup");
  Require(file.Write(0, std::as_bytes(std::span(content))).ok());
  return file;
}

void RequireOneLine(const absl::Status& status) {
  Require(Message(status).find('\n') == std::string_view::npos);
  Require(absl::IsDataLoss(status) || absl::IsInvalidArgument(status));
}

void Look(const std::string& content) {
  const absl::StatusOr<DeltaFile> delta = DeltaFile::Read(InMemory(content));
  if (!delta.ok()) return RequireOneLine(delta.status());
  Progress none;
  const auto verified = delta->Verify(none);
  if (!verified.ok()) RequireOneLine(verified.status());
  uint64_t end = 0;
  const absl::Status walked = delta->ForEach([&](const Run& run) {
    Require(run.offset >= end && run.offset % kOverlayBlock == 0 && run.length > 0);
    end = run.offset + run.length;
    Require(end > run.offset && end <= delta->disk_bytes());
    Require(run.source == nullptr || run.at + run.length <= content.size());
    return absl::OkStatus();
  });
  if (!walked.ok()) RequireOneLine(walked);
  Require(walked.ok() || !verified.ok());
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringside::Look(ringside::MakeFile({data, size}));
  return 0;
}
