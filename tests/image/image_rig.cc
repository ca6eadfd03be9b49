// What tests of `ringside image` from outside need beside the command:
//
//   image_rig make DIRECTORY             base and top.cow, a small pair for records
//   image_rig scatter TOP SEED           writes to an overlay as a machine would
//   image_rig record-commit DIRECTORY    commits the pair into DIRECTORY/record, of
//   DIRECTORY/before image_rig record-apply DIRECTORY     applies DIRECTORY/b1 and b2 to
//   DIRECTORY/restored.cow so image_rig check-commit IMAGE DIRECTORY SCRATCH image_rig check-apply
//   IMAGE DIRECTORY SCRATCH
//
// A record's disk is the files one behind the other. A check takes what a power cut has left of
// them, finishes what was cut off, and compares with DIRECTORY/expected.
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/stat.h>

#include "base/status.h"
#include "faults/record_file.h"
#include "image/backup.h"
#include "image/commit.h"
#include "image/create.h"
#include "overlay/overlay_header.h"
#include "tests/support/image/test_overlay.h"

namespace ringside {
namespace {

constexpr uint64_t kDisk = 200 * kOverlayBlock - 1024;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::printf("%s\n", std::string(Message(value.status())).c_str());
  std::exit(1);
}

void Must(const absl::Status& status) {
  Must(status.ok() ? absl::StatusOr<int>(0) : absl::StatusOr<int>(status));
}

void MustBe(bool holds, const char* what) {
  if (holds) return;
  std::printf("%s\n", what);
  std::exit(1);
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content(std::filesystem::file_size(path), '?');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  return content;
}

void Put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// A part of a record's disk.
class RecordedFile final : public WriteObserver {
 public:
  RecordedFile(RecordFile& record, uint64_t begin) : record_(record), begin_(begin) {}

  uint64_t Begins(BlockOp op, uint64_t offset, uint64_t length,
                  std::span<const std::byte> data) override {
    segment_ = {.host = const_cast<std::byte*>(data.data()),
                .length = static_cast<uint32_t>(data.size())};
    request_ = {.op = op, .offset = begin_ + offset, .length = length};
    if (!data.empty()) request_.segments = std::span(&segment_, 1);
    return record_.Submitted(request_);
  }
  void Ended(uint64_t number, bool succeeded) override {
    record_.Completed(number, request_, succeeded ? 0 : -EIO);
  }

 private:
  RecordFile& record_;
  const uint64_t begin_;
  Segment segment_ = {};
  BlockRequest request_ = {};
};

std::unique_ptr<RecordFile> Record(const std::string& directory, uint64_t bytes) {
  const BlockInfo info = {.size = bytes};
  return Must(RecordFile::Create(directory + "/record", uint64_t{1} << 30, info, Logger()));
}

void MakeOverlay(const std::string& path, const std::string& base) {
  const BaseIdentity identity = Must(RawBaseIdentity(base, std::filesystem::file_size(base)));
  // Without room to grow, so that records are small.
  OverlayHeader header = Must(NewOverlayHeader(identity.size, identity, base, identity.size));
  SealHeader(header);
  Put(path, std::string(reinterpret_cast<const char*>(&header), sizeof header));
  std::filesystem::resize_file(path, OverlayFileBytes(header.data_offset, header.size));
}

void Make(const std::string& directory) {
  const std::string base = directory + "/base", top = directory + "/top.cow";
  const std::string restored = directory + "/restored.cow";
  std::string disk = testing::Pattern(kDisk, 'b');
  Put(base, disk);
  MakeOverlay(top, base);
  MakeOverlay(restored, base);
  Progress none;
  for (const unsigned seed : {1u, 2u}) {
    testing::TestOverlay overlay(top, disk);
    for (const unsigned more : {0u, 10u, 20u}) overlay.Scatter(seed + more);
    overlay.Close();
    const std::string number = std::to_string(seed);
    Must(Diff({.bases = {}, .top = top}, false, directory + "/b" + number, none).status());
    Put(directory + "/after" + number, disk);
  }
  Put(directory + "/expected", disk);
}

void RecordCommit(const std::string& directory) {
  const std::string base = directory + "/base", top = directory + "/top.cow";
  const std::string before = Content(base) + Content(top);
  Put(directory + "/before", before);
  const auto record = Record(directory, before.size());
  RecordedFile base_part(*record, 0), top_part(*record, kDisk);
  Progress none;
  Must(
      Commit({.bases = {base}, .top = top}, none, {.top = &top_part, .base = &base_part}).status());
}

void RecordApply(const std::string& directory) {
  const std::string restored = directory + "/restored.cow";
  Put(directory + "/before", Content(restored));
  const auto record = Record(directory, std::filesystem::file_size(restored));
  RecordedFile part(*record, 0);
  Progress none;
  Must(Apply({.image = restored,
              .bases = {directory + "/base"},
              .deltas = {directory + "/b1", directory + "/b2"},
              .observer = &part},
             none)
           .status());
}

// A power cut keeps the base's time, which is flushed with it: what the header says.
void SetTime(const std::string& path, int64_t ns) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                             {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000}};
  MustBe(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0, "utimensat");
}

