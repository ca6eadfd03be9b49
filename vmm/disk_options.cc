#include "vmm/disk_options.h"

#include <algorithm>
#include <filesystem>

#include "block/block_backend.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "faults/record_file.h"
#include "nvme/nvme_device.h"
#include "nvme/nvme_url.h"
#include "vmm/backend_options.h"
#include "vmm/key_value.h"
#include "vmm/overlay_options.h"
#include "vmm/throttle_options.h"

namespace ringside {

template <>
struct OptionChoices<ErrorAction> {
  static constexpr std::array kAll = {ErrorAction::kReport, ErrorAction::kIgnore,
                                      ErrorAction::kStop, ErrorAction::kEnospc};
  static const char* Name(ErrorAction action) {
    constexpr std::array kNames = {"report", "ignore", "stop", "enospc"};
    return kNames[static_cast<size_t>(action)];
  }
};

// The namespace's URL stands for three members.
template <>
struct OptionValue<NvmeConfig> {
  static Json Get(const NvmeConfig& config) {
    const bool is_given = !config.address.empty() || !config.socket.empty();
    return is_given ? Json(NvmeUrl(config)) : Json();
  }
  static void Set(const Json& json, NvmeConfig& config) {
    absl::StatusOr<NvmeConfig> named = ParseNvmeUrl(json.get<std::string>());
    if (!named.ok()) return;  // ReadValue has seen to that
    config.address = std::move(named->address);
    config.socket = std::move(named->socket);
    config.namespace_id = named->namespace_id;
  }
};

namespace {

constexpr char kType[] = "type";
constexpr char kFile[] = "file";
constexpr char kNull[] = "null";
constexpr char kOverlay[] = "overlay";
constexpr char kNvme[] = "nvme";
constexpr char kPassthrough[] = "nvme-passthrough";

std::vector<DiskOption> FileOptions() {
  return {{{.name = "path",
            .type = Plain(OptionKind::kPath),
            .doc = "a raw image or a block device of the host; a comma in it is written twice on a "
                   "command line",
            .is_required = true},
           InBackend<&FileConfig::path>()},
          ReadOnly(InBackend<&FileConfig::read_only>()),
          {{.name = "cache",
            .type = Plain(OptionKind::kChoice),
            .doc = "whether the host's page cache is used, and what a finished write promises. "
                   "none: bypassed, durable once flushed; writeback: used, durable once flushed; "
                   "writethrough: used, durable at once; directsync: bypassed, durable at once; "
                   "unsafe: used, flushes are not passed on; auto: none where the file takes "
                   "O_DIRECT, else writeback",
            .unset_name = "auto"},
           InBackend<&FileConfig::cache>()},
          {{.name = "aio",
            .type = Plain(OptionKind::kChoice),
            .doc = "how the host is asked. native: Linux AIO, with O_DIRECT only; threads: worker "
                   "threads; auto: the first of io_uring, native and threads that works here"},
           InBackend<&FileConfig::aio>()},
          {{.name = "inline",
            .type = Plain(OptionKind::kSwitch),
            .doc = "whether the I/O thread itself reads and writes what cannot block it, on tmpfs "
                   "and in the page cache; else all goes to aio"},
           InBackend<&FileConfig::inline_io>()}};
}

std::vector<DiskOption> NullOptions() {
  constexpr uint64_t kMost = uint64_t{1} << 50;
  return {{{.name = "size",
            .type = Size(512, kMost, 512),
            .doc = "how large the guest sees it",
            .is_required = true},
           InBackend<&NullConfig::size>()},
          {{.name = "latency",
            .type = Time(absl::ZeroDuration(), absl::Nanoseconds(NullDevice::kMaxLatencyNs)),
            .doc = "how long each request takes; 0: it is done at once"},
           InBackend<&NullConfig::latency_ns>()}};
}

std::vector<DiskOption> NvmeOptions() {
  return {{{.name = "url",
            .type = Plain(OptionKind::kNvmeUrl),
            .doc = "the namespace: nvme://0000:00:04.0/1 of a controller that is bound to "
                   "vfio-pci, or nvme+user:///run/ctrl.sock/1 of one that another process serves "
                   "by vfio-user",
            .is_required = true},
           [](auto& disk) -> auto& { return *disk.backend.template As<NvmeConfig>(); }},
          ReadOnly(InBackend<&NvmeConfig::read_only>()),
          {{.name = "timeout",
            .type = Time(kMinNvmeTimeout, kMaxNvmeTimeout),
            .doc = "how long a command may go without an answer before it is aborted; disks on one "
                   "controller agree, or leave it to one of them",
            .unset = "30s"},
           InBackend<&NvmeConfig::timeout>()}};
}

std::vector<DiskOption> PassthroughOptions() {
  return {{{.name = "path",
            .type = Plain(OptionKind::kPath),
            .doc = "the namespace's character device, such as /dev/ng0n1",
            .is_required = true},
           InBackend<&NvmePassthroughConfig::path>()},
          ReadOnly(InBackend<&NvmePassthroughConfig::read_only>())};
}

std::vector<DiskOption> CommonOptions() {
  return {
      {{.name = "id",
        .type = Id(),
        .doc = "its name in statistics and messages, and for those who move its queues",
        .unset = "disk0, disk1, ... by its place"},
       [](auto& disk) -> auto& { return disk.id; }},
      {{.name = "serial",
        .type = Text(kBlkIdSize),
        .doc = "the serial number that the guest sees",
        .unset = "the id, cut to 20 characters"},
       [](auto& disk) -> auto& { return disk.serial; }},
      {{.name = "queues",
        .type = Whole(1, VirtioBlk::kMaxQueues),
        .unit = "queues",
        .doc = "how many queues it has",
        .unset = "one per vCPU, at most 16"},
       [](auto& disk) -> auto& { return disk.queues; }},
      {{.name = "rerror",
        .type = Plain(OptionKind::kChoice),
        .doc = "what becomes of a read that fails, as of werror"},
       [](auto& disk) -> auto& { return disk.rerror; }},
      {{.name = "werror",
        .type = Plain(OptionKind::kChoice),
        .doc = "what becomes of a write, flush, discard or write of zeroes that fails. report: "
               "the guest is told; ignore: the guest is told that it succeeded; stop: it is "
               "kept, the machine pauses, and tries it again when it is resumed; enospc: stop "
               "where the storage has no space left, else report"},
       [](auto& disk) -> auto& { return disk.werror; }},
      {{.name = "iothreads",
        .type = Plain(OptionKind::kIoThreads),
        .doc = "the I/O threads that serve it. a+b: its queues go round these; a:0+3/b:1-2: "
               "the queues of each",
        .unset = "one thread for all its queues; disks take the threads in turn"},
       [](auto& disk) -> auto& { return disk.shares; }},
      {{.name = "fault",
        .type = Plain(OptionKind::kPath),
        .doc = "a script that says which of its requests fail, are slow, hang or are torn, and "
               "when its power is cut (docs/faults.md)",
        .unset = "none"},
       [](auto& disk) -> auto& { return disk.fault_script; }},
      {{.name = "record",
        .type = Plain(OptionKind::kPath),
        .doc = "a file that its writes and flushes are recorded in, for tools/powercut; an "
               "older record is replaced",
        .unset = "none"},
       [](auto& disk) -> auto& { return disk.record.path; }},
      {{.name = "record-limit",
        .type = Size(RecordFile::kLeastLimit, UINT64_MAX, 1),
        .doc = "when the file is as long, the record ends and the disk goes on"},
       [](auto& disk) -> auto& { return disk.record.limit; }},
      {{.name = "record-below",
        .type = Plain(OptionKind::kSwitch),
        .doc = "whether it is recorded what gets past the faults (fault=), or of an overlay what "
               "goes to its file, instead of what the guest asked for"},
       [](auto& disk) -> auto& { return disk.record.below_faults; }}};
}

OptionTable<DiskConfig> Table(std::vector<DiskOption> own) {
  for (DiskOption& option : CommonOptions()) own.push_back(std::move(option));
  own.push_back({{.name = "throttle-group",
                  .type = Id(),
                  .doc = "the group whose limits it shares (--throttle-group), beside its own",
                  .unset = "none"},
                 [](auto& disk) -> auto& { return disk.throttle_group; }});
  AddThrottleOptions<DiskConfig, &DiskConfig::throttle>(own);
  return {"a disk", std::move(own)};
}

const DiskKind* FindKind(const std::string& name) {
  const std::span<const DiskKind> kinds = DiskKinds();
  const auto kind =
      std::ranges::find_if(kinds, [&](const DiskKind& each) { return name == each.name; });
  return kind == kinds.end() ? nullptr : &*kind;
}

const DiskKind* KindOf(const DiskConfig& disk) {
  const BlockBackend& backend = disk.backend;
  return backend.As<FileConfig>() != nullptr              ? FindKind(kFile)
         : backend.As<OverlayConfig>() != nullptr         ? FindKind(kOverlay)
         : backend.As<NullConfig>() != nullptr            ? FindKind(kNull)
         : backend.As<NvmeConfig>() != nullptr            ? FindKind(kNvme)
         : backend.As<NvmePassthroughConfig>() != nullptr ? FindKind(kPassthrough)
                                                          : nullptr;
}

// No file is a character device: that is a namespace, whatever it is called.
bool IsCharacterDevice(const Json& path) {
  std::error_code error;
  return path.is_string() &&
         std::filesystem::is_character_file(path.get_ref<const std::string&>(), error);
}

absl::StatusOr<const DiskKind*> ChooseKind(const OptionPlace& place, const Json& fields) {
  if (!fields.contains(kType)) {
    if (fields.contains("url")) return FindKind(kNvme);
    if (fields.contains("base") || fields.contains("overlay")) return FindKind(kOverlay);
    return FindKind(fields.contains("path") && IsCharacterDevice(fields["path"]) ? kPassthrough
                                                                                 : kFile);
  }
  OptionSpec spec = {.name = kType, .type = Plain(OptionKind::kChoice)};
  for (const DiskKind& kind : DiskKinds()) spec.type.choices.push_back(kind.name);
  RINGSIDE_ASSIGN_OR_RETURN(const Json name, ReadValue(spec, "a disk", place, fields[kType]));
  return FindKind(name.get<std::string>());
}

// A key that this kind of disk has not: it is another's, or nobody's.
absl::Status CheckKey(const OptionPlace& place, const DiskKind& kind, const std::string& key) {
  if (key == kType || kind.table.Find(key) != nullptr) return absl::OkStatus();
  std::vector<const char*> others;
  std::vector<std::string> names = {kType};
  for (const DiskKind& other : DiskKinds()) {
    if (other.table.Find(key) != nullptr) others.push_back(other.name);
    for (std::string& name : other.table.Names()) names.push_back(std::move(name));
  }
  if (others.empty()) return UnknownKey(place, key, names);
  return BadInput("%s%s is for disks of type %s only, and this one is of type %s: leave it out",
                  place.prefix, key, JoinChoices(others), kind.name);
}

}  // namespace

std::span<const DiskKind> DiskKinds() {
  static const std::array<DiskKind, 5> kinds = {{
      {kFile, true, "a file or a block device of the host",
       [] { return DiskConfig{.backend = FileConfig()}; }, Table(FileOptions())},
      {kOverlay, true, "a private file over images that others may share (docs/overlays.md)",
       MakeOverlay, Table(OverlayOptions())},
      {kNvme, true, "a namespace of an NVMe controller that Ringside drives itself",
       [] { return DiskConfig{.backend = NvmeConfig()}; }, Table(NvmeOptions())},
      {kPassthrough, false,
       "a namespace of a controller that stays with the kernel, by io_uring passthrough",
       [] { return DiskConfig{.backend = NvmePassthroughConfig()}; }, Table(PassthroughOptions())},
      {kNull, false, "a disk that moves no bytes",
       [] { return DiskConfig{.backend = NullConfig()}; }, Table(NullOptions())},
  }};
  return kinds;
}

absl::StatusOr<Json> ParseDiskText(const std::string& text) {
  const size_t comma = text.find(',');
  const std::string first = text.substr(0, comma);
  Json fields = Json::object();
  if (IsNvmeUrl(first)) {
    fields = {{kType, kNvme}, {"url", first}};
  } else if (first.starts_with("/dev/")) {
    fields = {{kType, kPassthrough}, {"path", first}};
  } else {
    return ParseKeyValues("--disk", text, "a file is given as path=");
  }
  if (comma == std::string::npos) return fields;
  RINGSIDE_ASSIGN_OR_RETURN(const Json others, ParseKeyValues("--disk", text.substr(comma + 1),
                                                              "give KEY=VALUE instead of "));
  for (const auto& [key, value] : others.items()) {
    if (fields.contains(key)) {
      return BadInput("--disk '%s' does not take %s=, which it says already: leave that out", first,
                      key);
    }
    fields[key] = value;
  }
  return fields;
}

absl::StatusOr<DiskConfig> ReadDisk(const OptionPlace& place, const Json& fields) {
  RINGSIDE_ASSIGN_OR_RETURN(const DiskKind* kind, ChooseKind(place, fields));
  for (const auto& [key, value] : fields.items()) {
    RINGSIDE_RETURN_IF_ERROR(CheckKey(place, *kind, key));
  }
  Json rest = fields;
  rest.erase(kType);
  DiskConfig disk = kind->make();
  RINGSIDE_RETURN_IF_ERROR(ReadObject(kind->table, place, rest, disk));
  return disk;
}

absl::StatusOr<BlockBackend> ReadBackend(const OptionPlace& place, const std::string& text) {
  static const OptionTable<DiskConfig> common = Table({});
  RINGSIDE_ASSIGN_OR_RETURN(const Json fields, ParseDiskText(text));
  for (const auto& [key, value] : fields.items()) {
    if (common.Find(key) == nullptr) continue;
    return BadInput("%s%s is the disk's own and stays as it is: leave it out", place.prefix, key);
  }
  RINGSIDE_ASSIGN_OR_RETURN(const DiskConfig disk, ReadDisk(place, fields));
  return disk.backend;
}

Json PrintDisk(const DiskConfig& disk) {
  const DiskKind* kind = KindOf(disk);
  if (kind == nullptr) return Json::object();
  Json fields = {{kType, kind->name}};
  fields.update(PrintObject(kind->table, disk));
  return fields;
}

absl::Status CheckDisk(const OptionPlace& place, const DiskConfig& disk) {
  const DiskKind* kind = KindOf(disk);
  if (kind != nullptr) return CheckObject(kind->table, place, disk);
  static const OptionTable<DiskConfig> common = Table({});
  return CheckObject(common, place, disk);
}

}  // namespace ringside
