// See json_line.h.

#include "json_line.h"

#include "clock.h"

namespace guest {

void PrintLatency(JsonLine& line, const Histogram& latency) {
  line.Open("latency_ns", '{');
  line.Add("min", TicksToNs(latency.min()));
  line.Add("mean", TicksToNs(latency.mean()));
  line.Add("p50", TicksToNs(latency.Quantile(50, 100)));
  line.Add("p90", TicksToNs(latency.Quantile(90, 100)));
  line.Add("p99", TicksToNs(latency.Quantile(99, 100)));
  line.Add("p999", TicksToNs(latency.Quantile(999, 1000)));
  line.Add("p9999", TicksToNs(latency.Quantile(9999, 10000)));
  line.Add("max", TicksToNs(latency.max()));
  line.Close('}');
}

void PrintHistogram(JsonLine& line, const Histogram& latency) {
  line.Open("histogram", '[');
  for (size_t i = 0; i < Histogram::kBuckets; ++i) {
    if (latency.count(i) == 0) continue;
    line.AddPair(TicksToNs(Histogram::Lower(i)), latency.count(i));
  }
  line.Close(']');
}

}  // namespace guest
