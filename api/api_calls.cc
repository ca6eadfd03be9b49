// The table of the control interface's calls.
#include "api/api_call.h"
#include "api/api_handlers.h"
#include "vmm/option_table.h"

namespace ringside {
namespace {

Json Nanoseconds(absl::Duration time) {
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time));
}

ApiField PathId(const char* name, const char* doc) {
  return {.spec = {.name = name, .type = Id(), .doc = doc, .is_required = true}};
}

ApiField Patience() {
  return {.spec = {.name = "patience",
                   .type = Time(absl::ZeroDuration(), absl::Hours(1)),
                   .doc = "how long it may take; what is not done by then is given up"},
          .unset = Nanoseconds(absl::Seconds(30))};
}

ApiField DeviceId() {
  return PathId("device", "a disk's id, a network's, the vsock's, a device's, or rng");
}

std::vector<ApiField> With(std::vector<ApiField> fields, ApiField last) {
  fields.push_back(std::move(last));
  return fields;
}

std::vector<ApiCall> MachineCalls() {
  return {
      {.name = "version",
       .method = "GET",
       .path = "/ringside/v1/version",
       .doc = "The version of Ringside",
       .result = "Version",
       .serve = GetVersion},
      {.name = "document",
       .method = "GET",
       .path = "/ringside/v1/openapi.json",
       .doc = "This interface as an OpenAPI document",
       .result = "Document",
       .serve = GetDocument},
      {.name = "machine",
       .method = "GET",
       .path = "/ringside/v1/machine",
       .doc = "The machine's state",
       .result = "Machine",
       .serve = GetMachine},
      {.name = "config",
       .method = "GET",
       .path = "/ringside/v1/machine/config",
       .doc = "The machine's configuration, as --print-config prints it",
       .result = "Config",
       .serve = GetConfig},
      {.name = "set-config",
       .method = "PUT",
       .path = "/ringside/v1/machine/config",
       .doc = "Replaces the whole configuration of a machine that has not started",
       .kind = ApiKind::kOperation,  // it looks what a disk's path is, whose server may be silent
       .body = "Config",
       .serve = PutConfig},
      {.name = "start",
       .method = "POST",
       .path = "/ringside/v1/machine/start",
       .doc = "Starts the machine as it is configured",
       .kind = ApiKind::kOperation,
       .serve = StartMachine},
      {.name = "pause",
       .method = "POST",
       .path = "/ringside/v1/machine/pause",
       .doc = "Holds the machine still, with nothing in flight",
       .kind = ApiKind::kOperation,
       .fields = {Patience()},
       .serve = PauseMachine},
      {.name = "resume",
       .method = "POST",
       .path = "/ringside/v1/machine/resume",
       .doc = "Lets a paused machine go on, or calls off a pause that is under way",
       .serve = ResumeMachine},
      {.name = "save",
       .method = "POST",
       .path = "/ringside/v1/machine/save",
       .doc = "Writes the machine into a directory, from which 'ringside run --restore' goes on; "
              "it is paused meanwhile",
       .kind = ApiKind::kOperation,
       .fields = {{.spec = {.name = "directory",
                            .type = Plain(OptionKind::kPath),
                            .doc = "where to; made if it is not there, and without a snapshot yet",
                            .is_required = true},
                   .is_word = true},
                  {.spec = {.name = "stop",
                            .type = Plain(OptionKind::kSwitch),
                            .doc =
                                "whether it ends then, so that its disks stay as they are saved"},
                   .unset = false},
                  {.spec = {.name = "difference",
                            .type = Plain(OptionKind::kSwitch),
                            .doc = "whether only what has changed is written: since the last save "
                                   "with this or track, or since the restore"},
                   .unset = false},
                  {.spec = {.name = "track",
                            .type = Plain(OptionKind::kSwitch),
                            .doc = "whether writes are noted from then on, so that the next save "
                                   "may be a difference"},
                   .unset = false},
                  Patience()},
       .progress = "saving",
       .serve = SaveMachine},
      {.name = "record-working-set",
       .method = "POST",
       .path = "/ringside/v1/machine/record-working-set",
       .doc =
           "Writes beside the snapshot that the machine goes on from which pages it has used, so "
           "that later ones have them before they run",
       .kind = ApiKind::kOperation,
       .serve = RecordWorkingSet},
      {.name = "power-button",
       .method = "POST",
       .path = "/ringside/v1/machine/power-button",
       .doc = "Presses the power button; what follows is up to the guest",
       .serve = PressPowerButton},
      {.name = "shut-down",
       .method = "POST",
       .path = "/ringside/v1/machine/shut-down",
       .doc =
           "Presses the power button, and pulls the plug if the guest has not powered off in time",
       .fields = {{.spec = {.name = "limit",
                            .type = Time(absl::ZeroDuration(), absl::Hours(24)),
                            .doc = "how long the guest has"},
                   .unset = Nanoseconds(absl::Minutes(1))}},
       .serve = ShutDownMachine},
      {.name = "stop",
       .method = "POST",
       .path = "/ringside/v1/machine/stop",
       .doc = "Ends the machine at once, as pulling the plug does",
       .serve = StopMachine},
      {.name = "statistics",
       .method = "GET",
       .path = "/ringside/v1/statistics",
       .doc = "All that is counted",
       .result = "Statistics",
       .serve = GetStatistics},
      {.name = "metrics",
       .method = "GET",
       .path = "/metrics",
       .doc = "What is counted, for Prometheus (docs/metrics.md)",
       .kind = ApiKind::kMetrics},
      {.name = "events",
       .method = "GET",
       .path = "/ringside/v1/events",
       .doc = "A line of JSON for each event, as it comes, until the machine's end",
       .kind = ApiKind::kEvents,
       .fields = {{.spec = {.name = "from",
                            .type = Whole(0, INT64_MAX),
                            .doc = "the number of the first event wanted; of those that were "
                                   "before the call, the newest 256 are known",
                            .unset = "those to come"}}},
       .result = "Event"}};
}

