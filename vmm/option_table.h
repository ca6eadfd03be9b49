// Tables of options: each entry is an option of a configuration of type Object and where in that it
// is kept. What reads, checks, prints and documents configurations walks them, so that an option is
// defined once, its default by its member's initialiser.
//
//   const OptionTable<DiskConfig> table = {
//       "a disk",
//       {{{.name = "queues", .type = Whole(1, 16), .unit = "queues", .doc = "..."},
//         [](auto& disk) -> auto& { return disk.queues; }}}};
//
// Errors: as in vmm/option_type.h; of several, the first.
// Threads: any; a table does not change.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "vmm/option_type.h"
#include "vmm/queue_mapping.h"

namespace ringside {

// The names of an enumeration that is an option: a specialisation has
//   static constexpr std::array kAll = {...};
//   static const char* Name(Enum value);
template <typename Enum>
struct OptionChoices;

// A member's value as canonical JSON, and back.
template <typename Value>
struct OptionValue {
  static Json Get(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      return OptionChoices<Value>::Name(value);
    } else {
      return value;
    }
  }
  static void Set(const Json& json, Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      for (const Value each : OptionChoices<Value>::kAll) {
        if (json == OptionChoices<Value>::Name(each)) value = each;
      }
    } else {
      value = json.get<Value>();
    }
  }
};

template <>
struct OptionValue<absl::Duration> {
  static Json Get(absl::Duration time) { return absl::ToInt64Nanoseconds(time); }
  static void Set(const Json& json, absl::Duration& time) {
    time = absl::Nanoseconds(json.get<int64_t>());
  }
};

template <typename Value>
struct OptionValue<std::optional<Value>> {
  static Json Get(const std::optional<Value>& value) {
    return value ? OptionValue<Value>::Get(*value) : Json();
  }
  static void Set(const Json& json, std::optional<Value>& value) {
    OptionValue<Value>::Set(json, value.emplace());
  }
};

template <>
struct OptionValue<std::vector<QueueShare>> {
  static Json Get(const std::vector<QueueShare>& shares);
  static void Set(const Json& json, std::vector<QueueShare>& shares);
};

template <typename Object>
class Option {
 public:
  // `Accessor` has no state, and returns a reference to the member of an Object& or const Object&.
  template <typename Accessor>
  Option(OptionSpec spec, Accessor) : spec_(std::move(spec)) {
    using Member = std::remove_cvref_t<decltype(Accessor()(std::declval<Object&>()))>;
    get_ = [](const Object& object) { return OptionValue<Member>::Get(Accessor()(object)); };
    set_ = [](const Json& json, Object& object) {
      if (json.is_null()) {
        if constexpr (std::is_default_constructible_v<Member>) Accessor()(object) = Member();
      } else {
        OptionValue<Member>::Set(json, Accessor()(object));
      }
    };
    AddChoices<Member>();
  }

  const OptionSpec& spec() const { return spec_; }
  // The canonical value; null if it is not given.
  Json Get(const Object& object) const {
    Json value = get_(object);
    const bool has_unset = *spec_.unset != '\0' || spec_.is_required;
    const bool is_empty = value.is_string()  ? value.get_ref<const std::string&>().empty()
                          : value.is_array() ? value.empty()
                                             : value == 0;
    return has_unset && is_empty ? Json() : value;
  }
  void Set(const Json& value, Object& object) const { set_(value, object); }

 private:
  template <typename Member>
  void AddChoices() {
    if constexpr (requires { typename Member::value_type; }) {
      if constexpr (std::is_enum_v<typename Member::value_type>) {
        AddChoices<typename Member::value_type>();
      }
    } else if constexpr (std::is_enum_v<Member>) {
      if (*spec_.unset_name != '\0') spec_.type.choices.push_back(spec_.unset_name);
      for (const Member each : OptionChoices<Member>::kAll) {
        spec_.type.choices.push_back(OptionChoices<Member>::Name(each));
      }
    }
  }

