#include "vmm/option_type.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/time/time.h"
#include "base/number_list.h"
#include "base/size.h"
#include "base/status.h"
#include "nvme/nvme_url.h"
#include "vmm/json_text.h"
#include "vmm/option_lists.h"

namespace ringside {
namespace {

constexpr size_t kLongestShown = 80;  // of a value in a message

// As the user wrote it.
std::string Shown(const Json& given) {
  std::string text = given.is_string() ? given.get<std::string>() : JsonText(given);
  if (text.size() > kLongestShown) {
    text.resize(kLongestShown);
    text += "...";
  }
  return given.is_string() ? absl::StrFormat("'%s'", text) : text;
}

// One value on its way, and where it stands.
struct Given {
  const OptionSpec& spec;
  const char* owner;
  const OptionPlace& place;
  const Json& written;  // by the user
  const Json& value;

  // "--disk queues=0 is out of range: a disk has 1 to 16 queues".
  absl::Status Refuse(std::string_view is) const {
    return BadInput("%s%s%s%s %s", place.prefix, spec.name, place.between, Shown(written), is);
  }
  absl::Status RefuseRange() const { return Refuse("is out of range: " + Possible()); }
  // The same for what is not of the type at all.
  absl::Status RefuseType(std::string_view noun) const {
    return Refuse(absl::StrFormat("is not %s: %s", noun, Possible()));
  }
  std::string Possible() const {
    const std::string values = PossibleValues(spec);
    if (*spec.unit == '\0') return "give " + values;
    return absl::StrFormat("%s has %s %s", owner, values, spec.unit);
  }
};

// What text says where JSON has a type for it.
Json FromText(const OptionSpec& spec, const std::string& text) {
  if (spec.type.kind == OptionKind::kWhole) {
    if (const auto number = ParseNumber<int64_t>(text)) return *number;
  } else if (spec.type.kind == OptionKind::kReal) {
    if (const auto number = ParseNumber<double>(text)) return *number;
  } else if (spec.type.kind == OptionKind::kSwitch && (text == "on" || text == "off")) {
    return text == "on";
  }
  return text;
}

// Which would end it early where the kernel takes it.
bool HasNul(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos;
}

absl::StatusOr<Json> ReadText(const Given& given) {
  if (!given.value.is_string()) return given.Refuse("is not a text");
  const auto& text = given.value.get_ref<const std::string&>();
  if (given.spec.type.kind == OptionKind::kNvmeUrl) {
    if (const auto url = ParseNvmeUrl(text); !url.ok()) return given.Refuse(Message(url.status()));
  }
  return given.value;
}

absl::StatusOr<Json> ReadWhole(const Given& given) {
  if (!given.value.is_number_integer()) return given.RefuseType("a whole number");
  if (given.value.is_number_unsigned()) return given.value;
  if (given.value.get<int64_t>() < 0) return given.RefuseRange();
  return Json(given.value.get<uint64_t>());
}

absl::StatusOr<Json> ReadShare(const Given& given) {
  if (given.value.is_string()) {
    std::string_view text = given.value.get_ref<const std::string&>();
    if (text.ends_with('%')) {
      text.remove_suffix(1);
      if (const auto percent = ParseNumber<double>(text)) return Json(*percent / 100);
    }
  }
  return given.RefuseType("a share in percent");
}

absl::StatusOr<Json> ReadSize(const Given& given) {
  if (!given.value.is_string()) return ReadWhole(given);
  const absl::StatusOr<uint64_t> size = ParseSize(given.value.get_ref<const std::string&>());
  if (size.ok()) return Json(*size);
  return given.RefuseType("a size in whole bytes or with K, M, G or T");
}

absl::StatusOr<Json> ReadTime(const Given& given) {
  absl::Duration time;
  if (given.value.is_string()) {
    const auto& text = given.value.get_ref<const std::string&>();
    if (absl::ParseDuration(absl::string_view(text.data(), text.size()), &time)) {
      if (time < absl::ZeroDuration()) return given.RefuseRange();
      return Json(static_cast<uint64_t>(absl::ToInt64Nanoseconds(time)));
    }
  }
  return given.RefuseType("a time with a unit such as us, ms or s");
}

absl::StatusOr<Json> ReadChoice(const Given& given) {
  if (given.value.is_string()) {
    for (const char* choice : given.spec.type.choices) {
      if (given.value == choice) return given.value;
    }
  }
  return given.Refuse("is unknown: give " + PossibleValues(given.spec));
}

absl::StatusOr<Json> ReadList(const Given& given, std::optional<Json> (*read)(const Json&),
                              const char* noun, const char* text_example,
                              const char* json_example) {
  if (std::optional<Json> list = read(given.value)) return *std::move(list);
  return given.Refuse(absl::StrFormat("is not %s, for example %s", noun,
                                      given.place.is_text ? text_example : json_example));
}

absl::StatusOr<Json> ReadByKind(const Given& given) {
  switch (given.spec.type.kind) {
    case OptionKind::kText:
    case OptionKind::kPath:
    case OptionKind::kId:
    case OptionKind::kNvmeUrl:
      return ReadText(given);
    case OptionKind::kWhole:
      return ReadWhole(given);
    case OptionKind::kReal:
      return given.value.is_number() ? absl::StatusOr<Json>(given.value.get<double>())
                                     : given.RefuseType("a number");
    case OptionKind::kShare:
      return ReadShare(given);
    case OptionKind::kSize:
      return ReadSize(given);
    case OptionKind::kTime:
      return ReadTime(given);
    case OptionKind::kSwitch:
      if (given.value.is_boolean()) return given.value;
      return given.Refuse(given.place.is_text ? "is neither on nor off"
                                              : "is neither true nor false");
    case OptionKind::kChoice:
      return ReadChoice(given);
    case OptionKind::kCpus:
      return ReadList(given, ReadCpus, "a list of CPUs", "0-2+5", "[0, 1, 2, 5]");
    case OptionKind::kDescriptors:
      return ReadList(given, ReadCpus, "a list of descriptors", "3 or 3+4", "[3, 4]");
    case OptionKind::kNodes:
      return ReadList(given, ReadNodes, "a list of NUMA nodes", "0,2-3", "[0, 2, 3]");
    case OptionKind::kAffinity:
      return ReadList(given, ReadAffinity, "VCPU:CPUS", "0:2,1:3-4+6", "[[2], [3, 4, 6]]");
    case OptionKind::kPaths:
      return ReadList(given, ReadPaths, "a list of up to 16 paths", "golden.img+mid.cow",
                      R"(["golden.img", "mid.cow"])");
    case OptionKind::kWords:
      return ReadList(given, ReadWords, "a list of 1 to 1024 words", "uname -r",
                      R"(["uname", "-r"])");
    case OptionKind::kIoThreads:
      return ReadList(given, ReadIoThreads, "THREAD:QUEUES, nor threads alone", "a:0-1/b:2 or a+b",
                      R"([{"id": "a", "queues": [0, 1]}] or ["a", "b"])");
  }
  return given.Refuse("is of no type");
}

bool IsPlain(unsigned char c) {
  return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
}

absl::Status CheckText(const Given& given) {
  const OptionType& type = given.spec.type;
  const auto& text = given.value.get_ref<const std::string&>();
  if (type.kind == OptionKind::kId && (text.empty() || !std::ranges::all_of(text, IsPlain))) {
    return given.Refuse("is not a name: give letters, digits, '.', '-' and '_'");
  }
  if (text.size() > type.most) {
    return given.Refuse(absl::StrFormat("is too long: give at most %d characters", type.most));
  }
  const auto is_printable = [](unsigned char c) { return c >= 0x20 && c < 0x7f; };
  if (type.most != UINT64_MAX && !std::ranges::all_of(text, is_printable)) {
    return given.Refuse("has other characters in it than printable ASCII");
  }
  return absl::OkStatus();
}

absl::Status Check(const Given& given) {
  const OptionType& type = given.spec.type;
  switch (type.kind) {
    case OptionKind::kText:
    case OptionKind::kId:
      return CheckText(given);
    case OptionKind::kReal:
    case OptionKind::kShare: {
      const auto number = given.value.get<double>();
      return number > 0 && number <= type.real_most ? absl::OkStatus() : given.RefuseRange();
    }
    case OptionKind::kWhole:
    case OptionKind::kSize:
    case OptionKind::kTime: {
      // A struct may hold a time below 0.
      if (given.value.is_number_integer() && !given.value.is_number_unsigned() &&
          given.value.get<int64_t>() < 0) {
        return given.RefuseRange();
      }
      const auto number = given.value.get<uint64_t>();
      if (number < type.least || number > type.most) return given.RefuseRange();
      if (number % type.multiple == 0) return absl::OkStatus();
      return given.Refuse(absl::StrFormat("is not a multiple of %d bytes", type.multiple));
    }
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<Json> ReadValue(const OptionSpec& spec, const char* owner, const OptionPlace& place,
                               const Json& given) {
  if (*spec.unset_name != '\0' && given == spec.unset_name) return Json();
  const Json value = place.is_text && given.is_string()
                         ? FromText(spec, given.get_ref<const std::string&>())
                         : given;
  const Given as_given = {spec, owner, place, value, value};
  if (HasNul(value)) return as_given.Refuse("has a NUL character in it");
  RINGSIDE_ASSIGN_OR_RETURN(Json canonical, ReadByKind(as_given));
  RINGSIDE_RETURN_IF_ERROR(Check({spec, owner, place, value, canonical}));
  return canonical;
}

absl::Status CheckValue(const OptionSpec& spec, const char* owner, const OptionPlace& place,
                        const Json& value) {
  return Check({spec, owner, place, PrintValue(spec, value), value});
}

}  // namespace ringside