std::vector<ApiCall> DeviceCalls() {
  return {
      {.name = "disks",
       .method = "GET",
       .path = "/ringside/v1/disks",
       .doc = "All disks with their statistics",
       .result = "Disk[]",
       .serve = ListDisks},
      {.name = "disk",
       .method = "GET",
       .path = "/ringside/v1/disks/{disk}",
       .doc = "A disk with its statistics",
       .in_path = {PathId("disk", "the disk's id")},
       .result = "Disk",
       .serve = GetDisk},
      {.name = "resize-disk",
       .method = "PATCH",
       .path = "/ringside/v1/disks/{disk}",
       .doc = "Makes a disk larger, or looks how large its file or device has become, and tells "
              "the guest",
       .kind = ApiKind::kOperation,
       .in_path = {PathId("disk", "the disk's id")},
       .fields = {{.spec = {.name = "size",
                            .type = Size(512, uint64_t{1} << 50, 512),
                            .doc = "how large it is to be",
                            .unset = "what the file or device has"}},
                  Patience()},
       .result = "DiskSize",
       .serve = ResizeDisk},
      {.name = "swap-disk",
       .method = "PUT",
       .path = "/ringside/v1/disks/{disk}/backend",
       .doc = "Exchanges what is behind a disk while the guest uses it; nothing is copied",
       .kind = ApiKind::kOperation,
       .in_path = {PathId("disk", "the disk's id")},
       .fields = {{.spec = {.name = "to",
                            .type = Text(8192),
                            .doc = "the new one, as --disk names it: path=new.img,cache=none",
                            .is_required = true}},
                  Patience()},
       .serve = SwapDisk},
      {.name = "networks",
       .method = "GET",
       .path = "/ringside/v1/networks",
       .doc = "All networks with their statistics",
       .result = "Network[]",
       .serve = ListNetworks},
      {.name = "network",
       .method = "GET",
       .path = "/ringside/v1/networks/{network}",
       .doc = "A network with its statistics",
       .in_path = {PathId("network", "the network's id")},
       .result = "Network",
       .serve = GetNetwork},
      {.name = "set-link",
       .method = "PUT",
       .path = "/ringside/v1/networks/{network}/link",
       .doc = "Pulls the cable of a network, or plugs it in",
       .kind = ApiKind::kOperation,
       .in_path = {PathId("network", "the network's id")},
       .fields = {{.spec = {.name = "up",
                            .type = Plain(OptionKind::kSwitch),
                            .doc = "whether it is plugged in",
                            .is_required = true}},
                  Patience()},
       .serve = SetLink},
      {.name = "devices",
       .method = "GET",
       .path = "/ringside/v1/devices",
       .doc = "All other virtio devices with their statistics",
       .result = "Device[]",
       .serve = ListDevices},
      {.name = "device",
       .method = "GET",
       .path = "/ringside/v1/devices/{device}",
       .doc = "Such a device with its statistics",
       .in_path = {PathId("device", "the device's id")},
       .result = "Device",
       .serve = GetDevice},
      {.name = "move-queue",
       .method = "PUT",
       .path = "/ringside/v1/devices/{device}/queues/{queue}",
       .doc = "Has another I/O thread serve a queue of a disk, network, vsock or device",
       .kind = ApiKind::kOperation,
       .in_path = {DeviceId(),
                   {.spec = {.name = "queue",
                             .type = Whole(0, 65535),
                             .doc = "the queue's number",
                             .is_required = true}}},
       .fields = {PathId("iothread", "the I/O thread's id"), Patience()},
       .serve = MoveQueue},
      {.name = "set-trace",
       .method = "PUT",
       .path = "/ringside/v1/devices/{device}/trace",
       .doc = "Begins or ends to trace the latencies of a disk, network, vsock or device",
       .kind = ApiKind::kOperation,
       .in_path = {DeviceId()},
       .fields = {{.spec = {.name = "on",
                            .type = Plain(OptionKind::kSwitch),
                            .doc = "whether it is traced",
                            .is_required = true}},
                  Patience()},
       .serve = SetTrace},
      {.name = "latencies",
       .method = "GET",
       .path = "/ringside/v1/devices/{device}/latencies",
       .doc = "When the newest requests of a traced disk or device passed which point",
       .kind = ApiKind::kOperation,
       .in_path = {DeviceId()},
       .fields = {{.spec = {.name = "newest",
                            .type = Whole(1, 4096),
                            .unit = "requests of each queue",
                            .doc = "how many of each queue"},
                   .unset = 100},
                  Patience()},
       .result = "Latencies[]",
       .serve = GetLatencies}};
}

