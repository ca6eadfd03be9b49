#include "command/disk_option.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/nearest.h"
#include "base/size.h"
#include "base/status.h"
#include "command/key_value.h"
#include "command/number_list.h"

namespace ringside {
namespace {

constexpr char kNvmeUrl[] = "nvme://";
constexpr char kNvmeExample[] = "nvme://0000:00:04.0/1";
constexpr char kNvmeUserUrl[] = "nvme+user://";
constexpr char kNvmeUserExample[] = "nvme+user:///run/ctrl.sock/1";
constexpr uint32_t kEveryNamespace = UINT32_MAX;  // and so no namespace

template <typename Config>
Config& In(DiskConfig& disk) {
  return *disk.backend.As<Config>();
}

absl::Status SetSwitch(bool& is_on, const char* key, const std::string& value) {
  if (value != "on" && value != "off") {
    return BadInput("--disk %s='%s' is unknown; give on or off", key, value);
  }
  is_on = value == "on";
  return absl::OkStatus();
}

template <typename Config>
absl::Status SetReadOnly(DiskConfig& disk, const std::string& value) {
  return SetSwitch(In<Config>(disk).read_only, "readonly", value);
}

absl::Status SetPath(DiskConfig& disk, const std::string& value) {
  In<FileConfig>(disk).path = value;
  return absl::OkStatus();
}

absl::Status SetInline(DiskConfig& disk, const std::string& value) {
  return SetSwitch(In<FileConfig>(disk).inline_io, "inline", value);
}

absl::Status SetCache(DiskConfig& disk, const std::string& value) {
  constexpr std::array kModes = {CacheMode::kNone, CacheMode::kWriteback, CacheMode::kWritethrough,
                                 CacheMode::kDirectsync, CacheMode::kUnsafe};
  RINGSIDE_ASSIGN_OR_RETURN(In<FileConfig>(disk).cache,
                            Choose("--disk cache", value, kModes, CacheModeName));
  return absl::OkStatus();
}

absl::Status SetAio(DiskConfig& disk, const std::string& value) {
  constexpr std::array kEngines = {Engine::kAuto, Engine::kIoUring, Engine::kNative,
                                   Engine::kThreads};
  RINGSIDE_ASSIGN_OR_RETURN(In<FileConfig>(disk).aio,
                            Choose("--disk aio", value, kEngines, EngineName));
  return absl::OkStatus();
}

absl::Status SetSize(DiskConfig& disk, const std::string& value) {
  const absl::StatusOr<uint64_t> size = ParseSize(value);
  if (!size.ok()) return BadInput("--disk size=%s", Message(size.status()));
  In<NullConfig>(disk).size = *size;
  return absl::OkStatus();
}

absl::Status SetLatency(DiskConfig& disk, const std::string& value) {
  RINGSIDE_ASSIGN_OR_RETURN(In<NullConfig>(disk).latency_ns,
                            ParseShortTime("--disk latency", value, "20us"));
  return absl::OkStatus();
}

absl::Status SetTimeout(DiskConfig& disk, const std::string& value) {
  absl::Duration timeout;
  if (!absl::ParseDuration(absl::string_view(value.data(), value.size()), &timeout) ||
      timeout < kMinNvmeTimeout || timeout > kMaxNvmeTimeout) {
    return BadInput("--disk timeout='%s' cannot be; give a time from 10ms to 1h, such as 30s",
                    value);
  }
  In<NvmeConfig>(disk).timeout = timeout;
  return absl::OkStatus();
}

absl::Status SetSerial(DiskConfig& disk, const std::string& value) {
  disk.serial = value;
  return absl::OkStatus();
}

absl::Status SetQueues(DiskConfig& disk, const std::string& value) {
  disk.queues = ParseNumber<uint16_t>(value).value_or(0);
  if (disk.queues != 0) return absl::OkStatus();
  return BadInput("--disk queues='%s' cannot be; give 1 to %d", value, VirtioBlk::kMaxQueues);
}

// "a+b", or "a:0+3/b:1-2".
absl::Status SetIoThreads(DiskConfig& disk, const std::string& value) {
  disk.shares.clear();
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
    disk.shares.push_back({.io_thread = std::string(share.substr(0, colon))});
    if (queues) disk.shares.back().queues.assign(queues->begin(), queues->end());
    if (end == std::string_view::npos) return absl::OkStatus();
    rest.remove_prefix(end + 1);
  }
}

struct Key {
  const char* name;
  absl::Status (*set)(DiskConfig& disk, const std::string& value);
};
constexpr Key kDiskKeys[] = {
    {"serial", SetSerial}, {"queues", SetQueues}, {"iothreads", SetIoThreads}};
constexpr Key kFileKeys[] = {{"path", SetPath},
                             {"readonly", SetReadOnly<FileConfig>},
                             {"cache", SetCache},
                             {"aio", SetAio},
                             {"inline", SetInline}};
constexpr Key kNullKeys[] = {{"size", SetSize}, {"latency", SetLatency}};
constexpr Key kNvmeKeys[] = {{"readonly", SetReadOnly<NvmeConfig>}, {"timeout", SetTimeout}};
constexpr Key kPassthroughKeys[] = {{"readonly", SetReadOnly<NvmePassthroughConfig>}};

// What a disk can be.
struct Kind {
  const char* name;  // as messages say it
  std::span<const Key> keys;
  bool says_type = false;  // in front of all keys
};
constexpr Kind kFile = {"type=file", kFileKeys};
constexpr Kind kNull = {"type=null", kNullKeys};
constexpr Kind kNvme = {kNvmeUrl, kNvmeKeys, true};
constexpr Kind kPassthrough = {"/dev/ng0n1", kPassthroughKeys, true};
constexpr const Kind* kKinds[] = {&kFile, &kNull, &kNvme, &kPassthrough};
constexpr char kTypeKey[] = "type";

const Key* Find(std::span<const Key> keys, const std::string& name) {
  const auto found = std::ranges::find(keys, name, &Key::name);
  return found == keys.end() ? nullptr : &*found;
}

absl::Status CheckKnown(const KeyValue& field) {
  std::vector<std::string> names = {kTypeKey};
  for (const Kind* kind : kKinds) {
    for (const Key& key : kind->keys) names.emplace_back(key.name);
  }
  for (const Key& key : kDiskKeys) names.emplace_back(key.name);
  if (std::ranges::count(names, field.key) > 0) return absl::OkStatus();
  return BadInput("--disk '%s' is unknown; did you mean '%s'?", field.key,
                  Nearest(field.key, names));
}

// A disk on its way.
struct Disk {
  DiskConfig config;
  const Kind* kind;
};

absl::Status SetType(Disk& disk, const std::string& value) {
  if (disk.kind->says_type) {
    return BadInput("--disk 'type' is not for %s, which says it already; leave it out",
                    disk.kind->name);
  }
  if (value != "file" && value != "null") {
    return BadInput("--disk type='%s' is unknown; give file or null", value);
  }
  if (value == "null") disk = {{.backend = NullConfig()}, &kNull};
  return absl::OkStatus();
}

absl::Status SetField(Disk& disk, const KeyValue& field) {
  const Key* key = Find(kDiskKeys, field.key);
  if (key == nullptr) key = Find(disk.kind->keys, field.key);
  if (key != nullptr) return key->set(disk.config, field.value);
  std::vector<const char*> kinds;
  for (const Kind* kind : kKinds) {
    if (Find(kind->keys, field.key) != nullptr) kinds.push_back(kind->name);
  }
  std::string names = absl::StrJoin(kinds, ", ");
  if (kinds.size() > 1) names.replace(names.rfind(", "), 2, " or ");
  return BadInput("--disk '%s' is for %s only; leave it out%s", field.key, names,
                  disk.kind->says_type ? std::string() : ", or give " + names);
}

absl::StatusOr<uint32_t> ParseNamespace(const std::string& url, std::string_view number,
                                        const char* example) {
  if (number.empty())
    return BadInput("--disk '%s' names no namespace; give such as %s", url, example);
  const uint32_t namespace_id = ParseNumber<uint32_t>(number).value_or(0);
  if (namespace_id != 0 && namespace_id != kEveryNamespace) return namespace_id;
  return BadInput("--disk '%s': '%s' is no namespace; they count from 1, as in %s", url, number,
                  example);
}

// No file is a character device: that is a namespace, whatever it is called.
void TakeDevice(Disk& disk, std::vector<KeyValue>& fields) {
  std::erase_if(fields, [&disk](const KeyValue& field) {
    std::error_code error;
    if (field.key != "path" || !std::filesystem::is_character_file(field.value, error)) {
      return false;
    }
    disk = {{.backend = NvmePassthroughConfig{.path = field.value}}, &kPassthrough};
    return true;
  });
}

absl::StatusOr<NvmeConfig> ParseNvmeUrl(const std::string& url) {
  const std::string_view rest = std::string_view(url).substr(sizeof kNvmeUrl - 1);
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
  const std::string_view rest = std::string_view(url).substr(sizeof kNvmeUserUrl - 1);
  const size_t slash = rest.rfind('/');
  if (!rest.starts_with('/') || slash == 0) {
    return BadInput("--disk '%s' names no socket by its whole path; give such as %s", url,
                    kNvmeUserExample);
  }
  NvmeConfig config = {.socket = std::string(rest.substr(0, slash))};
  RINGSIDE_ASSIGN_OR_RETURN(config.namespace_id,
                            ParseNamespace(url, rest.substr(slash + 1), kNvmeUserExample));
  return config;
}

// Of what is given in front of all keys; a file without.
absl::StatusOr<Disk> ParseKind(const std::string& given) {
  const bool is_user = given.starts_with(kNvmeUserUrl);
  if (is_user || given.starts_with(kNvmeUrl)) {
    RINGSIDE_ASSIGN_OR_RETURN(const NvmeConfig nvme,
                              is_user ? ParseNvmeUserUrl(given) : ParseNvmeUrl(given));
    return Disk{{.backend = nvme}, &kNvme};
  }
  if (given.starts_with("/dev/")) {
    return Disk{{.backend = NvmePassthroughConfig{.path = given}}, &kPassthrough};
  }
  return Disk{{.backend = FileConfig()}, &kFile};
}

}  // namespace

