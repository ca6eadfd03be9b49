// The other way round: values as they are written, and what is said of those that are possible.
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/size.h"
#include "vmm/option_lists.h"
#include "vmm/option_type.h"

namespace ringside {
namespace {

std::string Quantity(OptionKind kind, uint64_t value) {
  if (kind == OptionKind::kTime) {
    return absl::FormatDuration(absl::Nanoseconds(static_cast<int64_t>(value)));
  }
  if (kind != OptionKind::kSize) return absl::StrFormat("%d", value);
  const std::string text = FormatSize(value);
  return ParseSize(text).value_or(0) == value ? text : absl::StrFormat("%d", value);
}

// Fifteen digits are what a double keeps of any decimal number.
std::string Percent(double share) {
  return absl::StrFormat("%.15g%%", 100 * share);
}

std::string Range(const OptionType& type) {
  const std::string least = Quantity(type.kind, type.least);
  if (type.most == UINT64_MAX) return least + " or more";
  return least + " to " + Quantity(type.kind, type.most);
}

Json PlainSchema(const OptionType& type) {
  switch (type.kind) {
    case OptionKind::kWhole:
      return {{"type", "integer"}, {"minimum", type.least}, {"maximum", type.most}};
    case OptionKind::kReal:
      return {{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", type.real_most}};
    case OptionKind::kShare:
      return {{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)?%$"}};
    case OptionKind::kTime:
      return {{"type", "string"}, {"pattern", "^(0|([0-9]+(\\.[0-9]*)?(ns|us|ms|s|m|h))+)$"}};
    case OptionKind::kSwitch:
      return {{"type", "boolean"}};
    case OptionKind::kId:
      return {{"type", "string"}, {"pattern", "^[A-Za-z0-9._-]+$"}, {"maxLength", type.most}};
    default:
      return {{"type", "string"}};
  }
}

Json SizeSchema(const OptionType& type) {
  Json bytes = {{"type", "integer"}, {"minimum", type.least}};
  if (type.most != UINT64_MAX) bytes["maximum"] = type.most;
  if (type.multiple != 1) bytes["multipleOf"] = type.multiple;
  const Json text = {{"type", "string"}, {"pattern", "^[0-9]+[KMGTkmgt]?$"}};
  return {{"anyOf", Json::array({text, bytes})}};
}

}  // namespace

std::string JoinChoices(const std::vector<const char*>& choices) {
  std::string text = absl::StrJoin(choices, ", ");
  if (choices.size() > 1) text.replace(text.rfind(", "), 2, " or ");
  return text;
}

Json PrintValue(const OptionSpec& spec, const Json& value) {
  if (value.is_null()) return *spec.unset_name != '\0' ? Json(spec.unset_name) : Json();
  switch (spec.type.kind) {
    case OptionKind::kShare:
      return Percent(value.get<double>());
    case OptionKind::kSize: {
      const auto bytes = value.get<uint64_t>();
      std::string text = Quantity(spec.type.kind, bytes);
      return ParseSize(text).ok() && text.find_first_of("KMGT") != std::string::npos ? Json(text)
                                                                                     : Json(bytes);
    }
    case OptionKind::kTime:
      return absl::FormatDuration(absl::Nanoseconds(value.get<int64_t>()));
    case OptionKind::kIoThreads:
      return PrintIoThreads(value);
    default:
      return value;
  }
}

std::string ValueText(const OptionSpec& spec, const Json& value) {
  switch (value.is_null() ? OptionKind::kText : spec.type.kind) {
    case OptionKind::kSwitch:
      return value.get<bool>() ? "on" : "off";
    case OptionKind::kCpus:
    case OptionKind::kDescriptors:
      return NumbersText(value);
    case OptionKind::kNodes:
      return NodesText(value);
    case OptionKind::kAffinity:
      return AffinityText(value);
    case OptionKind::kPaths:
      return PathsText(value);
    case OptionKind::kWords:
      return WordsText(value);
    case OptionKind::kIoThreads:
      return IoThreadsText(value);
    default:
      break;
  }
  const Json printed = PrintValue(spec, value);
  if (printed.is_null()) return "";
  return printed.is_string() ? printed.get<std::string>() : printed.dump();
}

std::string PossibleValues(const OptionSpec& spec) {
  const OptionType& type = spec.type;
  std::string text;
  switch (type.kind) {
    case OptionKind::kWhole:
    case OptionKind::kSize:
    case OptionKind::kTime:
      text = Range(type);
      break;
    case OptionKind::kReal:
      return absl::StrFormat("more than 0, up to %g", type.real_most);
    case OptionKind::kShare:
      return absl::StrFormat("more than 0%%, up to %s", Percent(type.real_most));
    case OptionKind::kSwitch:
      return "on or off";
    case OptionKind::kChoice:
      return JoinChoices(type.choices);
    default:
      break;
  }
  if (*spec.unset_name == '\0' || text.empty()) return text;
  return absl::StrFormat("%s, or %s", text, spec.unset_name);
}

std::string ValuePlaceholder(const OptionSpec& spec) {
  switch (spec.type.kind) {
    case OptionKind::kText:
      return "TEXT";
    case OptionKind::kPath:
      return "FILE";
    case OptionKind::kPaths:
      return "FILE+...";
    case OptionKind::kId:
      return "NAME";
    case OptionKind::kNvmeUrl:
      return "URL";
    case OptionKind::kWhole:
      return "N";
    case OptionKind::kReal:
      return "X";
    case OptionKind::kShare:
      return "N%";
    case OptionKind::kSize:
      return "SIZE";
    case OptionKind::kTime:
      return "TIME";
    case OptionKind::kSwitch:
      return "on|off";
    case OptionKind::kChoice:
      return absl::StrJoin(spec.type.choices, "|");
    case OptionKind::kCpus:
      return "CPUS";
    case OptionKind::kDescriptors:
      return "N+N";
    case OptionKind::kNodes:
      return "N,...";
    case OptionKind::kAffinity:
      return "VCPU:CPUS,...";
    case OptionKind::kWords:
      return "'WORD ...'";
    case OptionKind::kIoThreads:
      return "A+B|A:0+3/B:1-2";
  }
  return "";
}

Json ValueSchema(const OptionSpec& spec) {
  const OptionType& type = spec.type;
  Json schema;
  switch (type.kind) {
    case OptionKind::kSize:
      schema = SizeSchema(type);
      break;
    case OptionKind::kChoice:
      return {{"enum", type.choices}};
    case OptionKind::kCpus:
    case OptionKind::kDescriptors:
    case OptionKind::kNodes:
      return {{"anyOf", Json::array({CpusSchema(), PlainSchema(type)})}};
    case OptionKind::kAffinity:
      return {{"anyOf", Json::array({AffinitySchema(), PlainSchema(type)})}};
    case OptionKind::kPaths:
      return {{"anyOf", Json::array({PathsSchema(), PlainSchema(type)})}};
    case OptionKind::kWords:
      return {{"anyOf", Json::array({WordsSchema(), PlainSchema(type)})}};
    case OptionKind::kIoThreads:
      return {{"anyOf", Json::array({IoThreadsSchema(), PlainSchema(type)})}};
    default:
      schema = PlainSchema(type);
      break;
  }
  if (type.kind == OptionKind::kText && type.most != UINT64_MAX) schema["maxLength"] = type.most;
  if (*spec.unset_name == '\0') return schema;
  return {{"anyOf", Json::array({schema, Json{{"const", spec.unset_name}}})}};
}

}  // namespace ringside
