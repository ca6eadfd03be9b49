#include "ringside/snapshot_merge.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "base/mapping_guard.h"
#include "base/pages.h"
#include "base/status.h"
#include "vmm/machine_state.h"
#include "vmm/snapshot_writer.h"

namespace ringside {
namespace {

// The file of a snapshot's memory, which may become shorter meanwhile.
class MappedMemory {
 public:
  static absl::StatusOr<std::unique_ptr<MappedMemory>> Of(const UniqueFd& file, uint64_t size) {
    std::unique_ptr<MappedMemory> mapped(new MappedMemory(file.get()));
    if (size == 0) return mapped;  // a difference of nothing
    void* const host = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
    if (host == MAP_FAILED) return ErrnoError(errno, "cannot map the memory of a snapshot");
    mapped->bytes_ = {static_cast<std::byte*>(host), size};
    RINGSIDE_ASSIGN_OR_RETURN(MappingGuard guard,
                              MappingGuard::Of(mapped->bytes_, Lose, mapped.get()));
    mapped->guard_.emplace(std::move(guard));
    return mapped;
  }
  ~MappedMemory() {
    guard_.reset();
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  MemoryRegion Part(uint64_t page, uint64_t count) const {
    const uint64_t offset = page * kPageSize;
    return {.guest_address = 0,
            .size = count * kPageSize,
            .host = bytes_.data() + offset,
            .fd = fd_,
            .fd_offset = offset,
            .index = 0};
  }
  bool is_lost() const { return is_lost_.load(std::memory_order_relaxed); }

 private:
  explicit MappedMemory(int fd) : fd_(fd) {}
  static void Lose(void* context) {
    static_cast<MappedMemory*>(context)->is_lost_.store(true, std::memory_order_relaxed);
  }

  const int fd_;
  std::span<std::byte> bytes_;
  std::optional<MappingGuard> guard_;
  std::atomic<bool> is_lost_ = false;
};

// A run of pages of the memory, and where they are.
struct Piece {
  PageRun pages;
  const MappedMemory* in;
  uint64_t from;  // the first one's number there

  Piece Part(uint64_t first, uint64_t end) const {
    return {{first, end - first}, in, from + (first - pages.first)};
  }
};

// `below` has all pages, and what is in `above` takes the place of theirs. Both ascend.
std::vector<Piece> Overlay(const std::vector<Piece>& below, const std::vector<Piece>& above) {
  std::vector<Piece> all;
  auto over = above.begin();
  for (const Piece& piece : below) {
    // Behind the last one that was taken, which may reach into this piece, or beyond it.
    uint64_t at = std::max(piece.pages.first, all.empty() ? 0 : all.back().pages.end());
    // Those that begin in this piece, and what is left of it between them.
    for (; over != above.end() && over->pages.first < piece.pages.end(); ++over) {
      if (over->pages.first > at) all.push_back(piece.Part(at, over->pages.first));
      all.push_back(*over);
      at = over->pages.end();
    }
    if (at < piece.pages.end()) all.push_back(piece.Part(at, piece.pages.end()));
  }
  return all;
}

std::vector<Piece> PiecesOf(const SavedMachine& state, const MappedMemory& memory) {
  if (!state.difference.has_value()) {
    return {{{0, state.memory.size / kPageSize}, &memory, 0}};
  }
  std::vector<Piece> pieces;
  uint64_t from = 0;
  for (const PageRun& run : state.difference->pages) {
    pieces.push_back({run, &memory, std::exchange(from, from + run.count)});
  }
  return pieces;
}

struct Layer {
  std::string directory;
  Snapshot snapshot;