  OptionSpec spec_;
  Json (*get_)(const Object&);
  void (*set_)(const Json&, Object&);
};

template <typename Object>
struct OptionTable {
  const char* owner;  // "a disk"
  std::vector<Option<Object>> options;

  const Option<Object>* Find(const std::string& name) const {
    for (const Option<Object>& option : options) {
      if (name == option.spec().name) return &option;
    }
    return nullptr;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    names.reserve(options.size());
    for (const Option<Object>& option : options) names.emplace_back(option.spec().name);
    return names;
  }
};

// "--disk 'cahce' is unknown: did you mean 'cache'?"
absl::Status UnknownKey(const OptionPlace& place, const std::string& key,
                        const std::vector<std::string>& names);
absl::Status MissingKey(const OptionPlace& place, const char* owner, const OptionSpec& spec);

// What cannot be read, a struct may still hold.
template <typename Object>
absl::Status CheckObject(const OptionTable<Object>& table, const OptionPlace& place,
                         const Object& object) {
  for (const Option<Object>& option : table.options) {
    const Json value = option.Get(object);
    if (value.is_null()) {
      if (option.spec().is_required) return MissingKey(place, table.owner, option.spec());
      continue;
    }
    RINGSIDE_RETURN_IF_ERROR(CheckValue(option.spec(), table.owner, place, value));
  }
  return absl::OkStatus();
}

template <typename Object>
absl::Status ReadOption(const OptionTable<Object>& table, const Option<Object>& option,
                        const OptionPlace& place, const Json& given, Object& object) {
  RINGSIDE_ASSIGN_OR_RETURN(const Json value, ReadValue(option.spec(), table.owner, place, given));
  option.Set(value, object);
  return absl::OkStatus();
}

// `fields`: a JSON object, from a file or from "key=value,...".
template <typename Object>
absl::Status ReadObject(const OptionTable<Object>& table, const OptionPlace& place,
                        const Json& fields, Object& object) {
  for (const auto& [key, given] : fields.items()) {
    const Option<Object>* option = table.Find(key);
    if (option == nullptr) return UnknownKey(place, key, table.Names());
    RINGSIDE_RETURN_IF_ERROR(ReadOption(table, *option, place, given, object));
  }
  return CheckObject(table, place, object);
}

// What ReadObject makes the same object of.
template <typename Object>
Json PrintObject(const OptionTable<Object>& table, const Object& object) {
  Json fields = Json::object();
  for (const Option<Object>& option : table.options) {
    Json printed = PrintValue(option.spec(), option.Get(object));
    if (!printed.is_null()) fields[option.spec().name] = std::move(printed);
  }
  return fields;
}

// Types, as tables name them.
inline OptionType Plain(OptionKind kind) {
  return {.kind = kind};
}
// At most so many printable ASCII characters.
inline OptionType Text(uint64_t most) {
  return {.kind = OptionKind::kText, .most = most};
}
inline OptionType Id() {
  return {.kind = OptionKind::kId, .most = 64};
}
inline OptionType Whole(uint64_t least, uint64_t most) {
  return {.kind = OptionKind::kWhole, .least = least, .most = most};
}
inline OptionType Real(double most) {
  return {.kind = OptionKind::kReal, .real_most = most};
}
inline OptionType ShareOfCpu() {
  return {.kind = OptionKind::kShare, .real_most = 1};
}
inline OptionType Size(uint64_t least, uint64_t most, uint64_t multiple) {
  return {.kind = OptionKind::kSize, .least = least, .most = most, .multiple = multiple};
}
inline OptionType Time(absl::Duration least, absl::Duration most) {
  return {.kind = OptionKind::kTime,
          .least = static_cast<uint64_t>(absl::ToInt64Nanoseconds(least)),
          .most = static_cast<uint64_t>(absl::ToInt64Nanoseconds(most))};
}

}  // namespace ringside
