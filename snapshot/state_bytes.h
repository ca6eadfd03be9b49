// How the parts of a state stand in a file: numbers little-endian, one after the other, lists with
// their length in front. What is read may come from anywhere: a reader never goes beyond its bytes,
// and after the first thing that is not there gives zeroes and says so once, at the end.
//
// Threads: none. Ownership: a reader's bytes outlive it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace ringside {

static_assert(std::endian::native == std::endian::little);

class StateWriter {
 public:
  // A number, or one of the kernel's structures, whose layout its ABI fixes.
  template <typename Value>
    requires std::is_trivially_copyable_v<Value>
  void Put(const Value& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  template <typename Value>
  void PutList(const std::vector<Value>& values) {
    Put(static_cast<uint32_t>(values.size()));
    for (const Value& value : values) Put(value);
  }
  void PutText(const std::string& text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

class StateReader {
 public:
  explicit StateReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  template <typename Value>
    requires std::is_trivially_copyable_v<Value>
  Value Get() {
    Value value = {};
    if (Has(sizeof value)) {
      std::memcpy(&value, rest_.data(), sizeof value);
      rest_ = rest_.subspan(sizeof value);
    }
    return value;
  }
  // Into what was there before: for the reader's type to be deduced.
  template <typename Value>
  void Get(Value& value) {
    value = Get<Value>();
  }
  template <typename Value>
  void GetList(std::vector<Value>& values) {
    const uint32_t count = Count(sizeof(Value));
    values.resize(count);
    for (Value& value : values) Get(value);
  }
  void GetText(std::string& text) {
    const uint32_t size = Count(1);
    text.assign(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
  }
  // How many elements of at least so many bytes follow: never more than there are bytes for.
  uint32_t Count(size_t least_size) {
    const auto count = Get<uint32_t>();
    return Has(uint64_t{count} * least_size) ? count : 0;
  }
  // What was asked for was there so far.
  bool IsFine() const { return !failed_; }
  // Everything that was asked for was there, and there is no more.
  bool IsExact() const { return !failed_ && rest_.empty(); }

 private:
  bool Has(uint64_t size) {
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      rest_ = {};
    }
    return !failed_;
  }

  std::span<const uint8_t> rest_;
  bool failed_ = false;
};

}  // namespace ringside
