#include "image/delta_file.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/status.h"

namespace ringside {
namespace {

template <typename T>
std::span<const std::byte> BytesOf(const T& object) {
  return std::as_bytes(std::span(&object, 1));
}

template <typename T>
std::span<std::byte> WritableBytesOf(T& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

uint32_t CrcOf(const DeltaHeader& header) {
  return Crc32c(BytesOf(header).first(offsetof(DeltaHeader, crc)));
}

uint32_t CrcOf(DeltaTable table) {
  table.crc = 0;
  return Crc32c(BytesOf(table));
}

}  // namespace

// ---- Reading ----

struct DeltaFile::Place {
  uint64_t at = sizeof(DeltaHeader);  // in the file
  uint64_t table = 0;                 // tables before it
  uint64_t disk = 0;                  // where the last run has ended
};

absl::StatusOr<DeltaFile> DeltaFile::Open(const std::string& path) {
  RINGSIDE_ASSIGN_OR_RETURN(ImageFile file,
                            ImageFile::Open(path, ImageFile::Access::kRead, "backup"));
  return Read(std::move(file));
}

absl::StatusOr<DeltaFile> DeltaFile::Read(ImageFile file) {
  RINGSIDE_ASSIGN_OR_RETURN(const uint64_t bytes, file.Size());
  DeltaHeader header;
  if (bytes >= sizeof header) {
    RINGSIDE_RETURN_IF_ERROR(file.Read(0, WritableBytesOf(header)));
  }
  if (bytes < sizeof header || header.magic != DeltaHeader::kMagic) {
    return BadInput("%s is no backup: give a file that 'ringside image diff' has written",
                    file.name());
  }
  DeltaFile delta(std::move(file), header, bytes);
  if (header.crc != CrcOf(header)) return delta.Damaged(0, "its header's checksum is wrong");
  if (header.version != DeltaHeader::kVersion || header.bytes != sizeof header ||
      header.incompatible != 0) {
    return BadInput(
        "%s has version %d and features 0x%x, and this Ringside knows version %d: use "
        "a newer one",
        delta.name(), header.version, header.incompatible, DeltaHeader::kVersion);
  }
  if (header.disk_bytes == 0 || header.disk_bytes % 512 != 0 ||
      header.disk_bytes > kMostOverlayBytes) {
    return delta.Damaged(0, "its disk has no possible size");
  }
  if (header.point == OverlayId() || header.point == header.parent ||
      (delta.is_full() && header.parent != OverlayId())) {
    return delta.Damaged(0, "its points make no sense");
  }
  return delta;
}

absl::Status DeltaFile::Damaged(uint64_t at, const char* what) const {
  return absl::DataLossError(
      absl::StrFormat("%s is damaged at byte %d: %s; nothing of it is used", name(), at, what));
}

absl::Status DeltaFile::ReadTable(Place& place, DeltaTable& table) const {
  if (place.at > bytes_ || bytes_ - place.at < sizeof table) {
    return Damaged(place.at, "it ends before its last table");
  }
  RINGSIDE_RETURN_IF_ERROR(file_.Read(place.at, WritableBytesOf(table)));
  if (table.magic != DeltaTable::kMagic || table.crc != CrcOf(table)) {
    return Damaged(place.at, "the checksum of a table is wrong");
  }
  if (table.point != header_.point || table.number != place.table ||
      table.runs > DeltaTable::kRuns || table.is_last > 1) {
    return Damaged(place.at, "there is a table of another place or backup");
  }
  place.at += sizeof table;
  ++place.table;
  return absl::OkStatus();
}

absl::Status DeltaFile::CheckRun(const Place& place, const DeltaRun& run) const {
  const bool is_data = run.kind == DeltaRun::Kind::kData;
  if (!is_data && run.kind != DeltaRun::Kind::kZeroes) {
    return Damaged(place.at, "a run is of no known kind");
  }
  const uint64_t disk = header_.disk_bytes;
  if (run.offset % kOverlayBlock != 0 || run.offset < place.disk || run.length == 0 ||
      run.offset >= disk || run.length > disk - run.offset) {
    return Damaged(place.at, "a run is not where it may be");
  }
  if (run.length % kOverlayBlock != 0 && run.offset + run.length != disk) {
    return Damaged(place.at, "a run ends within a block");
  }
  if (is_data && (run.length > DeltaTable::kMostData || place.at > bytes_ ||
                  bytes_ - place.at < DeltaPadded(run.length))) {
    return Damaged(place.at, "a run has more data than there is");
  }
  if (is_full() && run.offset != place.disk) return Damaged(place.at, "a part of the disk lacks");
  return absl::OkStatus();
}

absl::Status DeltaFile::Walk(const VisitDelta& visit) const {
  Place place;
  DeltaTable table;
  do {
    RINGSIDE_RETURN_IF_ERROR(ReadTable(place, table));
    for (const DeltaRun& run : std::span(table.run).first(table.runs)) {
      RINGSIDE_RETURN_IF_ERROR(CheckRun(place, run));
      RINGSIDE_RETURN_IF_ERROR(visit(run, place.at));
      if (run.kind == DeltaRun::Kind::kData) place.at += DeltaPadded(run.length);
      place.disk = run.offset + run.length;
    }
  } while (table.is_last == 0);
  if (place.at != bytes_) return Damaged(place.at, "something stands behind its end");
  if (is_full() && place.disk != header_.disk_bytes) {
    return Damaged(place.at, "a part of the disk lacks");
  }
  return absl::OkStatus();
}

absl::StatusOr<DeltaFile::Contents> DeltaFile::Verify(Progress& progress) const {
  Contents contents;
  std::vector<std::byte> data(DeltaTable::kMostData);
  progress.Begin("verifying", bytes_);
  RINGSIDE_RETURN_IF_ERROR(Walk([&](const DeltaRun& run, uint64_t at) -> absl::Status {
    ++contents.runs;
    progress.At(at);
    if (run.kind == DeltaRun::Kind::kZeroes) {
      contents.zero_bytes += run.length;
      return absl::OkStatus();
    }
    const auto bytes = std::span(data).first(run.length);
    RINGSIDE_RETURN_IF_ERROR(file_.Read(at, bytes));
    if (Crc32c(bytes) != run.crc) return Damaged(at, "the checksum of data is wrong");
    contents.data_bytes += run.length;
    return absl::OkStatus();
  }));
  return contents;
}

absl::Status DeltaFile::ForEach(const Visit& visit) const {
  return Walk([&](const DeltaRun& run, uint64_t at) {
    const bool is_data = run.kind == DeltaRun::Kind::kData;
    return visit({.offset = run.offset,
                  .length = run.length,
                  .source = is_data ? &file_ : nullptr,
                  .at = is_data ? at : 0});
  });
}

// ---- Writing ----

namespace {

class DeltaWriter {
 public:
  DeltaWriter(const DeltaHeader& header, ImageFile& file, Progress& progress)
      : header_(header), file_(file), progress_(progress), buffer_(DeltaTable::kMostData) {}