  const SavedMachine& state() const { return snapshot.state; }
  bool FollowsOn(const Layer& other) const {
    const std::optional<SavedDifference>& difference = state().difference;
    return difference.has_value() && difference->base == other.state().memory.identity &&
           state().memory.size == other.state().memory.size;
  }
};

// The whole one first, each of the others behind what it is a difference to.
absl::Status Sort(std::vector<Layer>& layers) {
  for (size_t sorted = 0; sorted < layers.size(); ++sorted) {
    const auto next = std::find_if(layers.begin() + static_cast<ptrdiff_t>(sorted), layers.end(),
                                   [&](const Layer& layer) {
                                     return sorted == 0 ? !layer.state().difference.has_value()
                                                        : layer.FollowsOn(layers[sorted - 1]);
                                   });
    if (next == layers.end() && sorted == 0) {
      return BadInput("all of these are differences: give the snapshot that the first is one to");
    }
    if (next == layers.end()) {
      return BadInput(
          "none of the others is a difference to '%s', such as '%s': give all that are "
          "between them, and each once",
          layers[sorted - 1].directory, layers[sorted].directory);
    }
    std::swap(layers[sorted], *next);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Layer>> OpenLayers(const std::vector<std::string>& directories) {
  std::vector<Layer> layers;
  for (const std::string& directory : directories) {
    RINGSIDE_ASSIGN_OR_RETURN(Snapshot snapshot, OpenAnySnapshot(directory));
    layers.push_back({directory, std::move(snapshot)});
  }
  RINGSIDE_RETURN_IF_ERROR(Sort(layers));
  return layers;
}

}  // namespace

absl::Status MergeSnapshots(const std::vector<std::string>& directories, const std::string& to,
                            const MergeProgress& progress) {
  const auto of = [](const MemoryProgress& told) {
    return told ? told : [](uint64_t, uint64_t) {};
  };
  if (directories.empty()) return BadInput("there is nothing to merge: give snapshots");
  const FaultsAllowed faults;
  RINGSIDE_ASSIGN_OR_RETURN(std::vector<Layer> layers, OpenLayers(directories));
  RINGSIDE_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotWriter> writer, SnapshotWriter::In(to));
  std::vector<std::unique_ptr<MappedMemory>> memories;
  std::vector<Piece> pieces;
  for (const Layer& layer : layers) {
    // What is merged has a checksum of its own, so it has to be right before.
    const MemoryImage image = FileImage(layer.state());
    RINGSIDE_RETURN_IF_ERROR(VerifyMemoryImage(image, layer.snapshot.memory, layer.snapshot.path,
                                               of(progress.verifying)));
    RINGSIDE_ASSIGN_OR_RETURN(memories.emplace_back(),
                              MappedMemory::Of(layer.snapshot.memory, image.size));
    std::vector<Piece> own = PiecesOf(layer.state(), *memories.back());
    pieces = pieces.empty() ? std::move(own) : Overlay(pieces, own);
  }
  std::vector<MemoryRegion> parts;
  parts.reserve(pieces.size());
  for (const Piece& piece : pieces) parts.push_back(piece.in->Part(piece.from, piece.pages.count));
  SavedMachine state = layers.back().state();
  state.difference.reset();
  const auto loss = [&] {
    const auto lost = std::ranges::find_if(memories, &MappedMemory::is_lost);
    if (lost == memories.end()) return absl::OkStatus();
    const Layer& layer = layers[static_cast<size_t>(lost - memories.begin())];
    return BadInput("the storage of '%s' fails", layer.snapshot.path);
  };
  const MemoryStep step = [&, told = of(progress.merging)](uint64_t done, uint64_t all) {
    told(done, all);
    return loss();
  };
  RINGSIDE_RETURN_IF_ERROR(
      WriteMemoryImage(parts, true, writer->memory(), writer->memory_path(), step, state.memory));
  for (const auto& [directory, snapshot] : layers) {
    // What has become shorter meanwhile was taken for zeroes.
    RINGSIDE_RETURN_IF_ERROR(
        CheckMemoryImage(FileImage(snapshot.state), snapshot.memory, snapshot.path));
  }
  return writer->Commit(EncodeMachine(state));
}

}  // namespace ringside
