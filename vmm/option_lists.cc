#include "vmm/option_lists.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/number_list.h"
#include "poll/io_threads.h"
#include "ringside/machine.h"
#include "vmm/key_value.h"

namespace ringside {
namespace {

// Of one share; more than any device has.
constexpr size_t kMostQueues = 64;

bool IsNumber(const Json& json) {
  if (!json.is_number_integer() || (!json.is_number_unsigned() && json.get<int64_t>() < 0)) {
    return false;
  }
  return json.get<uint64_t>() <= UINT16_MAX;
}

// An array of numbers, or their text.
std::optional<Json> ReadNumbers(const Json& given) {
  if (given.is_string()) {
    const auto numbers = ParseNumberList(given.get_ref<const std::string&>());
    return numbers ? std::optional<Json>(*numbers) : std::nullopt;
  }
  if (!given.is_array() || given.size() > kMostListed || !std::ranges::all_of(given, IsNumber)) {
    return std::nullopt;
  }
  return given;
}

std::optional<Json> ReadAffinityText(const std::string& text) {
  Json by_vcpu = Json::array();
  for (const absl::string_view field : absl::StrSplit(text, ',')) {
    const std::string_view part(field.data(), field.size());
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto vcpu = ParseNumber<uint16_t>(part.substr(0, colon));
    const auto cpus = ParseNumberList(part.substr(colon + 1));
    if (!vcpu || !cpus || *vcpu >= Machine::kMaxCpus) return std::nullopt;
    while (by_vcpu.size() <= *vcpu) by_vcpu.push_back(Json::array());
    if (!by_vcpu[*vcpu].empty()) return std::nullopt;  // named twice
    by_vcpu[*vcpu] = *cpus;
  }
  return by_vcpu;
}

Json Share(std::string_view io_thread) {
  return {{"id", io_thread}, {"queues", Json::array()}};
}

// "a+b", or "a:0+3/b:1-2".
std::optional<Json> ReadIoThreadsText(const std::string& text) {
  Json shares = Json::array();
  const bool with_queues = text.find(':') != std::string::npos;
  for (const absl::string_view field : absl::StrSplit(text, with_queues ? '/' : '+')) {
    const std::string_view part(field.data(), field.size());
    const size_t colon = part.find(':');
    if (part.empty() || shares.size() == IoThreads::kMax) return std::nullopt;
    shares.push_back(Share(part.substr(0, colon)));
    if (!with_queues) continue;
    const auto queues =
        colon == std::string_view::npos ? std::nullopt : ParseNumberList(part.substr(colon + 1));
    if (!queues || queues->size() > kMostQueues) return std::nullopt;
    shares.back()["queues"] = *queues;
  }
  return shares;
}

// A name, or an object of one and its queues.
std::optional<Json> ReadShare(const Json& given) {
  if (given.is_string()) return Share(given.get_ref<const std::string&>());
  if (!given.is_object() || given.size() != 2 || !given.contains("id") ||
      !given.contains("queues") || !given["id"].is_string()) {
    return std::nullopt;
  }
  std::optional<Json> queues = ReadNumbers(given["queues"]);
  if (!queues || queues->empty() || queues->size() > kMostQueues) return std::nullopt;
  return Json{{"id", given["id"]}, {"queues", *std::move(queues)}};
}

// Split at spaces; a backslash takes what follows it as it is.
Json SplitWords(const std::string& text) {
  Json words = Json::array();
  std::optional<std::string> word;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
      continue;
    }
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    if (!word) word.emplace();
    word->push_back(text[i]);
  }
  if (word) words.push_back(*word);
  return words;
}

bool IsTextWithoutNul(const Json& json) {
  return json.is_string() && json.get_ref<const std::string&>().find('\0') == std::string::npos;
}

bool HasQueues(const Json& shares) {
  return std::ranges::any_of(shares, [](const Json& share) { return !share["queues"].empty(); });
}

