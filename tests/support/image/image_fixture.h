// A base with a pattern in it, an overlay on it, and what is expected of them.
#pragma once

#include <cstring>
#include <fstream>
#include <gmock/gmock.h>

#include "image/create.h"
#include "tests/support/directories.h"
#include "tests/support/image/test_overlay.h"
#include "tests/support/status_matchers.h"

namespace ringside::testing {

class ImageTest : public ::testing::Test {
 protected:
  // A page of the map and a part of the next, up to a part of a block.
  static constexpr uint64_t kDisk = kBytesPerMapPage + (1 << 20) + 512;

  ImageTest() {
    disk_.resize(kDisk);
    disk_.replace(0, 1 << 20, Pattern(1 << 20, 'b'));
    disk_.replace(kBytesPerMapPage - 6144, 12288, Pattern(12288, 'c'));
    disk_.replace(kDisk - 512, 512, Pattern(512, 'd'));
    WriteSparse(base_, disk_);
    Create(top_, {base_});
  }

  std::string Path(const std::string& name) const { return directory_ / name; }
  static void WriteSparse(const std::string& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    for (size_t at = 0; at < content.size(); at += kOverlayBlock) {
      const std::string_view block = std::string_view(content).substr(at, kOverlayBlock);
      constexpr char kZeroes[kOverlayBlock] = {};
      if (std::memcmp(block.data(), kZeroes, block.size()) == 0) continue;
      file.seekp(static_cast<std::streamoff>(at));
      file << block;
    }
    file.close();
    std::filesystem::resize_file(path, content.size());
  }
  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string content(std::filesystem::file_size(path), '?');
    file.read(content.data(), static_cast<std::streamsize>(content.size()));
    return content;
  }
  static void Create(const std::string& path, const std::vector<std::string>& bases,
                     uint64_t size = 0, bool digest = false) {
    Progress none;
    const auto made =
        CreateImage({.file = path, .size = size, .bases = bases, .digest = digest}, none);
    EXPECT_TRUE(made.ok()) << made.status();
  }
  // Of the overlay, as a machine would.
  void Scatter(unsigned seed) {
    TestOverlay overlay(top_, disk_);
    overlay.Scatter(seed);
    overlay.Close();
  }
  OverlayHeader Header(const std::string& path) const {
    const auto overlay = OverlayImage::Open(path, ImageFile::Access::kRead);
    EXPECT_TRUE(overlay.ok()) << overlay.status();
    return overlay.ok() ? overlay->header() : OverlayHeader();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const TempDirectory directory_;
  const std::string base_ = directory_ / "base";
  const std::string top_ = directory_ / "top.cow";
  std::string disk_;  // what the top holds
  Progress progress_;
};

}  // namespace ringside::testing
