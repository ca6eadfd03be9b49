// Overlays as machines would have written them, beside what their disks then hold.
#pragma once

#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "image/chain.h"
#include "overlay/overlay_file.h"
#include "tests/support/temp_file.h"

namespace ringside::testing {

// Changes blocks of an overlay, and in `disk` what is seen of it.
class TestOverlay {
 public:
  TestOverlay(const std::string& path, std::string& disk) : disk_(disk) {
    absl::StatusOr<OverlayFile> file = OverlayFile::Open(path, OverlayAccess::kWrite);
    EXPECT_TRUE(file.ok()) << file.status();
    file_.emplace(*std::move(file));
    EXPECT_TRUE(file_->BeginUse().ok());
    absl::StatusOr<OverlayFile::Loaded> loaded = file_->Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    map_ = std::move(loaded->map);
  }
  // Closes it; without this, whoever had it was killed.
  void Close() {
    EXPECT_TRUE(file_->EndUse(*map_).ok());
    EXPECT_TRUE(file_->Flush().ok());
    file_.reset();
  }

  void Write(uint64_t block, uint64_t count, char seed) {
    const std::string data = Pattern(count * kOverlayBlock, seed);
    EXPECT_TRUE(file_->Write(block * kOverlayBlock, std::as_bytes(std::span(data))).ok());
    map_->SetHere(block, block + count);
    Put(block, data);
  }
  void Zero(uint64_t block, uint64_t count) {
    map_->SetZeroes(block, block + count);
    Put(block, std::string(count * kOverlayBlock, '\0'));
  }
  // Some of both, all over the disk.
  void Scatter(unsigned seed) {
    std::mt19937 draw(seed);
    const uint64_t blocks = OverlayBlocks(disk_.size());
    for (int i = 0; i < 12; ++i) {
      const uint64_t block = draw() % blocks;
      const uint64_t count = std::min<uint64_t>(1 + draw() % 40, blocks - block);
      if (i % 3 == 2) {
        Zero(block, count);
      } else {
        Write(block, count, static_cast<char>(draw()));
      }
    }
  }

 private:
  void Put(uint64_t block, const std::string& data) {
    const uint64_t offset = block * kOverlayBlock;
    disk_.replace(offset, data.size(), data, 0, disk_.size() - offset);
  }

  std::string& disk_;
  std::optional<OverlayFile> file_;
  std::unique_ptr<BlockMap> map_;
};

// What a disk of these holds.
inline std::string ContentOf(const std::string& top, std::vector<std::string> bases) {
  std::string content;
  const absl::StatusOr<Chain> chain = Chain::OpenToRead({.bases = std::move(bases), .top = top});
  EXPECT_TRUE(chain.ok()) << chain.status();
  if (!chain.ok()) return content;
  const absl::StatusOr<ChainRuns> runs = ChainRuns::Create(*chain);
  const absl::Status status = runs->ForEach([&](const Run& run) -> absl::Status {
    EXPECT_EQ(run.offset, content.size());
    content.resize(run.offset + run.length);
    if (run.source == nullptr) return absl::OkStatus();
    const auto bytes = std::as_writable_bytes(std::span(content)).subspan(run.offset);
    return run.source->Read(run.at, bytes);
  });
  EXPECT_TRUE(status.ok()) << status;
  return content;
}

}  // namespace ringside::testing
