#include "command/signal_report.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace ringside {
namespace {

const char* ReasonText(size_t reason) {
  constexpr std::array<const char*, kSignalReasons> kTexts = {
      "as the guest had little or nothing else to do",
      "as it does best without waiting",
      "as somebody waits for one completion alone",
      "as it did not get on with what it had",
      "as none waits for longer than 5ms",
      "as a flush was done",
      "before the thread slept or the queue left it"};
  return kTexts[reason];
}

const char* ShareText(size_t rung) {
  constexpr std::array<const char*, SignalExplanation::kRungs> kTexts = {
      "at once", "at half at hand", "at a quarter at hand", "at none at hand"};
  return kTexts[rung];
}

// While the guest has so many requests, at a power of two.
std::string DepthText(size_t depth) {
  const uint64_t from = uint64_t{1} << depth;
  if (depth + 1 == SignalExplanation::kDepths) return absl::StrFormat("%d requests and more", from);
  if (depth == 0) return "1 request";
  return absl::StrFormat("%d to %d requests", from, 2 * from - 1);
}

}  // namespace

std::string TimeText(int64_t ns) {
  if (ns == kWaitForever) return "ever";
  absl::Duration unit = absl::Nanoseconds(1);
  for (int64_t left = std::abs(ns); left >= 1000; left /= 10) unit *= 10;
  return absl::FormatDuration(absl::Trunc(absl::Nanoseconds(ns), unit));
}

std::string SignalCountsText(const QueueStatistics& queue, const std::string& indent) {
  if (queue.interrupts == 0) return "";
  const SignalStatistics& signals = queue.signals;
  std::string text = absl::StrFormat(
      "%sinterrupts: %d, one for %.1f requests\n", indent, queue.interrupts,
      static_cast<double>(queue.requests()) / static_cast<double>(queue.interrupts));
  if (signals.held > 0) {
    const auto held_ns = static_cast<int64_t>(signals.held_ns);
    absl::StrAppendFormat(&text, "%sheld: %d, for %s on average, %s in all; not needed then: %d\n",
                          indent, signals.held,
                          TimeText(held_ns / static_cast<int64_t>(signals.held)), TimeText(held_ns),
                          signals.dropped);
  }
  // Where all went out at once there was nothing to decide.
  if (signals.raised[static_cast<size_t>(SignalReason::kDry)] == queue.interrupts) return text;
  for (size_t reason = 0; reason < kSignalReasons; ++reason) {
    if (signals.raised[reason] == 0) continue;
    absl::StrAppendFormat(&text, "%s  %9d %s\n", indent, signals.raised[reason],
                          ReasonText(reason));
  }
  return text;
}

std::string SignalLessonsText(const SignalExplanation& signals, const std::string& indent) {
  std::string text;
  for (size_t depth = 0; depth < SignalExplanation::kDepths; ++depth) {
    const SignalExplanation::Lesson& lesson = signals.lessons[depth];
    std::vector<std::string> rates;
    for (size_t rung = 0; rung < SignalExplanation::kRungs; ++rung) {
      if (lesson.rates[rung] == 0) continue;
      rates.push_back(absl::StrFormat("%s %.0f/s", ShareText(rung), lesson.rates[rung] * 1e9));
    }
    if (rates.empty()) continue;
    absl::StrAppendFormat(&text, "%swith %s: interrupts %s; measured: %s\n", indent,
                          DepthText(depth), ShareText(lesson.rung), absl::StrJoin(rates, ", "));
  }
  if (text.empty()) return text;
  absl::StrAppendFormat(&text,
                        "%sthe guest got on every %s at most; none waits if it is silent "
                        "for %s\n",
                        indent, TimeText(std::llround(signals.reaction_ns)),
                        TimeText(std::llround(signals.silence_ns)));
  return text;
}

}  // namespace ringside
