// Results as JSON. Also used by programs of the host that measure in the same words.

#ifndef RINGSIDE_TESTS_GUEST_JSON_LINE_H_
#define RINGSIDE_TESTS_GUEST_JSON_LINE_H_

#include <cstdint>
#include <string_view>

#include "console.h"
#include "histogram.h"

namespace guest {

// A line of JSON on the console.
class JsonLine {
 public:
  JsonLine() { Print('{'); }
  void End() { Print("}\n"); }

  void Add(std::string_view name, uint64_t value) {
    Name(name);
    Print(Decimal{value});
  }
  void Add(std::string_view name, std::string_view text) {
    Name(name);
    Print('"');
    Print(text);
    Print('"');
  }
  // What is added until Close is within it.
  void Open(std::string_view name, char bracket) {
    Name(name);
    Print(bracket);
    first_ = true;
  }
  void Close(char bracket) {
    Print(bracket);
    first_ = false;
  }
  void AddPair(uint64_t a, uint64_t b) {
    if (!first_) Print(',');
    first_ = false;
    Print('[');
    Print(Decimal{a});
    Print(',');
    Print(Decimal{b});
    Print(']');
  }

 private:
  void Name(std::string_view name) {
    if (!first_) Print(',');
    first_ = false;
    Print('"');
    Print(name);
    Print("\":");
  }

  bool first_ = true;
};

// Members "latency_ns" and "histogram" of a histogram in ticks.
void PrintLatency(JsonLine& line, const Histogram& latency);
void PrintHistogram(JsonLine& line, const Histogram& latency);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_JSON_LINE_H_