absl::StatusOr<DiskConfig> ParseDisk(const std::string& text) {
  const size_t comma = text.find(',');
  RINGSIDE_ASSIGN_OR_RETURN(Disk disk, ParseKind(text.substr(0, comma)));
  if (disk.kind->says_type && comma == std::string::npos) return std::move(disk.config);
  RINGSIDE_ASSIGN_OR_RETURN(
      std::vector<KeyValue> fields,
      disk.kind->says_type
          ? ParseKeyValues("--disk", text.substr(comma + 1), "give KEY=VALUE instead of ")
          : ParseKeyValues("--disk", text, "a file is given as path="));
  for (const KeyValue& field : fields) RINGSIDE_RETURN_IF_ERROR(CheckKnown(field));
  // First, as it says which keys there are.
  for (const KeyValue& field : fields) {
    if (field.key == kTypeKey) RINGSIDE_RETURN_IF_ERROR(SetType(disk, field.value));
  }
  if (disk.kind == &kFile) TakeDevice(disk, fields);
  for (const KeyValue& field : fields) {
    if (field.key != kTypeKey) RINGSIDE_RETURN_IF_ERROR(SetField(disk, field));
  }
  if (disk.kind == &kFile && In<FileConfig>(disk.config).path.empty()) {
    return BadInput("--disk '%s' has no path=FILE", text);
  }
  return std::move(disk.config);
}

}  // namespace ringside
