#include "tools/disk_option.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/size.h"
#include "base/status.h"
#include "tools/key_value.h"
#include "tools/number_list.h"

namespace ringside {
namespace {

using Setter = absl::Status (*)(DiskConfig&, const std::string& value);

FileConfig& File(DiskConfig& config) {
  return std::get<FileConfig>(config.backend);
}

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
  File(config).path = value;
  return absl::OkStatus();
}

absl::Status SetSwitch(bool& is_on, const char* key, const std::string& value) {
  if (value != "on" && value != "off") {
    return BadInput("--disk %s='%s' is unknown; give on or off", key, value);
  }
  is_on = value == "on";
  return absl::OkStatus();
}

absl::Status SetReadOnly(DiskConfig& config, const std::string& value) {
  return SetSwitch(File(config).read_only, "readonly", value);
}

absl::Status SetInline(DiskConfig& config, const std::string& value) {
  return SetSwitch(File(config).inline_io, "inline", value);
}

absl::Status SetCache(DiskConfig& config, const std::string& value) {
  constexpr std::array kModes = {CacheMode::kNone, CacheMode::kWriteback, CacheMode::kWritethrough,
                                 CacheMode::kDirectsync, CacheMode::kUnsafe};
  RINGSIDE_ASSIGN_OR_RETURN(File(config).cache, Choose("cache", value, kModes, CacheModeName));
  return absl::OkStatus();
}

absl::Status SetAio(DiskConfig& config, const std::string& value) {
  constexpr std::array kEngines = {Engine::kAuto, Engine::kIoUring, Engine::kNative,
                                   Engine::kThreads};
  RINGSIDE_ASSIGN_OR_RETURN(File(config).aio, Choose("aio", value, kEngines, EngineName));
  return absl::OkStatus();
}

absl::Status SetSize(DiskConfig& config, const std::string& value) {
  const absl::StatusOr<uint64_t> size = ParseSize(value);
  if (!size.ok()) return BadInput("--disk size=%s", Message(size.status()));
  std::get<NullConfig>(config.backend).size = *size;
  return absl::OkStatus();
}

absl::Status SetLatency(DiskConfig& config, const std::string& value) {
  RINGSIDE_ASSIGN_OR_RETURN(std::get<NullConfig>(config.backend).latency_ns,
                            ParseShortTime("--disk latency", value, "20us"));
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

// "a+b", or "a:0+3/b:1-2".
absl::Status SetIoThreads(DiskConfig& config, const std::string& value) {
  config.shares.clear();
  const bool with_queues = value.find(':') != std::string::npos;
  const char separator = with_queues ? '/' : '+';
  std::string_view rest = value;
  while (true) {
    const size_t end = rest.find(separator);
    const std::string_view share = rest.substr(0, end);
    const size_t colon = share.find(':');
    const auto queues = with_queues && colon != std::string_view::npos
                            ? ParseNumberList(share.substr(colon + 1))
                            : std::nullopt;
    if (with_queues && !queues) {
      return BadInput(
          "--disk iothreads='%s': '%s' is no THREAD:QUEUES; give such as a:0+3/b:1-2, "
          "or threads alone as a+b",
          value, share);
    }
    config.shares.push_back({.io_thread = std::string(share.substr(0, colon))});
    if (queues) config.shares.back().queues.assign(queues->begin(), queues->end());
    if (end == std::string_view::npos) return absl::OkStatus();
    rest.remove_prefix(end + 1);
  }
}

// Taken up before all others, as it says which of them there are.
absl::Status SetType(DiskConfig& config, const std::string& value) {
  if (value == "file") {
    config.backend = FileConfig();
  } else if (value == "null") {
    config.backend = NullConfig();
  } else {
    return BadInput("--disk type='%s' is unknown; give file or null", value);
  }
  return absl::OkStatus();
}

struct Key {
  const char* name;
  const char* type;  // which alone has it; null: every disk
  Setter set;
};
constexpr std::array kKeys = {
    Key{"type", nullptr, SetType},
    Key{"path", "file", SetPath},
    Key{"readonly", "file", SetReadOnly},
    Key{"cache", "file", SetCache},
    Key{"aio", "file", SetAio},
    Key{"inline", "file", SetInline},
    Key{"size", "null", SetSize},
    Key{"latency", "null", SetLatency},
    Key{"serial", nullptr, SetSerial},
    Key{"queues", nullptr, SetQueues},
    Key{"iothreads", nullptr, SetIoThreads},
};

const char* TypeName(const DiskConfig& config) {
  return std::holds_alternative<FileConfig>(config.backend) ? "file" : "null";
}

struct Field {
  const Key* key;
  std::string value;
};

absl::StatusOr<Field> FindKey(const KeyValue& field) {
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (field.key == key.name) return Field{&key, field.value};
    names.emplace_back(key.name);
  }
  return BadInput("--disk '%s' is unknown; did you mean '%s'?", field.key,
                  Nearest(field.key, names));
}

absl::Status SetField(DiskConfig& config, const Field& field) {
  const Key& key = *field.key;
  if (key.type != nullptr && std::string_view(key.type) != TypeName(config)) {
    return BadInput("--disk '%s' is for type=%s only; leave it out, or give type=%s", key.name,
                    key.type, key.type);
  }
  return key.set(config, field.value);
}

}  // namespace

absl::StatusOr<DiskConfig> ParseDisk(const std::string& text) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<KeyValue> words,
                            ParseKeyValues("--disk", text, "a file is given as path="));
  std::vector<Field> fields;
  for (const KeyValue& word : words) {
    RINGSIDE_ASSIGN_OR_RETURN(fields.emplace_back(), FindKey(word));
  }
  DiskConfig config;
  for (const Field& field : fields) {
    if (field.key->set == SetType) RINGSIDE_RETURN_IF_ERROR(SetField(config, field));
  }
  for (const Field& field : fields) {
    if (field.key->set != SetType) RINGSIDE_RETURN_IF_ERROR(SetField(config, field));
  }
  if (const auto* file = std::get_if<FileConfig>(&config.backend);
      file != nullptr && file->path.empty()) {
    return BadInput("--disk '%s' has no path=FILE", text);
  }
  return config;
}

}  // namespace ringside
