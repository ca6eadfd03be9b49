#include "vmm/machine_options.h"

#include "base/huge_pages.h"
#include "base/pages.h"
#include "kvm/cpu_baseline.h"
#include "kvm/memory_layout.h"
#include "ringside/machine.h"
#include "vmm/disk_options.h"
#include "vmm/io_thread_options.h"
#include "vmm/key_value.h"
#include "vmm/net_options.h"
#include "vmm/option_document.h"
#include "vmm/option_lists.h"
#include "vmm/throttle_options.h"
#include "vmm/vsock_options.h"

namespace ringside {

template <>
struct OptionChoices<BootProtocol> {
  static constexpr std::array kAll = {BootProtocol::kAuto, BootProtocol::kLinux,
                                      BootProtocol::kPvh};
  static const char* Name(BootProtocol protocol) {
    constexpr std::array kNames = {"auto", "linux", "pvh"};
    return kNames[static_cast<size_t>(protocol)];
  }
};

template <>
struct OptionChoices<Pit> {
  static constexpr std::array kAll = {Pit::kAuto, Pit::kOn, Pit::kOff};
  static const char* Name(Pit pit) {
    constexpr std::array kNames = {"auto", "on", "off"};
    return kNames[static_cast<size_t>(pit)];
  }
};

template <>
struct OptionChoices<RestoreMemory> {
  static constexpr std::array kAll = {RestoreMemory::kAuto, RestoreMemory::kMapped,
                                      RestoreMemory::kCopied};
  static const char* Name(RestoreMemory memory) {
    constexpr std::array kNames = {"auto", "mapped", "copied"};
    return kNames[static_cast<size_t>(memory)];
  }
};

template <>
struct OptionChoices<HugePages> {
  static constexpr std::array kAll = {HugePages::kOff, HugePages::kTransparent, HugePages::k2M};
  static const char* Name(HugePages pages) { return HugePagesName(pages); }
};

template <>
struct OptionChoices<CpuBaseline> {
  static constexpr std::array kAll = {CpuBaseline::kHost, CpuBaseline::kX86_64V2,
                                      CpuBaseline::kX86_64V3, CpuBaseline::kX86_64V4};
  static const char* Name(CpuBaseline baseline) { return CpuBaselineName(baseline); }
};

template <>
struct OptionChoices<RestoreClock> {
  static constexpr std::array kAll = {RestoreClock::kStood, RestoreClock::kRan};
  static const char* Name(RestoreClock clock) {
    constexpr std::array kNames = {"stood", "ran"};
    return kNames[static_cast<size_t>(clock)];
  }
};

namespace {

constexpr char kStdio[] = "stdio";
constexpr char kNone[] = "none";

// An item of a list has to be an object, or text that stands for one.
absl::Status CheckIsObject(const OptionPlace& place, const Json& given) {
  if (given.is_object()) return absl::OkStatus();
  std::string key = place.prefix;
  if (key.ends_with('.')) key.pop_back();
  return BadInput("%s is not an object: write { \"key\": value, ... }", key);
}

absl::StatusOr<Json> ParseSerialText(const std::string& text) {
  if (text == kStdio || text == kNone) return text;
  if (!text.starts_with("file=")) {
    return BadInput("--serial '%s' is unknown: give stdio, none or file=PATH", text);
  }
  return ParseKeyValues("--serial", text,
                        "a comma in a path is written twice, such as file=a,,b: ");
}

absl::Status SetSerial(const OptionPlace& place, const Json& given, MachineOptions& options) {
  options.serial = SerialOptions();
  if (given == kStdio) return absl::OkStatus();
  if (given == kNone) {
    options.serial.target = SerialOptions::Target::kNone;
    return absl::OkStatus();
  }
  if (!given.is_object()) {
    return BadInput(
        "serial is neither \"stdio\", \"none\" nor an object: write { \"file\": PATH }");
  }
  options.serial.target = SerialOptions::Target::kFile;
  return ReadObject(SerialFileOptions(), place, given, options.serial);
}

Json PrintSerial(const MachineOptions& options) {
  switch (options.serial.target) {
    case SerialOptions::Target::kStdio:
      return kStdio;
    case SerialOptions::Target::kNone:
      return kNone;
    case SerialOptions::Target::kFile:
      break;
  }
  return PrintObject(SerialFileOptions(), options.serial);
}

template <typename Object, const OptionTable<Object>& (*table)()>
std::vector<OptionGroup::Part> Parts() {
  return {{"", "", Document(table(), Object())}};
}

Json SerialSchema() {
  return {{"anyOf", Json::array({Json{{"enum", {kStdio, kNone}}},
                                 ObjectSchema(SerialFileOptions(), SerialOptions())})},
          {"default", kStdio}};
}

absl::Status AddDisk(const OptionPlace& place, const Json& given, MachineOptions& options) {
  RINGSIDE_RETURN_IF_ERROR(CheckIsObject(place, given));
  RINGSIDE_ASSIGN_OR_RETURN(DiskConfig disk, ReadDisk(place, given));
  options.machine.disks.push_back(std::move(disk));
  return absl::OkStatus();
}

std::vector<OptionGroup::Part> DiskParts() {
  std::vector<OptionGroup::Part> parts;
  for (const DiskKind& kind : DiskKinds()) {
    parts.push_back({kind.name, kind.doc, Document(kind.table, kind.make())});
  }
  return parts;
}

// Only a file and a namespace that Ringside drives can do without their type.
Json DiskSchema() {
  Json kinds = Json::array();
  for (const DiskKind& kind : DiskKinds()) {
    Json schema = ObjectSchema(kind.table, kind.make());
    Json properties = {{"type", {{"const", kind.name}, {"description", kind.doc}}}};
    properties.update(schema["properties"]);
    schema["properties"] = std::move(properties);
    if (!kind.type_is_optional) schema["required"].push_back("type");
    kinds.push_back(std::move(schema));
  }
  return {{"oneOf", std::move(kinds)}};
}

absl::Status AddNet(const OptionPlace& place, const Json& given, MachineOptions& options) {
  RINGSIDE_RETURN_IF_ERROR(CheckIsObject(place, given));
  return ReadNet(place, given, options.machine.networks.emplace_back());
}

Json NetSchema() {
  return ObjectSchema(NetOptions(), NetConfig());
}

absl::StatusOr<Json> ParseVsockText(const std::string& text) {
  return ParseKeyValues("--vsock", text, "give cid=N,path=SOCKET instead of ");
}

absl::Status SetVsock(const OptionPlace& place, const Json& given, MachineOptions& options) {
  RINGSIDE_RETURN_IF_ERROR(CheckIsObject(place, given));
  return ReadObject(VsockOptions(), place, given, options.machine.vsock.emplace());
}

Json VsockSchema() {
  return ObjectSchema(VsockOptions(), VsockConfig());
}

absl::StatusOr<Json> ParseIoThreadText(const std::string& text) {
  return ParseKeyValues("--iothread", text, "a policy is given as poll=");
}

absl::Status AddIoThread(const OptionPlace& place, const Json& given, MachineOptions& options) {
  RINGSIDE_RETURN_IF_ERROR(CheckIsObject(place, given));
  return ReadObject(IoThreadOptions(), place, given, options.machine.io_threads.emplace_back());
}

Json IoThreadSchema() {
  return ObjectSchema(IoThreadOptions(), IoThreadConfig());
}

absl::StatusOr<Json> ParseThrottleGroupText(const std::string& text) {
  return ParseKeyValues("--throttle-group", text, "a name is given as id=");
}

absl::Status AddThrottleGroup(const OptionPlace& place, const Json& given,
                              MachineOptions& options) {
  RINGSIDE_RETURN_IF_ERROR(CheckIsObject(place, given));
  return ReadObject(ThrottleGroupOptions(), place, given,
                    options.machine.throttle_groups.emplace_back());
}

Json ThrottleGroupSchema() {
  return ObjectSchema(ThrottleGroupOptions(), ThrottleGroupConfig());
}

// "ADDRESS", or "ADDRESS,id=NAME".
absl::StatusOr<Json> ParseAssignedText(const std::string& text) {
  const std::string hint = "give KEY=VALUE instead of ";
  if (text.substr(0, text.find(',')).find('=') != std::string::npos) {
    return ParseKeyValues("--vfio", text, hint);
  }
  return ParseKeyValues("--vfio", "address=" + text, hint);
}

absl::Status AddAssigned(const OptionPlace& place, const Json& given, MachineOptions& options) {
  AssignedConfig& device = options.machine.assigned.emplace_back();
  if (given.is_string()) {
    return ReadObject(AssignedOptions(), place, Json{{"address", given}}, device);
  }
  RINGSIDE_RETURN_IF_ERROR(CheckIsObject(place, given));
  return ReadObject(AssignedOptions(), place, given, device);
}

Json AssignedSchema() {
  return {{"anyOf", Json::array({Json{{"type", "string"}},
                                 ObjectSchema(AssignedOptions(), AssignedConfig())})}};
}

}  // namespace

const OptionTable<MachineConfig>& MachineOwnOptions() {
  static const OptionTable<MachineConfig> table = {
      "a machine",
      {{{.name = "kernel",
         .type = Plain(OptionKind::kPath),
         .doc = "the kernel: a bzImage, an ELF vmlinux, or any ELF file with a PVH note",
         .unset = "needed, but with restore"},
        [](auto& machine) -> auto& { return machine.kernel; }},
       {{.name = "restore",
         .type = Plain(OptionKind::kPath),
         .doc = "instead of booting a kernel go on from the snapshot in this directory, with its "
                "CPUs and memory; devices are as they are given here",
         .unset = "none"},
        [](auto& machine) -> auto& { return machine.restore; }},
       {{.name = "restore-memory",
         .type = Plain(OptionKind::kChoice),
         .doc =
             "of a restored machine: mapped from the snapshot, which takes no time and is shared "
             "until it is written, or copied and verified; auto: copied where a disk needs DMA"},
        [](auto& machine) -> auto& { return machine.restore_memory; }},
       {{.name = "restore-handler",
         .type = Plain(OptionKind::kPath),
         .doc = "of a restored machine: its memory comes, page by page as it is touched, from the "
                "userfaultfd handler that listens on this Unix socket, by Firecracker's protocol",
         .unset = "none"},
        [](auto& machine) -> auto& { return machine.restore_handler; }},
       {{.name = "restore-clock",
         .type = Plain(OptionKind::kChoice),
         .doc = "what the guest's clocks did while it was saved: nothing, or went on"},
        [](auto& machine) -> auto& { return machine.restore_clock; }},
       {{.name = "restore-working-set",
         .type = Plain(OptionKind::kSwitch),
         .doc = "whether memory that is mapped is prepared before the guest runs, where the "
                "snapshot has a working set (docs/snapshots.md)"},
        [](auto& machine) -> auto& { return machine.restore_working_set; }},
       {{.name = "initrd",
         .type = Plain(OptionKind::kPath),
         .doc = "the initial RAM disk",
         .unset = "none"},
        [](auto& machine) -> auto& { return machine.initrd; }},
       {{.name = "cmdline", .type = Plain(OptionKind::kText), .doc = "the kernel's command line"},
        [](auto& machine) -> auto& { return machine.command_line; }},
       {{.name = "entry",
         .type = Plain(OptionKind::kChoice),
         .doc = "how the kernel is entered; auto: pvh where it has a note of that, else linux"},
        [](auto& machine) -> auto& { return machine.protocol; }},
       {{.name = "cpus",
         .type = Whole(1, Machine::kMaxCpus),
         .unit = "vCPUs",
         .doc = "how many vCPUs the guest has"},
        [](auto& machine) -> auto& { return machine.cpus; }},
       {{.name = "cpu-baseline",
         .type = Plain(OptionKind::kChoice),
         .doc = "the processor that the guest sees: all that this host's KVM offers, or a level of "
                "the x86-64 psABI, for hosts that differ (docs/snapshots.md); of a restore, the "
                "snapshot's"},
        [](auto& machine) -> auto& { return machine.cpu_baseline; }},
       {{.name = "cpu-affinity",
         .type = Plain(OptionKind::kAffinity),
         .doc = "the CPUs of the host that vCPUs are kept on, such as 0:2,1:3-4+6; in JSON a list "
                "by vCPU",
         .unset = "any"},
        [](auto& machine) -> auto& { return machine.vcpu_cpus; }},
       {{.name = "memory",
         .type = Size(kMinMemory, kMaxMemory, kPageSize),
         .unit = "of memory",
         .doc = "the guest's memory, in whole pages of 4 KiB"},
        [](auto& machine) -> auto& { return machine.memory; }},
       {{.name = "memory-node",
         .type = Plain(OptionKind::kNodes),
         .doc = "the NUMA nodes of the host that the guest's memory is taken from, page by page in "
                "turns if there are several, such as 0 or 0,1",
         .unset = "that of the thread that touches a page first"},
        [](auto& machine) -> auto& { return machine.memory_nodes; }},
       {{.name = "hugepages",
         .type = Plain(OptionKind::kChoice),
         .doc = "the guest's memory in pages of 2 MiB (docs/tuning.md): where the host finds some "
                "(transparent), or all of it out of those that the host has set aside (2M)"},
        [](auto& machine) -> auto& { return machine.huge_pages; }},
       {{.name = "halt-poll",
         .type = Time(absl::ZeroDuration(), absl::Seconds(1)),
         .doc = "how long KVM polls for a vCPU that halts before it lets that sleep; kernel: as "
                "kvm.ko is set",
         .unset_name = "kernel"},
        [](auto& machine) -> auto& { return machine.halt_poll; }},
       {{.name = "pit",
         .type = Plain(OptionKind::kChoice),
         .doc = "whether the guest has an interval timer (Intel 8254); auto: only where KVM has no "
                "TSC deadline timer for guests"},
        [](auto& machine) -> auto& { return machine.pit; }}}};
  return table;
}

const OptionTable<SerialOptions>& SerialFileOptions() {
  static const OptionTable<SerialOptions> table = {
      "COM1",
      {{{.name = "file",
         .type = Plain(OptionKind::kPath),
         .doc = "the file that what the guest says is appended to",
         .is_required = true},
        [](auto& serial) -> auto& { return serial.file; }},
       {{.name = "limit",
         .type = Size(0, UINT64_MAX, 1),
         .doc = "what would make the file longer is dropped"},
        [](auto& serial) -> auto& { return serial.limit; }},
       {{.name = "truncate",
         .type = Plain(OptionKind::kSwitch),
         .doc = "whether the file is emptied once the machine is there"},
        [](auto& serial) -> auto& { return serial.truncate; }}}};
  return table;
}

const OptionTable<AssignedConfig>& AssignedOptions() {
  static const OptionTable<AssignedConfig> table = {
      "an assigned device",
      {{{.name = "address",
         .type = Plain(OptionKind::kText),
         .doc = "its PCI address on the host, such as 0000:00:05.0",
         .is_required = true},
        [](auto& device) -> auto& { return device.address; }},
       {{.name = "id",
         .type = Id(),
         .doc = "its name in statistics",
         .unset = "vfio0, vfio1, ... by its place"},
        [](auto& device) -> auto& { return device.id; }}}};
  return table;
}

std::span<const ObjectOption> ObjectOptions() {
  static constexpr std::array<ObjectOption, 7> kOptions = {{
      {.flag = "serial",
       .json = "serial",
       .doc = "where the guest's serial port COM1 leads: to this terminal (stdio, the default), "
              "nowhere (none), or into a file",
       .forms = "stdio|none|file=FILE[,KEY=VALUE...]",
       .repeats = false,
       .clear = [](MachineOptions& options) { options.serial = SerialOptions(); },
       .parse = ParseSerialText,
       .add = SetSerial,
       .print = PrintSerial,
       .parts = Parts<SerialOptions, SerialFileOptions>,
       .schema = SerialSchema},
      {.flag = "disk",
       .json = "disks",
       .doc = "a disk: /dev/vda, /dev/vdb and so on. What stands in front of the keys says where "
              "its bytes are: type=file (the default) with path=FILE, nvme://ADDRESS/NAMESPACE, "
              "nvme+user://SOCKET/NAMESPACE, /dev/ng0n1, or type=null",
       .forms = "KEY=VALUE,...|nvme://...|nvme+user://...|/dev/ng0n1",
       .repeats = true,
       .clear = [](MachineOptions& options) { options.machine.disks.clear(); },
       .parse = ParseDiskText,
       .add = AddDisk,
       .print =
           [](const MachineOptions& options) {
             Json disks = Json::array();
             for (const DiskConfig& disk : options.machine.disks) disks.push_back(PrintDisk(disk));
             return disks;
           },
       .parts = DiskParts,
       .schema = DiskSchema},
      {.flag = "net",
       .json = "networks",
       .doc =
           "a network of the guest (docs/network.md): a tap of the host by name or descriptor, or "
           "with user one that needs no rights; of its limits, reads are frames that come in and "
           "writes those that go out",
       .forms = "tap=NAME[,KEY=VALUE...]|fd=N[,...]|user[,...]",
       .repeats = true,
       .clear = [](MachineOptions& options) { options.machine.networks.clear(); },
       .parse = ParseNetText,
       .add = AddNet,
       .print =
           [](const MachineOptions& options) {
             Json networks = Json::array();
             for (const NetConfig& network : options.machine.networks) {
               networks.push_back(PrintObject(NetOptions(), network));
             }
             return networks;
           },
       .parts = Parts<NetConfig, NetOptions>,
       .schema = NetSchema},
      {.flag = "vsock",
       .json = "vsock",
       .doc = "streams between the guest and programs of the host (docs/vsock.md), which meet them "
              "at Unix sockets",
       .forms = "cid=N,path=SOCKET[,KEY=VALUE...]",
       .repeats = false,
       .clear = [](MachineOptions& options) { options.machine.vsock.reset(); },
       .parse = ParseVsockText,
       .add = SetVsock,
       .print =
           [](const MachineOptions& options) {
             const auto& vsock = options.machine.vsock;
             return vsock.has_value() ? PrintObject(VsockOptions(), *vsock) : Json();
           },
       .parts = Parts<VsockConfig, VsockOptions>,
       .schema = VsockSchema},
      {.flag = "iothread",
       .json = "iothreads",
       .doc = "a thread that serves devices, and how it waits for work; without any there is one",
       .forms = "KEY=VALUE,...",
       .repeats = true,
       .clear = [](MachineOptions& options) { options.machine.io_threads.clear(); },
       .parse = ParseIoThreadText,
       .add = AddIoThread,
       .print =
           [](const MachineOptions& options) {
             Json threads = Json::array();
             for (const IoThreadConfig& thread : options.machine.io_threads) {
               threads.push_back(PrintObject(IoThreadOptions(), thread));
             }
             return threads;
           },
       .parts = Parts<IoThreadConfig, IoThreadOptions>,
       .schema = IoThreadSchema},
      {.flag = "throttle-group",
       .json = "throttle-groups",
       .doc = "limits that several disks have together",
       .forms = "KEY=VALUE,...",
       .repeats = true,
       .clear = [](MachineOptions& options) { options.machine.throttle_groups.clear(); },
       .parse = ParseThrottleGroupText,
       .add = AddThrottleGroup,
       .print =
           [](const MachineOptions& options) {
             Json groups = Json::array();
             for (const ThrottleGroupConfig& group : options.machine.throttle_groups) {
               groups.push_back(PrintObject(ThrottleGroupOptions(), group));
             }
             return groups;
           },
       .parts = Parts<ThrottleGroupConfig, ThrottleGroupOptions>,
       .schema = ThrottleGroupSchema},
      {.flag = "vfio",
       .json = "vfio",
       .doc = "a PCI device of the host that is passed through to the guest: one with MSI-X that "
              "is bound to vfio-pci",
       .forms = "ADDRESS[,KEY=VALUE...]",
       .repeats = true,
       .clear = [](MachineOptions& options) { options.machine.assigned.clear(); },
       .parse = ParseAssignedText,
       .add = AddAssigned,
       .print =
           [](const MachineOptions& options) {
             Json devices = Json::array();
             for (const AssignedConfig& device : options.machine.assigned) {
               devices.push_back(PrintObject(AssignedOptions(), device));
             }
             return devices;
           },
       .parts = Parts<AssignedConfig, AssignedOptions>,
       .schema = AssignedSchema},
  }};
  return kOptions;
}

}  // namespace ringside
