#include "command/disk_doctor.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

const char* Mark(Verdict verdict) {
  constexpr const char* kMarks[] = {"ok", "--", "slow", "LOSS", "LACK", "?"};
  return kMarks[static_cast<int>(verdict)];
}

bool IsBad(const Finding& finding) {
  return finding.verdict == Verdict::kUnsafe || finding.verdict == Verdict::kUnusable;
}

std::string Sum(const Findings& findings) {
  if (std::ranges::any_of(findings,
                          [](const Finding& each) { return each.verdict == Verdict::kUnusable; })) {
    return "A machine cannot have this disk as it is.\n";
  }
  const auto unsafe = std::ranges::count(findings, Verdict::kUnsafe, &Finding::verdict);
  const auto slow = std::ranges::count(findings, Verdict::kSlow, &Finding::verdict);
  if (unsafe > 0) return "This disk can lose what guests have written.\n";
  if (slow > 0) return "Nothing about this disk is unsafe; it could be faster.\n";
  return "Nothing about this disk is unsafe, and nothing is slow that could be told from here.\n";
}

}  // namespace

bool IsSound(const Findings& findings) {
  return std::ranges::none_of(findings, IsBad);
}

std::string DiskFindingsText(const std::string& path, const Findings& findings) {
  std::string text = absl::StrFormat("Disk %s\n", Printable(path));
  for (const Finding& each : findings) {
    absl::StrAppendFormat(&text, "  %-4s  %s\n", Mark(each.verdict), Printable(each.text));
    if (!each.command.empty()) {
      absl::StrAppendFormat(&text, "          %s\n", Printable(each.command));
    }
  }
  return text + Sum(findings);
}

std::string DiskFindingsJson(const std::string& path, const Findings& findings) {
  Json list = Json::array();
  for (const Finding& each : findings) {
    Json item = {
        {"check", each.check}, {"verdict", VerdictName(each.verdict)}, {"text", each.text}};
    if (!each.command.empty()) item["command"] = each.command;
    list.push_back(std::move(item));
  }
  const Json json = {{"disk", path}, {"sound", IsSound(findings)}, {"findings", std::move(list)}};
  return JsonDocument(json);
}

}  // namespace ringside
