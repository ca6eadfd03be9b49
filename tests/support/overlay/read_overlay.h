// What is on an overlay, by its file alone: another way to it than the device's.
#pragma once

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "overlay/overlay_file.h"

namespace ringside::testing {

// The first `bytes` of a disk, whole blocks of it. `chain`: a raw image, and the overlays on it. The
// topmost may be open for writing elsewhere in a test: who opens it to read would be refused.
inline absl::StatusOr<std::string> ReadOverlay(std::vector<std::string> chain, uint64_t bytes,
                                               OverlayAccess access = OverlayAccess::kWrite) {
  const std::string top = chain.back();
  chain.pop_back();
  std::string content(bytes, '\0');
  if (chain.empty()) {
    std::ifstream(top, std::ios::binary).read(content.data(), static_cast<std::streamsize>(bytes));
    return content;
  }
  RINGSIDE_ASSIGN_OR_RETURN(const OverlayFile file, OverlayFile::Open(top, access));
  RINGSIDE_ASSIGN_OR_RETURN(const OverlayFile::Loaded loaded, file.Load());
  if (loaded.corrupt_pages != 0) return absl::DataLossError(file.name() + " is damaged");
  RINGSIDE_ASSIGN_OR_RETURN(std::string base,
                            ReadOverlay(chain, bytes, OverlayAccess::kRead));
  base.resize(std::min<uint64_t>(bytes, file.header().base_bytes));
  base.resize(bytes);
  for (uint64_t at = 0; at < bytes; at += kOverlayBlock) {
    const BlockState state = loaded.map->RunAt(at / kOverlayBlock, at / kOverlayBlock + 1).state;
    if (state == BlockState::kBase) {
      content.replace(at, kOverlayBlock, base, at, kOverlayBlock);
    } else if (state == BlockState::kHere) {
      const std::span block(content.data() + at, kOverlayBlock);
      RINGSIDE_RETURN_IF_ERROR(file.Read(at, std::as_writable_bytes(block)));
    }
  }
  return content;
}

// Makes an overlay on a chain as it is while it is used.
inline absl::Status MakeOverlayOn(const std::vector<std::string>& chain, const std::string& path) {
  BaseIdentity base;
  if (chain.size() == 1) {
    std::ifstream image(chain[0], std::ios::binary | std::ios::ate);
    RINGSIDE_ASSIGN_OR_RETURN(base,
                              RawBaseIdentity(chain[0], static_cast<uint64_t>(image.tellg())));
  } else {
    RINGSIDE_ASSIGN_OR_RETURN(const OverlayFile below,
                              OverlayFile::Open(chain.back(), OverlayAccess::kRead));
    base = OverlayBaseIdentity(below.header());
  }
  RINGSIDE_ASSIGN_OR_RETURN(const OverlayHeader header,
                            NewOverlayHeader(base.size, base, chain.back()));
  return OverlayFile::Create(path, header).status();
}

}  // namespace ringside::testing
