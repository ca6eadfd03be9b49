#include "tools/disk_option.h"

#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tools/nearest.h"

namespace ringside {
namespace {

using Setter = absl::Status (*)(DiskConfig&, const std::string& value);

// The enumerator among `choices` whose name is `value`.
template <typename Enum, size_t kCount>
absl::StatusOr<Enum> Choose(const char* key, const std::string& value,
                            const std::array<Enum, kCount>& choices, const char* (*name_of)(Enum)) {
  std::vector<std::string> names;
  for (const Enum choice : choices) {
    names.emplace_back(name_of(choice));
    if (names.back() == value) return choice;
  }
  return BadInput("--disk %s='%s' is unknown; did you mean '%s'?", key, value,
                  Nearest(value, names));
}

absl::Status SetPath(DiskConfig& config, const std::string& value) {
  config.file.path = value;
  return absl::OkStatus();
}

absl::Status SetReadOnly(DiskConfig& config, const std::string& value) {
  if (value != "on" && value != "off") {
    return BadInput("--disk readonly='%s' is unknown; give on or off", value);
  }
  config.file.read_only = value == "on";
  return absl::OkStatus();
}

absl::Status SetCache(DiskConfig& config, const std::string& value) {
  constexpr std::array kModes = {CacheMode::kNone, CacheMode::kWriteback, CacheMode::kWritethrough,
                                 CacheMode::kDirectsync, CacheMode::kUnsafe};
  RINGSIDE_ASSIGN_OR_RETURN(config.file.cache, Choose("cache", value, kModes, CacheModeName));
  return absl::OkStatus();
}

absl::Status SetAio(DiskConfig& config, const std::string& value) {
  constexpr std::array kEngines = {Engine::kAuto, Engine::kIoUring, Engine::kNative,
                                   Engine::kThreads};
  RINGSIDE_ASSIGN_OR_RETURN(config.file.aio, Choose("aio", value, kEngines, EngineName));
  return absl::OkStatus();
}

absl::Status SetSerial(DiskConfig& config, const std::string& value) {
  config.serial = value;
  return absl::OkStatus();
}

absl::Status SetQueues(DiskConfig& config, const std::string& value) {
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), config.queues);
  if (error != std::errc() || end != value.data() + value.size() || config.queues == 0) {
    return BadInput("--disk queues='%s' cannot be; give 1 to %d", value, VirtioBlk::kMaxQueues);
  }
  return absl::OkStatus();
}

constexpr std::array<std::pair<const char*, Setter>, 6> kKeys = {{{"path", SetPath},
                                                                  {"readonly", SetReadOnly},
                                                                  {"cache", SetCache},
                                                                  {"aio", SetAio},
                                                                  {"serial", SetSerial},
                                                                  {"queues", SetQueues}}};

// Splits at single commas; a double one stands for itself.
std::vector<std::string> SplitFields(const std::string& text) {
  std::vector<std::string> fields(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      fields.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      fields.back() += text[++i];
    } else {
      fields.emplace_back();
    }
  }
  return fields;
}

absl::Status SetField(DiskConfig& config, const std::string& field) {
  const size_t equals = field.find('=');
  if (equals == std::string::npos) {
    return BadInput("--disk '%s' is no key=value; a file is given as path=%s", field, field);
  }
  const std::string key = field.substr(0, equals);
  std::vector<std::string> keys;
  for (const auto& [name, setter] : kKeys) {
    if (key == name) return setter(config, field.substr(equals + 1));
    keys.emplace_back(name);
  }
  return BadInput("--disk '%s' is unknown; did you mean '%s'?", key, Nearest(key, keys));
}

}  // namespace

absl::StatusOr<DiskConfig> ParseDisk(const std::string& text) {
  DiskConfig config;
  for (const std::string& field : SplitFields(text)) {
    RINGSIDE_RETURN_IF_ERROR(SetField(config, field));
  }
  if (config.file.path.empty()) return BadInput("--disk '%s' has no path=FILE", text);
  return config;
}

}  // namespace ringside