std::vector<ApiCall> ThrottleCalls() {
  return {{.name = "set-throttle",
           .method = "PATCH",
           .path = "/ringside/v1/disks/{disk}/throttle",
           .doc = "Changes what a disk may do per second; what is not given stays as it is, and 0 "
                  "lifts a limit",
           .in_path = {PathId("disk", "the disk's id")},
           .fields = ThrottleFields(),
           .serve = SetThrottle},
          {.name = "set-network-throttle",
           .method = "PATCH",
           .path = "/ringside/v1/networks/{network}/throttle",
           .doc = "Changes what a network may carry per second, likewise; reads are frames that "
                  "come in, writes those that go out",
           .in_path = {PathId("network", "the network's id")},
           .fields = ThrottleFields(),
           .serve = SetNetworkThrottle},
          {.name = "throttle-groups",
           .method = "GET",
           .path = "/ringside/v1/throttle-groups",
           .doc = "All groups of disks that have limits together",
           .result = "ThrottleGroup[]",
           .serve = ListThrottleGroups},
          {.name = "set-group-throttle",
           .method = "PATCH",
           .path = "/ringside/v1/throttle-groups/{group}",
           .doc = "Changes what a group of disks may do per second, likewise",
           .in_path = {PathId("group", "the group's id")},
           .fields = ThrottleFields(),
           .serve = SetGroupThrottle}};
}

std::vector<ApiCall> IoThreadCalls() {
  const ApiField id = PathId("iothread", "the I/O thread's id");
  return {{.name = "iothreads",
           .method = "GET",
           .path = "/ringside/v1/iothreads",
           .doc = "All I/O threads with their policies and statistics",
           .result = "IoThread[]",
           .serve = ListIoThreads},
          {.name = "iothread",
           .method = "GET",
           .path = "/ringside/v1/iothreads/{iothread}",
           .doc = "An I/O thread with its policy and statistics",
           .in_path = {id},
           .result = "IoThread",
           .serve = GetIoThread},
          {.name = "add-iothread",
           .method = "POST",
           .path = "/ringside/v1/iothreads",
           .doc = "Starts another I/O thread",
           .kind = ApiKind::kOperation,
           .fields = IoThreadFields(),
           .result = "AddedIoThread",
           .serve = AddIoThread},
          {.name = "change-iothread",
           .method = "PATCH",
           .path = "/ringside/v1/iothreads/{iothread}",
           .doc = "Changes how an I/O thread polls; what is not given stays as it is",
           .kind = ApiKind::kOperation,
           .in_path = {id},
           .fields = With(PollFields(), Patience()),
           .serve = ChangeIoThread},
          {.name = "remove-iothread",
           .method = "DELETE",
           .path = "/ringside/v1/iothreads/{iothread}",
           .doc = "Ends an I/O thread that serves no queue",
           .kind = ApiKind::kOperation,
           .in_path = {id},
           .fields = {Patience()},
           .serve = RemoveIoThread},
          {.name = "explain-iothread",
           .method = "GET",
           .path = "/ringside/v1/iothreads/{iothread}/explanation",
           .doc = "Why an I/O thread polls, dozes or sleeps",
           .kind = ApiKind::kOperation,
           .in_path = {id},
           .fields = {Patience()},
           .result = "Explanation",
           .serve = ExplainIoThread}};
}

std::vector<ApiCall> OperationCalls() {
  return {
      {.name = "operations",
       .method = "GET",
       .path = "/ringside/v1/operations",
       .doc = "What is under way, and the newest that has ended, without results",
       .kind = ApiKind::kOperations,
       .result = "Operation[]"},
      {.name = "operation",
       .method = "GET",
       .path = "/ringside/v1/operations/{operation}",
       .doc = "How an operation that was answered with 202 went, once it has ended or the wait has",
       .kind = ApiKind::kOperations,
       .in_path = {{.spec = {.name = "operation",
                             .type = Whole(1, INT64_MAX),
                             .doc = "its id",
                             .is_required = true}}},
       .fields = {WaitField()},
       .result = "Operation"}};
}

}  // namespace

const std::vector<ApiCall>& ApiCalls() {
  static const std::vector<ApiCall> calls = [] {
    std::vector<ApiCall> all = MachineCalls();
    for (const auto& some :
         {DeviceCalls(), GuestCalls(), ThrottleCalls(), IoThreadCalls(), OperationCalls()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return calls;
}

const ApiField& WaitField() {
  static const ApiField field = {
      .spec = {.name = "wait",
               .type = Time(absl::ZeroDuration(), absl::Minutes(1)),
               .doc = "how long the answer may take before it says that the call is under way"},
      .unset = Nanoseconds(absl::Seconds(1))};
  return field;
}

}  // namespace ringside
