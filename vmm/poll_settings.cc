#include "vmm/poll_settings.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace ringside {
namespace {

bool HasMax(PollKind kind) {
  return kind == PollKind::kFixed || kind == PollKind::kGrowShrink || kind == PollKind::kWeighted;
}

bool HasFactors(PollKind kind) {
  return kind == PollKind::kGrowShrink || kind == PollKind::kWeighted;
}

}  // namespace

std::string PollText(const PollConfig& poll) {
  std::string text = absl::StrFormat("poll=%s", PollKindName(poll.kind));
  if (HasMax(poll.kind)) {
    text += ",max=" + absl::FormatDuration(absl::Nanoseconds(poll.max_ns));
  }
  if (HasFactors(poll.kind)) {
    absl::StrAppendFormat(&text, ",grow=%d,shrink=%d", poll.grow, poll.shrink);
  }
  if (poll.kind == PollKind::kWeighted) absl::StrAppendFormat(&text, ",weight=%d", poll.weight);
  if (poll.kind == PollKind::kCost) {
    absl::StrAppendFormat(&text, ",price=%g,cpu-max=%g%%", poll.price, 100 * poll.cpu_max);
  }
  return text;
}

nlohmann::ordered_json PollJson(const PollConfig& poll) {
  nlohmann::ordered_json json = {{"kind", PollKindName(poll.kind)}};
  if (HasMax(poll.kind)) json["max_ns"] = poll.max_ns;
  if (HasFactors(poll.kind)) {
    json["grow"] = poll.grow;
    json["shrink"] = poll.shrink;
  }
  if (poll.kind == PollKind::kWeighted) json["weight"] = poll.weight;
  if (poll.kind == PollKind::kCost) {
    json["price"] = poll.price;
    json["cpu_max_share"] = poll.cpu_max;
  }
  return json;
}

}  // namespace ringside
