#include "vmm/config_json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace ringside {
namespace {

// Builds the value as the parser comes upon its parts, and ends the parser where it goes too far:
// nlohmann's SAX interface, whose calls return whether to go on.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonBounds& bounds) : bounds_(bounds) {}

  Json Take() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Stop("it has binary data"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    Json& object = *open_.back();
    if (object.contains(name)) return Stop("the key '" + name.substr(0, 80) + "' is there twice");
    if (object.size() == bounds_.members) {
      return Stop(absl::StrFormat("an object has more than %d keys", bounds_.members));
    }
    next_ = &object[name];
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    std::string_view text = error.what();
    text.remove_prefix(std::min(text.size(), text.find("] ") + 2));
    if (text.starts_with("parse error at ")) text.remove_prefix(text.find(": ") + 2);
    return Stop(std::string(text.substr(0, 160)));
  }

 private:
  bool Stop(std::string error) {
    error_ = std::move(error);
    return false;
  }

  Json* Place(Json value) {
    Json* place = &root_;
    if (next_ != nullptr) {
      place = std::exchange(next_, nullptr);
      *place = std::move(value);
    } else if (!open_.empty()) {
      place = &open_.back()->emplace_back(std::move(value));
    } else {
      root_ = std::move(value);
    }
    return place;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (open_.size() == bounds_.depth) {
      return Stop(absl::StrFormat("it is nested more than %d deep", bounds_.depth));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonBounds bounds_;
  Json root_;
  // The objects and lists around what comes next. They stay where they are.
  std::vector<Json*> open_;
  Json* next_ = nullptr;  // the value of the key that was read last
  std::string error_;
};

// Notes how far the parser has come.
class NotingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  using Position = std::string_view::const_iterator;
  NotingIterator(Position at, Position* furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  NotingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const NotingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const NotingIterator& other) const { return at_ != other.at_; }

 private:
  Position at_;
  Position* furthest_;
};

// The largest below which a double has each whole number.
constexpr double kMostWhole = uint64_t{1} << 53;

// JSON Schema has 2.0 as an integer, and serializers that know of one kind of number write that.
void Simplify(Json& json) {
  if (json.is_number_float()) {
    const auto number = json.get<double>();
    if (number >= 0 && number <= kMostWhole && number == std::floor(number)) {
      json = static_cast<uint64_t>(number);
    }
    return;
  }
  if (!json.is_structured()) return;
  for (auto member = json.begin(); member != json.end();) {
    if (json.is_object() && member->is_null()) {
      member = json.erase(member);
    } else {
      Simplify(*member++);
    }
  }
}

}  // namespace

absl::StatusOr<Json> ParseConfigJson(std::string_view text) {
  absl::StatusOr<Json> json =
      ParseJson(text, {.bytes = kMostConfigBytes, .depth = 16, .members = 64});
  if (json.ok()) Simplify(*json);
  return json;
}

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonBounds& bounds) {
  if (text.size() > bounds.bytes) {
    return BadInput("it has more than %d bytes, and none like it needs as many", bounds.bytes);
  }
  Builder builder(bounds);
  auto taken = text.begin();
  const NotingIterator begin(text.begin(), &taken), end(text.end(), &taken);
  if (Json::sax_parse(begin, end, &builder)) return builder.Take();
  return BadInput("line %d: %s", 1 + std::count(text.begin(), taken, '\n'), builder.error());
}

}  // namespace ringside
