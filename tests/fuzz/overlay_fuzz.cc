// Files of overlays by anybody: what is refused is told in one line, and what is taken stays within
// its own disk and its own file.
//
// The input is edits of a file that is fine: eight bytes each, which part of it, where in that,
// what comes there. The first byte says whether the checksums are made right again, and whether the
// file is cut off.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "nvme/nvme_controllers.h"
#include "overlay/overlay_device.h"

namespace ringside {
namespace {

constexpr uint64_t kSize = 40 << 20;
constexpr uint64_t kCapacity = 2 * kBytesPerMapPage;

void Require(bool holds) {
  if (!holds) std::abort();
}

struct Edit {
  uint8_t part;  // a slot of the header, or of the pages, or beyond
  uint8_t bytes;
  uint16_t at;
  uint32_t value;
};
static_assert(sizeof(Edit) == 8);

// Header slots 0 and 1, slots of pages 0 and 1.
struct Parts {
  std::array<OverlayHeader, 2> headers;
  std::array<MapPage, 4> pages;

  std::byte* Slot(size_t index) {
    index %= 6;
    return index < 2 ? reinterpret_cast<std::byte*>(&headers[index])
                     : reinterpret_cast<std::byte*>(&pages[index - 2]);
  }
};

class Rig {
 public:
  Rig() : base_(memfd_create("base", MFD_CLOEXEC)), file_(memfd_create("overlay", MFD_CLOEXEC)) {
    Require(ftruncate(base_.get(), kSize) == 0);
    io_thread_ = *IoThread::Start("fuzz", IoThread::Waiter::kEpoll);
    base_path_ = "/proc/self/fd/" + std::to_string(base_.get());
    path_ = "/proc/self/fd/" + std::to_string(file_.get());
  }

  // As it was left by somebody who has used it.
  Parts Fine() {
    Parts parts;
    parts.headers[0] = *NewOverlayHeader(kSize, *RawBaseIdentity(base_path_, kSize), "", kCapacity);
    parts.headers[1] = parts.headers[0];
    parts.headers[1].sequence = 2;
    parts.headers[1].flags = OverlayHeader::kInUse;
    for (size_t i = 0; i < 4; ++i) {
      MapPage& page = parts.pages[i];
      page.number = i / 2;
      page.sequence = 1 + i % 2;
      page.here[0] = 0xf0;
      page.zeroes[1] = 1;
    }
    return parts;
  }

  void Put(const Parts& parts, uint64_t length) {
    Require(ftruncate(file_.get(), 0) == 0);
    Require(ftruncate(file_.get(), static_cast<off_t>(length)) == 0);
    const auto put = [&](const void* from, uint64_t bytes, uint64_t at) {
      if (at >= length) return;
      bytes = std::min(bytes, length - at);
      Require(pwrite(file_.get(), from, bytes, static_cast<off_t>(at)) ==
              static_cast<ssize_t>(bytes));
    };
    put(parts.headers.data(), sizeof parts.headers, 0);
    put(parts.pages.data(), sizeof parts.pages, kOverlayMapOffset);
  }

  void TryFile(OverlayAccess access, uint64_t length) {
    auto file = OverlayFile::Open(path_, access);
    if (!file.ok()) return RequireOneLine(file.status());
    const OverlayHeader& header = file->header();
    Require(header.size <= header.capacity && header.size % 512 == 0 && header.size > 0);
    Require(OverlayFileBytes(header.data_offset, header.size) <= length);
    auto loaded = file->Load();
    if (!loaded.ok()) return RequireOneLine(loaded.status());
    const uint64_t blocks = OverlayBlocks(header.size);
    Require(loaded->map->here_blocks() + loaded->map->zero_blocks() <= blocks);
    Require(loaded->map->RunAt(0, blocks).end <= blocks);
    if (access == OverlayAccess::kWrite && loaded->corrupt_pages == 0) {
      loaded->map->SetHere(blocks - 1, blocks);
      if (file->BeginUse().ok()) Require(file->EndUse(*loaded->map).ok());
    }
    struct stat info;
    Require(fstat(file_.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) == length);
  }

  void TryDevice(bool read_only) {
    NvmeControllers controllers{Logger()};
    const OverlayConfig config = {
        .base = FileConfig{.path = base_path_, .read_only = true, .cache = CacheMode::kWriteback},
        .path = path_,
        .read_only = read_only,
        .cache = CacheMode::kWriteback};
    auto device = OverlayDevice::Create(config, {.log = Logger(), .nvme = controllers});
    if (!device.ok()) return RequireOneLine(device.status());
    const uint64_t size = (*device)->info().size;
    std::unique_ptr<BlockChannel> channel;
    io_thread_->RunAndWait([&] { channel = *(*device)->Open(*io_thread_); });
    for (const uint64_t offset : {uint64_t{0}, size - 512, size, uint64_t{32} << 20}) {
      for (const BlockOp op : {BlockOp::kRead, BlockOp::kWrite, BlockOp::kFlush}) {
        const int result = Run(*channel, op, offset);
        const bool fits = op == BlockOp::kFlush || offset < size;
        Require(fits || result == -EINVAL);
        if (read_only && op == BlockOp::kWrite) Require(result < 0);
      }
    }
    io_thread_->RunAndWait([&] { channel.reset(); });
  }

 private:
  struct Asked : BlockRequest {
    Event over;
  };
  static void RequireOneLine(const absl::Status& status) {
    Require(Message(status).find('\n') == std::string_view::npos && !status.message().empty());
  }
  int Run(BlockChannel& channel, BlockOp op, uint64_t offset) {
    static std::array<std::byte, 512> memory;
    Segment segment = {.host = memory.data(), .length = 512, .region = 0};
    Asked request;
    request.op = op;
    request.offset = op == BlockOp::kFlush ? 0 : offset;
    if (op != BlockOp::kFlush) request.segments = {&segment, 1};
    request.done = [](BlockRequest& ended) { static_cast<Asked&>(ended).over.Notify(); };
    io_thread_->RunAndWait([&] { channel.Submit(request); });
    request.over.Wait();
    return request.result;
  }

  const UniqueFd base_;
  const UniqueFd file_;
  std::string base_path_;
  std::string path_;
  std::unique_ptr<IoThread> io_thread_;
};

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  static Rig& rig = *new Rig;
  static const Parts fine = rig.Fine();
  if (size == 0) return 0;
  const uint8_t how = data[0];
  Parts parts = fine;
  uint64_t length = OverlayFileBytes(parts.headers[0].data_offset, kSize);
  for (size_t at = 1; at + sizeof(Edit) <= size; at += sizeof(Edit)) {
    Edit edit;
    std::memcpy(&edit, data + at, sizeof edit);
    const size_t offset = edit.at % (kOverlaySlotBytes - sizeof edit.value + 1);
    std::memcpy(parts.Slot(edit.part) + offset, &edit.value, 1 + edit.bytes % 4);
    if ((how & 4) != 0) length = edit.value % (length + 8192);
  }
  if ((how & 1) == 0) {
    for (OverlayHeader& header : parts.headers) SealHeader(header);
  }
  if ((how & 2) == 0) {
    for (MapPage& page : parts.pages) SealPage(page);
  }
  rig.Put(parts, length);
  if ((how & 8) != 0) {
    rig.TryDevice((how & 16) != 0);
    return 0;
  }
  rig.TryFile(OverlayAccess::kRead, length);
  rig.TryFile(OverlayAccess::kWrite, length);
  return 0;
}
