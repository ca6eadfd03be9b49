// Writes samples in the text format of Prometheus.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ringside/statistics.h"

namespace ringside {

struct Metric;  // vmm/metric_table.h

// A number of a sample as text: all of its digits.
std::string MetricNumber(uint64_t value);
std::string MetricNumber(double value);
std::string MetricSeconds(uint64_t ns);  // as seconds, exactly

class MetricWriter {
 public:
  // `machine`: as in MetricSource.
  explicit MetricWriter(std::string_view machine);

  // The metric whose samples come next.
  void Begin(const Metric& metric);
  // By the labels of the metric, in its order. `value` is one of the texts above.
  void Sample(std::initializer_list<std::string_view> labels, std::string_view value);
  void Histogram(std::initializer_list<std::string_view> labels, const LatencyHistogram& histogram);

  std::string Take() { return std::move(text_); }

 private:
  std::string LabelsOf(std::initializer_list<std::string_view> labels) const;
  void Line(std::string_view suffix, const std::string& labels, std::string_view value);

  const std::string machine_;  // machine="...", or nothing
  const Metric* metric_ = nullptr;
  std::string text_;
};

}  // namespace ringside
