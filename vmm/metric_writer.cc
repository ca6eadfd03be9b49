#include "vmm/metric_writer.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "vmm/metric_table.h"

namespace ringside {
namespace {

// A label as the format has it. What is no UTF-8 may not stand there, nor may a line feed:
// Printable leaves a backslash and a quotation mark to be escaped.
std::string Label(const std::string& name, std::string_view value) {
  std::string text = name + "=\"";
  for (const char letter : Printable(value)) {
    if (letter == '\\' || letter == '"') text += '\\';
    text += letter;
  }
  return text + '"';
}

void Append(std::string& labels, const std::string& label) {
  if (!labels.empty() && !label.empty()) labels += ',';
  labels += label;
}

}  // namespace

std::string MetricNumber(uint64_t value) {
  return std::to_string(value);
}

std::string MetricNumber(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (std::isnan(value)) return "NaN";
  char text[32];  // the shortest text that is read as the same number has 24 characters at most
  const std::to_chars_result end = std::to_chars(std::begin(text), std::end(text), value);
  return {std::begin(text), end.ptr};
}

std::string MetricSeconds(uint64_t ns) {
  std::string text = absl::StrFormat("%d.%09d", ns / 1'000'000'000, ns % 1'000'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

MetricWriter::MetricWriter(std::string_view machine)
    : machine_(machine.empty() ? "" : Label("machine", machine)) {}

void MetricWriter::Begin(const Metric& metric) {
  metric_ = &metric;
  absl::StrAppendFormat(&text_, "# HELP %s %s\n# TYPE %s %s\n", metric.name, metric.help,
                        metric.name, MetricTypeName(metric.type));
}

void MetricWriter::Sample(std::initializer_list<std::string_view> labels, std::string_view value) {
  Line("", LabelsOf(labels), value);
}

void MetricWriter::Histogram(std::initializer_list<std::string_view> labels,
                             const LatencyHistogram& histogram) {
  const std::string all = LabelsOf(labels);
  uint64_t count = 0;
  for (size_t i = 0; i < kLatencyBuckets; ++i) {
    count += histogram.counts[i];
    const bool is_last = i == kLatencyBoundsNs.size();
    std::string bucket = all;
    Append(bucket,
           Label("le",
                 is_last ? "+Inf"
                         : absl::StrFormat("%g", static_cast<double>(kLatencyBoundsNs[i]) / 1e9)));
    Line("_bucket", bucket, MetricNumber(count));
  }
  Line("_sum", all, MetricSeconds(histogram.sum_ns));
  Line("_count", all, MetricNumber(count));
}

std::string MetricWriter::LabelsOf(std::initializer_list<std::string_view> labels) const {
  std::string text = machine_;
  auto name = metric_->labels.begin();
  for (const std::string_view value : labels) Append(text, Label(*name++, value));
  return text;
}

void MetricWriter::Line(std::string_view suffix, const std::string& labels,
                        std::string_view value) {
  text_ += metric_->name;
  text_ += suffix;
  if (!labels.empty()) text_ += '{' + labels + '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

}  // namespace ringside