Json NumbersSchema() {
  return {{"type", "array"},
          {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", UINT16_MAX}}}};
}

}  // namespace

std::optional<Json> ReadCpus(const Json& given) {
  return ReadNumbers(given);
}

std::string NumbersText(const Json& numbers) {
  return absl::StrJoin(numbers, "+",
                       [](std::string* text, const Json& number) { *text += number.dump(); });
}

Json CpusSchema() {
  return NumbersSchema();
}

std::optional<Json> ReadNodes(const Json& given) {
  if (!given.is_string()) return ReadNumbers(given);
  std::string text = given.get<std::string>();
  std::ranges::replace(text, ',', '+');
  return ReadNumbers(text);
}

std::string NodesText(const Json& nodes) {
  std::string text = NumbersText(nodes);
  std::ranges::replace(text, '+', ',');
  return text;
}

std::optional<Json> ReadAffinity(const Json& given) {
  if (given.is_string()) return ReadAffinityText(given.get_ref<const std::string&>());
  if (!given.is_array() || given.size() > Machine::kMaxCpus) return std::nullopt;
  Json by_vcpu = Json::array();
  for (const Json& cpus : given) {
    std::optional<Json> numbers = ReadNumbers(cpus);
    if (!numbers) return std::nullopt;
    by_vcpu.push_back(*std::move(numbers));
  }
  return by_vcpu;
}

std::string AffinityText(const Json& by_vcpu) {
  std::vector<std::string> fields;
  for (size_t vcpu = 0; vcpu < by_vcpu.size(); ++vcpu) {
    if (by_vcpu[vcpu].empty()) continue;
    fields.push_back(absl::StrFormat("%d:%s", vcpu, NumbersText(by_vcpu[vcpu])));
  }
  return absl::StrJoin(fields, ",");
}

Json AffinitySchema() {
  return {{"type", "array"}, {"items", NumbersSchema()}, {"maxItems", Machine::kMaxCpus}};
}

std::optional<Json> ReadPaths(const Json& given) {
  Json paths =
      given.is_string() ? Json(SplitAtSingle(given.get_ref<const std::string&>(), '+')) : given;
  if (!paths.is_array() || paths.empty() || paths.size() > kMostPaths) return std::nullopt;
  for (const Json& path : paths) {
    if (!IsTextWithoutNul(path) || path.get_ref<const std::string&>().empty()) return std::nullopt;
  }
  return paths;
}

std::string PathsText(const Json& paths) {
  return absl::StrJoin(paths, "+", [](std::string* text, const Json& path) {
    *text += absl::StrReplaceAll(path.get_ref<const std::string&>(), {{"+", "++"}});
  });
}

Json PathsSchema() {
  return {{"type", "array"},
          {"items", {{"type", "string"}, {"minLength", 1}}},
          {"minItems", 1},
          {"maxItems", kMostPaths}};
}

std::optional<Json> ReadWords(const Json& given) {
  Json words = given.is_string() ? SplitWords(given.get_ref<const std::string&>()) : given;
  if (!words.is_array() || words.empty() || words.size() > kMostWords) return std::nullopt;
  if (!std::ranges::all_of(words, IsTextWithoutNul)) return std::nullopt;
  return words;
}

std::string WordsText(const Json& words) {
  return absl::StrJoin(words, " ", [](std::string* text, const Json& word) {
    *text +=
        absl::StrReplaceAll(word.get_ref<const std::string&>(), {{"\\", "\\\\"}, {" ", "\\ "}});
  });
}

Json WordsSchema() {
  return {{"type", "array"},
          {"items", {{"type", "string"}}},
          {"minItems", 1},
          {"maxItems", kMostWords}};
}

std::optional<Json> ReadIoThreads(const Json& given) {
  if (given.is_string()) return ReadIoThreadsText(given.get_ref<const std::string&>());
  if (!given.is_array() || given.empty() || given.size() > IoThreads::kMax) return std::nullopt;
  Json shares = Json::array();
  for (const Json& item : given) {
    std::optional<Json> share = ReadShare(item);
    if (!share) return std::nullopt;
    shares.push_back(*std::move(share));
  }
  return shares;
}

Json PrintIoThreads(const Json& shares) {
  if (HasQueues(shares)) return shares;
  Json names = Json::array();
  for (const Json& share : shares) names.push_back(share["id"]);
  return names;
}

std::string IoThreadsText(const Json& shares) {
  const bool with_queues = HasQueues(shares);
  return absl::StrJoin(shares, with_queues ? "/" : "+", [&](std::string* text, const Json& share) {
    *text += share["id"].get<std::string>();
    if (with_queues) *text += ':' + NumbersText(share["queues"]);
  });
}

Json IoThreadsSchema() {
  const Json name = {{"type", "string"}};
  const Json share = {{"type", "object"},
                      {"properties", {{"id", name}, {"queues", NumbersSchema()}}},
                      {"required", {"id", "queues"}},
                      {"additionalProperties", false}};
  return {{"type", "array"}, {"items", {{"anyOf", Json::array({name, share})}}}, {"minItems", 1}};
}

}  // namespace ringside
