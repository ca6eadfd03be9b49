#include "tests/support/vmm/metrics_parser.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <regex>
#include <set>

#include "base/printable.h"

namespace ringside::testing {
namespace {

using Labels = std::map<std::string, std::string>;

// What is left of a line.
class Rest {
 public:
  explicit Rest(std::string_view line) : left_(line) {}

  bool Take(std::string_view text) {
    if (!left_.starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }
  std::string TakeName(bool colons) {
    size_t length = 0;
    const auto fits = [&](char letter) {
      return letter == '_' || (colons && letter == ':') || std::isalpha(letter) ||
             (length > 0 && std::isdigit(letter));
    };
    while (length < left_.size() && fits(left_[length])) ++length;
    const std::string name(left_.substr(0, length));
    left_.remove_prefix(length);
    return name;
  }
  // Behind the quotation mark that opens it; nullopt: it has no end or an escape that is none.
  std::optional<std::string> TakeValue() {
    std::string value;
    for (size_t i = 0; i < left_.size(); ++i) {
      if (left_[i] == '"') {
        left_.remove_prefix(i + 1);
        return value;
      }
      if (left_[i] != '\\') {
        value += left_[i];
        continue;
      }
      const char escaped = ++i < left_.size() ? left_[i] : '\0';
      if (escaped != '\\' && escaped != '"' && escaped != 'n') return std::nullopt;
      value += escaped == 'n' ? '\n' : escaped;
    }
    return std::nullopt;
  }
  std::string text() const { return std::string(left_); }

 private:
  std::string_view left_;
};

class Parser {
 public:
  ParsedMetrics Parse(std::string_view text) {
    if (text.empty() || text.back() != '\n') Problem("the last line does not end");
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
      ++line_;
      if (Printable(line) != line) Problem("bytes that are no text");
      if (line.empty()) Problem("an empty line");
      line.starts_with('#') ? Comment(line) : Sample(line);
    }
    EndHistogram();
    return std::move(metrics_);
  }

 private:
  void Problem(const std::string& what) {
    metrics_.problems.push_back("line " + std::to_string(line_) + ": " + what);
  }

  // HELP begins a family, TYPE follows.
  void Comment(std::string_view line) {
    Rest rest(line);
    if (rest.Take("# HELP ")) {
      EndHistogram();
      family_ = rest.TakeName(true);
      has_type_ = false;
      if (!rest.Take(" ") || rest.text().empty()) Problem("a HELP that says nothing");
      if (rest.text().find('\\') != std::string::npos) Problem("an escape in a HELP");
      if (!families_.insert(family_).second) Problem(family_ + " comes in two groups");
    } else if (rest.Take("# TYPE ")) {
      const std::string of = rest.TakeName(true);
      if (of != family_ || has_type_) Problem("a TYPE without its HELP: " + of);
      has_type_ = true;
      if (!rest.Take(" ")) Problem("no type");
      type_ = rest.text();
      metrics_.types[family_] = type_;
      if (type_ != "counter" && type_ != "gauge" && type_ != "histogram") Problem("type " + type_);
      if ((type_ == "counter") != family_.ends_with("_total")) Problem("_total: " + family_);
    } else {
      Problem("a comment of another kind");
    }
  }

  void Sample(std::string_view line) {
    MetricSample sample;
    Rest rest(line);
    sample.name = rest.TakeName(true);
    if (rest.Take("{") && !TakeLabels(rest, sample.labels)) return Problem("broken labels");
    static const std::regex kNumber(R"([+-]?([0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?|Inf)|NaN)");
    if (!rest.Take(" ") || !std::regex_match(rest.text(), kNumber)) return Problem("no value");
    sample.value = std::strtod(rest.text().c_str(), nullptr);
    if (!has_type_) Problem("a sample without a type");
    if (!series_.insert({sample.name, sample.labels}).second) Problem("a sample comes twice");
    if (type_ == "histogram") {
      HistogramSample(sample);
    } else if (sample.name != family_) {
      Problem("a sample of another family: " + sample.name);
    }
    if (type_ == "counter" && !(std::isfinite(sample.value) && sample.value >= 0)) {
      Problem("a counter of " + rest.text());
    }
    metrics_.samples.push_back(std::move(sample));
  }

  static bool TakeLabels(Rest& rest, Labels& labels) {
    do {
      const std::string name = rest.TakeName(false);
      if (name.empty() || name.starts_with("__") || !rest.Take("=\"")) return false;
      const std::optional<std::string> value = rest.TakeValue();
      if (!value || !labels.insert({name, *value}).second) return false;
    } while (rest.Take(","));
    return rest.Take("}");
  }

  // Buckets from the least bound to +Inf, the sum, the count, one histogram after the other.
  void HistogramSample(const MetricSample& sample) {
    Labels labels = sample.labels;
    if (sample.name == family_ + "_bucket") {
      const auto le = labels.extract("le");
      if (!le) return Problem("a bucket without a bound");
      if (histogram_ != labels) EndHistogram();
      histogram_ = labels;
      const double bound = std::strtod(le.mapped().c_str(), nullptr);
      if (!(bound > bound_)) Problem("bounds that do not ascend");
      if (sample.value < bucket_) Problem("buckets that are not cumulative");
      bound_ = bound;
      bucket_ = sample.value;
      return;
    }
    if (histogram_ != labels) return Problem("a part of another histogram");
    if (sample.name == family_ + "_sum" && parts_ == 0) {
      parts_ = 1;
    } else if (sample.name == family_ + "_count" && parts_ == 1) {
      parts_ = 2;
      if (!std::isinf(bound_) || bucket_ != sample.value) Problem("+Inf is not the count");
    } else {
      Problem("a part that no histogram has: " + sample.name);
    }
  }
  void EndHistogram() {
    if (histogram_.has_value() && parts_ != 2) Problem("a histogram without an end");
    histogram_.reset();
    parts_ = 0;
    bound_ = -std::numeric_limits<double>::infinity();
    bucket_ = 0;
  }

  ParsedMetrics metrics_;
  int line_ = 0;
  std::set<std::string> families_;
  std::set<std::pair<std::string, Labels>> series_;
  std::string family_, type_;
  bool has_type_ = false;
  // Of the histogram at hand.
  std::optional<Labels> histogram_;
  int parts_ = 0;  // 1: its sum has come; 2: its count, too
  double bound_ = -std::numeric_limits<double>::infinity();
  double bucket_ = 0;
};

}  // namespace

double ParsedMetrics::Sum(std::string_view name,
                          const std::map<std::string, std::string>& labels) const {
  double sum = 0;
  for (const MetricSample& sample : samples) {
    const auto has = [&](const auto& label) {
      const auto found = sample.labels.find(label.first);
      return found != sample.labels.end() && found->second == label.second;
    };
    if (sample.name == name && std::ranges::all_of(labels, has)) sum += sample.value;
  }
  return sum;
}

ParsedMetrics ParseMetrics(std::string_view text) {
  return Parser().Parse(text);
}

}  // namespace ringside::testing