OverlayHeader HeaderOf(const std::string& path) {
  return Must(OverlayImage::Open(path, ImageFile::Access::kRead)).header();
}

// What is seen of the pair, whatever they say of each other.
std::string Seen(const std::string& top, const std::string& base) {
  const Chain chain = Must(Chain::Open({.bases = {base}, .top = top}, Chain::Writes::kNothing));
  const ChainRuns runs = Must(ChainRuns::Create(chain));
  std::string content(runs.disk_bytes(), '\0');
  Must(runs.ForEach([&](const Run& run) {
    const auto bytes = std::as_writable_bytes(std::span(content)).subspan(run.offset, run.length);
    return run.source == nullptr ? absl::OkStatus() : run.source->Read(run.at, bytes);
  }));
  return content;
}

void CheckCommit(const std::string& image, const std::string& directory, const std::string& base,
                 const std::string& top) {
  const std::string both = Content(image), expected = Content(directory + "/expected");
  Put(base, both.substr(0, kDisk));
  Put(top, both.substr(kDisk));
  MustBe(Seen(top, base) == expected, "what is seen has changed");
  const OverlayHeader header = HeaderOf(top);
  const Chain::Names names = {.bases = {base}, .top = top};
  Progress none;
  if ((header.flags & OverlayHeader::kCommitting) != 0) {
    Must(Rebase(names, /*unsafe=*/true, none).status());  // only the path is another
  } else {
    const bool is_done = header.epoch != 0;
    MustBe(is_done || both.compare(0, kDisk, Content(directory + "/before"), 0, kDisk) == 0,
           "the base has changed, and the overlay does not say why");
    SetTime(base, header.base.modified_ns);
  }
  Must(Commit(names, none).status());
  MustBe(Content(base) == expected, "the base is not what the overlay was");
  MustBe(Seen(top, base) == expected, "the empty overlay is not the base");
  Must(Chain::OpenToRead(names).status());
}

void CheckApply(const std::string& image, const std::string& directory, const std::string& base,
                const std::string& top) {
  std::filesystem::copy_file(directory + "/base", base,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(image, top, std::filesystem::copy_options::overwrite_existing);
  const OverlayHeader header = HeaderOf(top);
  SetTime(base, header.base.modified_ns);
  const std::vector<std::string> deltas = {directory + "/b1", directory + "/b2"};
  // Whoever is at a point, and not on the way to it, has what the backup had.
  std::map<OverlayId, std::string> contents = {{OverlayId(), Content(base)}};
  for (const char number : {'1', '2'}) {
    const DeltaFile delta = Must(DeltaFile::Open(directory + "/b" + number));
    contents[delta.header().point] = Content(directory + "/after" + number);
  }
  const bool is_whole = (header.flags & OverlayHeader::kApplying) == 0;
  MustBe(!is_whole || Seen(top, base) == contents[header.point], "it is not what its point says");
  Progress none;
  Must(Apply({.image = top, .bases = {base}, .deltas = deltas}, none).status());
  MustBe(Seen(top, base) == Content(directory + "/expected"), "applied is not what was backed up");
}

int Main(const std::vector<std::string>& words) {
  const std::string verb = words.empty() ? "" : words[0];
  if (verb == "make" && words.size() == 2) {
    Make(words[1]);
  } else if (verb == "scatter" && words.size() == 3) {
    std::string disk(HeaderOf(words[1]).size, '\0');
    testing::TestOverlay overlay(words[1], disk);
    overlay.Scatter(static_cast<unsigned>(std::atoi(words[2].c_str())));
    overlay.Close();
  } else if (verb == "record-commit" && words.size() == 2) {
    RecordCommit(words[1]);
  } else if (verb == "record-apply" && words.size() == 2) {
    RecordApply(words[1]);
  } else if (verb.starts_with("check-") && words.size() == 4) {
    const std::string scratch = words[3] + "/check-" + std::to_string(getpid());
    const std::string base = scratch + "-base", top = scratch + "-top";
    (verb == "check-commit" ? CheckCommit : CheckApply)(words[1], words[2], base, top);
    std::filesystem::remove(base);
    std::filesystem::remove(top);
  } else {
    std::printf("usage: see image_rig.cc\n");
    return 2;
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  return ringside::Main({argv + 1, argv + argc});
}
