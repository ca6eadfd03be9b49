#include "command/image_report.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/size.h"
#include "overlay/overlay_header.h"

namespace ringside {
namespace {

// Null if there is none.
Json IdJson(const OverlayId& id) {
  return id == OverlayId() ? Json() : Json(OverlayIdText(id));
}

std::string DigestText(const OverlayDigest& digest) {
  return absl::BytesToHexString(std::string(digest.begin(), digest.end()));
}

const char* BaseKindName(BaseKind kind) {
  constexpr std::array kNames = {"none", "raw", "overlay"};
  return kNames[std::min<size_t>(static_cast<size_t>(kind), 2)];
}

Json BaseJson(const BaseIdentity& base) {
  Json json = {{"kind", BaseKindName(base.kind)}, {"size", base.size}};
  if (base.kind == BaseKind::kRaw) json["modified_ns"] = base.modified_ns;
  if (base.kind == BaseKind::kOverlay) {
    json["id"] = IdJson(base.id);
    json["generation"] = IdJson(base.generation);
  }
  json["digest"] = base.has_digest != 0 ? Json(DigestText(base.digest)) : Json();
  return json;
}

struct NamedFlag {
  uint64_t flag;
  const char* name;
};
constexpr std::array<NamedFlag, 4> kFlags = {{{OverlayHeader::kInUse, "in-use"},
                                              {OverlayHeader::kCorrupt, "corrupt"},
                                              {OverlayHeader::kCommitting, "committing"},
                                              {OverlayHeader::kApplying, "applying"}}};

Json FlagsJson(uint64_t flags) {
  Json json = Json::array();
  for (const NamedFlag& each : kFlags) {
    if ((flags & each.flag) != 0) json.push_back(each.name);
  }
  return json;
}

void AddOverlay(const ImageInfo& info, Json& json) {
  const OverlayHeader& header = *info.overlay;
  json["data_bytes"] = info.blocks.here_bytes;
  json["zero_bytes"] = info.blocks.zero_bytes;
  json["dirty_bytes"] = info.blocks.dirty_bytes;
  json["corrupt_pages"] = info.blocks.corrupt_pages;
  json["capacity"] = header.capacity;
  json["version"] = header.version;
  json["id"] = IdJson(header.id);
  json["generation"] = IdJson(header.generation);
  json["flags"] = FlagsJson(header.flags);
  json["point"] = IdJson(header.point);
  json["base"] = BaseJson(header.base);
  json["base_bytes"] = header.base_bytes;
  json["base_path"] = header.base_hint.data();  // ChooseHeader has seen that it ends
}

void Line(std::string& text, const char* name, const std::string& value) {
  absl::StrAppendFormat(&text, "%-14s%s\n", name, Printable(value));
}

std::string BaseText(const OverlayHeader& header) {
  std::string text =
      absl::StrFormat("%s of %s", BaseKindName(header.base.kind), FormatSize(header.base.size));
  if (header.base_hint[0] != 0) {
    text += absl::StrFormat(", last seen at '%s'", header.base_hint.data());
  }
  if (header.base.has_digest != 0) text += ", with a digest";
  return text;
}

}  // namespace

Json CreateJson(const CreateResult& result) {
  Json json = {{"kind", result.id.has_value() ? "overlay" : "raw"}, {"size", result.size}};
  if (result.id.has_value()) json["id"] = IdJson(*result.id);
  if (result.digest.has_value()) json["digest"] = DigestText(*result.digest);
  return json;
}

Json InfoJson(const ImageInfo& info) {
  Json json = {{"kind", ImageKindName(info.kind)},
               {"size", info.disk_bytes},
               {"file_bytes", info.file_bytes},
               {"bytes_on_host", info.bytes_on_host}};
  if (info.overlay.has_value()) AddOverlay(info, json);
  if (info.backup.has_value()) {
    json["full"] = (info.backup->flags & DeltaHeader::kFull) != 0;
    json["overlay"] = IdJson(info.backup->overlay);
    json["point"] = IdJson(info.backup->point);
    json["parent"] = IdJson(info.backup->parent);
  }
  return json;
}

std::string InfoText(const ImageInfo& info) {
  std::string text;
  Line(text, "kind", ImageKindName(info.kind));
  Line(text, "disk", FormatSize(info.disk_bytes));
  Line(text, "on the host", FormatSize(info.bytes_on_host));
  if (info.overlay.has_value()) {
    const OverlayHeader& header = *info.overlay;
    Line(text, "data", FormatSize(info.blocks.here_bytes));
    Line(text, "zeroes", FormatSize(info.blocks.zero_bytes));
    Line(text, "to back up", FormatSize(info.blocks.dirty_bytes));
    Line(text, "id", OverlayIdText(header.id));
    Line(text, "base", BaseText(header));
    if (header.point != OverlayId()) Line(text, "point", OverlayIdText(header.point));
    for (const Json& flag : FlagsJson(header.flags)) Line(text, "flag", flag.get<std::string>());
    if (info.blocks.corrupt_pages > 0) {
      Line(text, "DAMAGED", absl::StrFormat("%d pages of its map", info.blocks.corrupt_pages));
    }
  }
  if (info.backup.has_value()) {
    const bool is_full = (info.backup->flags & DeltaHeader::kFull) != 0;
    const bool has_parent = info.backup->parent != OverlayId();
    Line(text, "follows",
         is_full      ? "nothing: it has all of the disk"
         : has_parent ? OverlayIdText(info.backup->parent)
                      : "the base");
    Line(text, "point", OverlayIdText(info.backup->point));
  }
  return text;
}

bool IsSound(const std::vector<CheckFinding>& findings) {
  return std::ranges::none_of(
      findings, [](const CheckFinding& each) { return each.kind == CheckFinding::Kind::kBad; });
}

Json CheckJson(const std::vector<CheckFinding>& findings) {
  constexpr std::array kNames = {"fine", "note", "bad"};
  Json list = Json::array();
  for (const CheckFinding& each : findings) {
    list.push_back({{"kind", kNames[static_cast<size_t>(each.kind)]}, {"text", each.text}});
  }
  return {{"sound", IsSound(findings)}, {"findings", std::move(list)}};
}

std::string CheckText(const std::vector<CheckFinding>& findings) {
  constexpr std::array kMarks = {"ok", "--", "BAD"};
  std::string text;
  for (const CheckFinding& each : findings) {
    absl::StrAppendFormat(&text, "  %-4s  %s\n", kMarks[static_cast<size_t>(each.kind)],
                          Printable(each.text));
  }
  return text +
         (IsSound(findings) ? "Nothing is wrong with it.\n" : "Something is wrong with it.\n");
}

Json DiffJson(const DiffResult& result) {
  return {{"point", IdJson(result.point)},
          {"parent", IdJson(result.parent)},
          {"full", result.is_full},
          {"data_bytes", result.contents.data_bytes},
          {"zero_bytes", result.contents.zero_bytes},
          {"was_there", result.was_there}};
}

std::string DiffText(const DiffResult& result) {
  return absl::StrFormat("%s: %s of data, %s of zeroes; point %s\n",
                         result.was_there ? "an earlier call had made it" : "backed up",
                         FormatSize(result.contents.data_bytes),
                         FormatSize(result.contents.zero_bytes), OverlayIdText(result.point));
}

Json ApplyJson(const ApplyResult& result) {
  return {{"point", IdJson(result.point)},
          {"applied", result.applied},
          {"data_bytes", result.data_bytes},
          {"zero_bytes", result.zero_bytes}};
}

}  // namespace ringside