  absl::Status Add(const Run& run) {
    progress_.At(run.offset);
    if (run.source == nullptr) return AddZeroes(run);
    for (uint64_t done = 0; done < run.length; done += DeltaTable::kMostData) {
      const uint64_t length = std::min(run.length - done, DeltaTable::kMostData);
      RINGSIDE_RETURN_IF_ERROR(AddData({.offset = run.offset + done,
                                        .length = length,
                                        .source = run.source,
                                        .at = run.at + done}));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DeltaFile::Contents> Finish() {
    table_.is_last = 1;
    RINGSIDE_RETURN_IF_ERROR(PutTable());
    RINGSIDE_RETURN_IF_ERROR(file_.Resize(end_));  // the padding of the last data
    header_.crc = CrcOf(header_);
    RINGSIDE_RETURN_IF_ERROR(file_.Write(0, BytesOf(header_)));
    return contents_;
  }

 private:
  absl::Status AddZeroes(const Run& run) {
    contents_.zero_bytes += run.length;
    if (table_.runs > 0) {
      DeltaRun& last = table_.run[table_.runs - 1];
      if (last.kind == DeltaRun::Kind::kZeroes && last.offset + last.length == run.offset) {
        last.length += run.length;
        return absl::OkStatus();
      }
    }
    return AddRun({.offset = run.offset, .length = run.length, .kind = DeltaRun::Kind::kZeroes});
  }

  absl::Status AddData(const Run& run) {
    const auto bytes = std::span(buffer_).first(run.length);
    RINGSIDE_RETURN_IF_ERROR(run.source->Read(run.at, bytes));
    contents_.data_bytes += run.length;
    RINGSIDE_RETURN_IF_ERROR(
        AddRun({.offset = run.offset, .length = run.length, .crc = Crc32c(bytes)}));
    RINGSIDE_RETURN_IF_ERROR(file_.CopyFrom(*run.source, run.at, end_, run.length));
    end_ += DeltaPadded(run.length);
    return absl::OkStatus();
  }

  absl::Status AddRun(const DeltaRun& run) {
    if (table_.runs == DeltaTable::kRuns) RINGSIDE_RETURN_IF_ERROR(NextTable());
    ++contents_.runs;
    table_.run[table_.runs++] = run;
    return absl::OkStatus();
  }

  // Where room was left for it; the next one's place is behind its data.
  absl::Status PutTable() {
    table_.point = header_.point;
    table_.crc = CrcOf(table_);
    return file_.Write(table_at_, BytesOf(table_));
  }

  absl::Status NextTable() {
    RINGSIDE_RETURN_IF_ERROR(PutTable());
    table_ = {.number = table_.number + 1};
    table_at_ = end_;
    end_ += sizeof table_;
    return absl::OkStatus();
  }

  DeltaHeader header_;
  ImageFile& file_;
  Progress& progress_;
  std::vector<std::byte> buffer_;
  DeltaTable table_;
  uint64_t table_at_ = sizeof(DeltaHeader);
  uint64_t end_ = sizeof(DeltaHeader) + sizeof(DeltaTable);  // of what is there
  DeltaFile::Contents contents_;
};

}  // namespace

absl::StatusOr<DeltaFile::Contents> WriteDelta(const RunSource& runs, DeltaHeader header,
                                               ImageFile& file, Progress& progress) {
  header.disk_bytes = runs.disk_bytes();
  DeltaWriter writer(header, file, progress);
  RINGSIDE_RETURN_IF_ERROR(runs.ForEach([&](const Run& run) { return writer.Add(run); }));
  return writer.Finish();
}

}  // namespace ringside
