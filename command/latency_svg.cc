// A latency report as a picture: for each queue and kind a stacked bar of its requests around p50,
// p90 and p99. Each has a scale of its own, as a flush takes a thousand times a read. Rectangles
// and text, so no library draws them.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "command/latency_summary.h"
#include "devices/latency_trace.h"

namespace ringside {
namespace {

// In pixels.
constexpr int kWidth = 960;
constexpr int kLeft = 230;  // of the bars
constexpr int kBarPixels = 620;
constexpr int kTop = 70;
constexpr int kBarHeight = 16;
constexpr int kRowHeight = 22;
constexpr int kGroupHeight = 102;  // rows and axis of a queue and kind

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : Printable(text)) {
    if (c == '<' || c == '>' || c == '&') {
      absl::StrAppendFormat(&escaped, "&#%d;", c);
    } else {
      escaped += c;
    }
  }
  return escaped;
}

void Text(std::string& svg, double x, double y, const char* anchor, const std::string& text) {
  absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                        anchor, text);
}

void Rectangle(std::string& svg, double x, double y, double width, double height,
               const char* color) {
  absl::StrAppendFormat(&svg,
                        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                        "fill=\"%s\"/>\n",
                        x, y, width, height, color);
}

// 1, 2 or 5 times a power of ten, so that five to ten or so of them are the whole.
double TickStep(double whole) {
  const double power = std::pow(10, std::floor(std::log10(whole / 5)));
  const double steps = whole / 5 / power;
  return power * (steps >= 5 ? 5 : steps >= 2 ? 2 : 1);
}

void AddLegend(std::string& svg) {
  Text(svg, 10, 24, "start", "Latency of requests around p50, p90 and p99, by stage, in us");
  double x = 10;
  for (const LatencyStage& stage : kStages) {
    Rectangle(svg, x, 40, 12, 12, stage.color);
    Text(svg, x + 18, 51, "start", Escape(StageName(stage)));
    x += 188;
  }
}

void AddAxis(std::string& svg, double most_ns, double y, double height) {
  const double step_ns = TickStep(most_ns);
  for (int tick = 0; tick * step_ns <= most_ns; ++tick) {
    const double x = kLeft + tick * step_ns / most_ns * kBarPixels;
    Rectangle(svg, x, y, 1, height, "#dddddd");
    Text(svg, x, y + height + 12, "middle", absl::StrFormat("%g", tick * step_ns / 1000));
  }
}

void AddBar(std::string& svg, const LatencyProfile& profile, double most_ns, double y) {
  double x = kLeft;
  for (size_t stage = 0; stage < kLatencyStages; ++stage) {
    const double width = profile.stages_ns[stage] / most_ns * kBarPixels;
    Rectangle(svg, x, y, width, kBarHeight, kStages[stage].color);
    x += width;
  }
  Text(svg, kLeft - 8, y + 12, "end", profile.name);
  Text(svg, x + 6, y + 12, "start", absl::StrFormat("%.2f", profile.total_ns / 1000));
}

void AddSummary(std::string& svg, const LatencySummary& summary, double y) {
  double most_ns = 1;
  for (const LatencyProfile& profile : summary.profiles) {
    most_ns = std::max(most_ns, profile.total_ns);
  }
  AddAxis(svg, most_ns, y, kRowHeight * static_cast<double>(summary.profiles.size()));
  Text(svg, 10, y + 16, "start",
       absl::StrFormat("%s queue %d, %s", Escape(summary.device), summary.queue,
                       RequestKindName(summary.kind)));
  Text(svg, 10, y + 16 + kRowHeight, "start", absl::StrFormat("%d requests", summary.total.count));
  for (const LatencyProfile& profile : summary.profiles) {
    AddBar(svg, profile, most_ns, y + 3);
    y += kRowHeight;
  }
}

}  // namespace

std::string LatencySvg(const LatencyReport& report) {
  const int height = kTop + kGroupHeight * static_cast<int>(report.summaries.size());
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      kWidth, height);
  Rectangle(svg, 0, 0, kWidth, height, "#ffffff");
  AddLegend(svg);
  double y = kTop;
  for (const LatencySummary& summary : report.summaries) {
    AddSummary(svg, summary, y);
    y += kGroupHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace ringside
