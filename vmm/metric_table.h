// The metrics of a machine: what each is called and means, and where it comes from. One more metric
// is one more entry; the text for Prometheus and docs/metrics.md follow.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "vmm/metric_writer.h"
#include "vmm/metrics.h"

namespace ringside {

enum class MetricType { kCounter, kGauge, kHistogram };
const char* MetricTypeName(MetricType type);

struct Metric {
  const char* name = "";
  MetricType type = MetricType::kCounter;
  std::vector<const char*> labels;
  const char* help = "";  // one line without a backslash
  // Of all that have it.
  void (*write)(const MetricSource& source, MetricWriter& writer) = nullptr;
};

std::span<const Metric> Metrics();
// All of docs/metrics.md.
std::string MetricsMarkdown();

}  // namespace ringside
