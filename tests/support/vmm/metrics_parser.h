// A reader of Prometheus's text format that forgives nothing: beside what the format demands it
// wants a HELP and a TYPE for each family, counters that end in _total and are finite and not
// negative, and histograms that add up. Spec: prometheus.io/docs/instrumenting/exposition_formats,
// "Text-based format".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::testing {

struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct ParsedMetrics {
  std::vector<std::string> problems;  // "line 3: ..."
  std::vector<MetricSample> samples;
  std::map<std::string, std::string> types;  // by family

  // Of those with these labels and perhaps others, the sum.
  double Sum(std::string_view name, const std::map<std::string, std::string>& labels = {}) const;
};

ParsedMetrics ParseMetrics(std::string_view text);

}  // namespace ringside::testing
