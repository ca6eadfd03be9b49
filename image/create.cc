#include "image/create.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

#include "base/status.h"
#include "image/digest.h"
#include "image/new_file.h"
#include "overlay/overlay_header.h"

namespace ringside {
namespace {

constexpr uint64_t kSector = 512;

absl::StatusOr<OverlayDigest> DigestOfBases(const std::vector<std::string>& bases,
                                            Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const Chain chain,
                            Chain::Open({.bases = bases, .top = {}}, Chain::Writes::kNothing));
  RINGSIDE_ASSIGN_OR_RETURN(const ChainRuns runs, ChainRuns::Create(chain));
  return DigestOf(runs, progress);
}

absl::Status Preallocate(const CreateOptions& options, ImageFile& file, Progress& progress) {
  if (options.preallocation == Preallocation::kOff) return absl::OkStatus();
  if (options.preallocation == Preallocation::kFalloc) {
    int result = 0;
    do {
      result = fallocate(file.fd(), 0, 0, static_cast<off_t>(options.size));
    } while (result != 0 && errno == EINTR);
    if (result == 0) return absl::OkStatus();
    return ErrnoError(errno, "cannot preallocate " + file.name(),
                      "make room, or use another --prealloc");
  }
  const std::vector<std::byte> zeroes(ImageFile::kPiece);
  progress.Begin("writing", options.size);
  for (uint64_t at = 0; at < options.size; at += zeroes.size()) {
    const uint64_t length = std::min<uint64_t>(zeroes.size(), options.size - at);
    RINGSIDE_RETURN_IF_ERROR(file.Write(at, std::span(zeroes).first(length)));
    progress.At(at + length);
  }
  return absl::OkStatus();
}

absl::StatusOr<CreateResult> CreateRaw(const CreateOptions& options, Progress& progress) {
  if (options.size == 0 || options.size % kSector != 0) {
    return BadInput("an image of %d bytes cannot be a disk: give --size, a multiple of %d",
                    options.size, kSector);
  }
  RINGSIDE_ASSIGN_OR_RETURN(NewFile made, NewFile::Create(options.file, "image"));
  RINGSIDE_RETURN_IF_ERROR(made.file().Resize(options.size));
  RINGSIDE_RETURN_IF_ERROR(Preallocate(options, made.file(), progress));
  RINGSIDE_RETURN_IF_ERROR(made.Publish(options.durable));
  return CreateResult{.size = options.size};
}

absl::StatusOr<CreateResult> CreateOverlay(const CreateOptions& options, Progress& progress) {
  if (options.preallocation != Preallocation::kOff) {
    return BadInput("--prealloc is for raw images: an overlay has what is written to it");
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      const Chain chain, Chain::Open({.bases = options.bases, .top = {}}, Chain::Writes::kNothing));
  RINGSIDE_ASSIGN_OR_RETURN(BaseIdentity base, chain.Base());
  CreateResult result = {.size = options.size == 0 ? base.size : options.size};
  if (options.digest) {
    RINGSIDE_ASSIGN_OR_RETURN(result.digest, DigestOfBases(options.bases, progress));
    base.has_digest = 1;
    base.digest = *result.digest;
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      OverlayHeader header,
      NewOverlayHeader(result.size, base, std::string(chain.BaseHint().data())));
  SealHeader(header);
  result.id = header.id;
  RINGSIDE_ASSIGN_OR_RETURN(NewFile made, NewFile::Create(options.file, "overlay"));
  RINGSIDE_RETURN_IF_ERROR(made.file().Resize(OverlayFileBytes(header.data_offset, header.size)));
  RINGSIDE_RETURN_IF_ERROR(
      made.file().Write(HeaderSlotOffset(0), std::as_bytes(std::span(&header, 1))));
  RINGSIDE_RETURN_IF_ERROR(made.Publish(options.durable));
  return result;
}

}  // namespace

absl::StatusOr<CreateResult> CreateImage(const CreateOptions& options, Progress& progress) {
  if (!options.bases.empty()) return CreateOverlay(options, progress);
  if (options.digest) return BadInput("--digest is of a base: give --base");
  return CreateRaw(options, progress);
}

absl::StatusOr<RebaseResult> Rebase(const Chain::Names& names, bool unsafe, Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(Chain chain, Chain::Open(names, Chain::Writes::kTop));
  OverlayImage& top = chain.top();
  RINGSIDE_RETURN_IF_ERROR(top.CheckIsWhole(unsafe ? OverlayHeader::kCommitting : 0));
  RINGSIDE_ASSIGN_OR_RETURN(BaseIdentity base, chain.Base());
  OverlayHeader header = top.header();
  const bool is_committing = (header.flags & OverlayHeader::kCommitting) != 0;
  // A commit that was cut off may have made it as large as the overlay.
  if (base.size != header.base.size && !(is_committing && base.size == header.size)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s stands on a base of %d bytes, and '%s' has %d: no base of another size "
                        "can be right",
                        top.name(), header.base.size, chain.base_path(), base.size));
  }
  RebaseResult result = {.was_the_same = chain.CheckTop().ok()};
  if (!result.was_the_same && !unsafe) {
    if (header.base.has_digest == 0) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s has no digest of its base to compare '%s' with; if you know that it holds the same, "
          "add --unsafe",
          top.name(), chain.base_path()));
    }
    RINGSIDE_ASSIGN_OR_RETURN(const OverlayDigest digest, DigestOfBases(names.bases, progress));
    if (digest != header.base.digest) {
      return absl::FailedPreconditionError(
          absl::StrFormat("'%s' does not hold what the base of %s held: its digest is another",
                          chain.base_path(), top.name()));
    }
    result.digest_agrees = true;
  }
  if (result.was_the_same || result.digest_agrees) {
    base.has_digest = header.base.has_digest;
    base.digest = header.base.digest;
  }
  // What a commit is in the middle of is known by its path alone.
  if (!is_committing) header.base = base;
  header.base_hint = chain.BaseHint();
  RINGSIDE_RETURN_IF_ERROR(top.WriteHeader(header));
  return result;
}

}  // namespace ringside
