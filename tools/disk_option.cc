#include "tools/disk_option.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
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

// What a disk is, as messages name it. A namespace is given by its URL, in front of all keys.
constexpr char kFile[] = "type=file";
constexpr char kNull[] = "type=null";
constexpr char kNvme[] = "nvme://";
constexpr char kPassthrough[] = "/dev/ng0n1";
constexpr char kFileOrNvme[] = "type=file, nvme:// or /dev/ng0n1";
constexpr char kNvmeExample[] = "nvme://0000:00:04.0/1";
constexpr char kNvmeUser[] = "nvme+user://";
constexpr char kNvmeUserExample[] = "nvme+user:///run/ctrl.sock/1";

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
  auto* nvme = std::get_if<NvmeConfig>(&config.backend);
  auto* passthrough = std::get_if<NvmePassthroughConfig>(&config.backend);
  bool& read_only = nvme != nullptr          ? nvme->read_only
                    : passthrough != nullptr ? passthrough->read_only
                                             : File(config).read_only;
  return SetSwitch(read_only, "readonly", value);
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

absl::Status SetTimeout(DiskConfig& config, const std::string& value) {
  absl::Duration timeout;
  if (!absl::ParseDuration(absl::string_view(value.data(), value.size()), &timeout) ||
      timeout < kMinNvmeTimeout || timeout > kMaxNvmeTimeout) {
    return BadInput("--disk timeout='%s' cannot be; give a time from 10ms to 1h, such as 30s",
                    value);
  }
  config.nvme_timeout = timeout;
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
    Key{"path", kFile, SetPath},
    Key{"readonly", kFileOrNvme, SetReadOnly},
    Key{"cache", kFile, SetCache},
    Key{"aio", kFile, SetAio},
    Key{"inline", kFile, SetInline},
    Key{"size", kNull, SetSize},
    Key{"latency", kNull, SetLatency},
    Key{"timeout", kNvme, SetTimeout},
    Key{"serial", nullptr, SetSerial},
    Key{"queues", nullptr, SetQueues},
    Key{"iothreads", nullptr, SetIoThreads},
};

std::string_view TypeOf(const DiskConfig& config) {
  if (std::holds_alternative<NvmePassthroughConfig>(config.backend)) return kPassthrough;
  if (std::holds_alternative<NvmeConfig>(config.backend)) return kNvme;
  return std::holds_alternative<FileConfig>(config.backend) ? kFile : kNull;
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
  const std::string_view type = TypeOf(config);
  const bool says_type = type == kNvme || type == kPassthrough;
  if (says_type && key.set == SetType) {
    return BadInput("--disk 'type' is not for %s, which says it already; leave it out", type);
  }
  if (key.type != nullptr && std::string_view(key.type).find(type) == std::string_view::npos) {
    return BadInput("--disk '%s' is for %s only; leave it out%s", key.name, key.type,
                    says_type ? std::string() : absl::StrFormat(", or give %s", key.type));
  }
  return key.set(config, field.value);
}

absl::StatusOr<uint32_t> ParseNamespace(const std::string& url, std::string_view number,
                                        const char* example) {
  if (number.empty())
    return BadInput("--disk '%s' names no namespace; give such as %s", url, example);
  uint32_t namespace_id = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), namespace_id);
  if (error != std::errc() || end != number.data() + number.size() || namespace_id == 0 ||
      namespace_id == std::numeric_limits<uint32_t>::max()) {
    return BadInput("--disk '%s': '%s' is no namespace; they count from 1, as in %s", url, number,
                    example);
  }
  return namespace_id;
}

// No file is a character device: that is a namespace, whatever it is called.
void TakeDevice(DiskConfig& config, std::vector<Field>& fields) {
  std::erase_if(fields, [&config](const Field& field) {
    std::error_code error;
    if (field.key->set != SetPath || !std::filesystem::is_character_file(field.value, error)) {
      return false;
    }
    config.backend = NvmePassthroughConfig{.path = field.value};
    return true;
  });
}

absl::StatusOr<NvmeConfig> ParseNvmeUrl(const std::string& url) {
  const std::string_view rest = std::string_view(url).substr(sizeof kNvme - 1);
  const size_t slash = rest.find('/');
  // vfio/ knows what an address looks like.
  NvmeConfig config = {.address = std::string(rest.substr(0, slash))};
  if (config.address.empty()) {
    return BadInput("--disk '%s' names no PCI address; give such as %s", url, kNvmeExample);
  }
  const std::string_view number =
      slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  RINGSIDE_ASSIGN_OR_RETURN(config.namespace_id, ParseNamespace(url, number, kNvmeExample));
  return config;
}

// The path has slashes of its own: the namespace is behind the last.
absl::StatusOr<NvmeConfig> ParseNvmeUserUrl(const std::string& url) {
  const std::string_view rest = std::string_view(url).substr(sizeof kNvmeUser - 1);
  const size_t slash = rest.rfind('/');
  if (!rest.starts_with('/') || slash == 0) {
    return BadInput("--disk '%s' names no socket by its whole path; give such as %s", url,
                    kNvmeUserExample);
  }
  NvmeConfig config = {.address = std::string(rest.substr(0, slash))};
  RINGSIDE_ASSIGN_OR_RETURN(config.namespace_id,
                            ParseNamespace(url, rest.substr(slash + 1), kNvmeUserExample));
  return config;
}

}  // namespace

absl::StatusOr<DiskConfig> ParseDisk(const std::string& text) {
  DiskConfig config;
  std::string keys = text;
  const char* hint = "a file is given as path=";
  const bool is_url = text.starts_with(kNvme) || text.starts_with(kNvmeUser);
  if (is_url || text.starts_with("/dev/")) {
    const size_t comma = text.find(',');
    const std::string given = text.substr(0, comma);
    if (!is_url) {
      config.backend = NvmePassthroughConfig{.path = given};
    } else {
      RINGSIDE_ASSIGN_OR_RETURN(
          config.backend, text.starts_with(kNvme) ? ParseNvmeUrl(given) : ParseNvmeUserUrl(given));
    }
    if (comma == std::string::npos) return config;
    keys = text.substr(comma + 1);
    hint = "give KEY=VALUE instead of ";
  }
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<KeyValue> words,
                            ParseKeyValues("--disk", keys, hint));
  std::vector<Field> fields;
  for (const KeyValue& word : words) {
    RINGSIDE_ASSIGN_OR_RETURN(fields.emplace_back(), FindKey(word));
  }
  for (const Field& field : fields) {
    if (field.key->set == SetType) RINGSIDE_RETURN_IF_ERROR(SetField(config, field));
  }
  if (std::holds_alternative<FileConfig>(config.backend)) TakeDevice(config, fields);
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
