#include <algorithm>

#include "api/api_handlers.h"
#include "api/find_statistics.h"
#include "base/status.h"
#include "devices/latency_trace.h"
#include "vmm/disk_options.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

Json LatencyJson(const LatencyRecord& record) {
  Json at = Json::object();
  for (size_t point = 0; point < kLatencyPoints; ++point) {
    at[LatencyPointName(static_cast<LatencyPoint>(point))] = record.at_ns[point];
  }
  return {{"kind", RequestKindName(record.kind)}, {"bytes", record.bytes}, {"at_ns", at}};
}

}  // namespace

absl::StatusOr<Json> ListDisks(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  return ArrayOf(machine->Statistics().disks, DiskStatisticsJson);
}

absl::StatusOr<Json> GetDisk(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(const DiskStatistics disk, FindStatistics(machine->Statistics().disks,
                                                                      given.Text("disk"), "disk"));
  return DiskStatisticsJson(disk);
}

absl::StatusOr<Json> ResizeDisk(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  std::optional<uint64_t> wanted;
  if (given.Has("size")) wanted = given.Whole("size");
  RINGSIDE_ASSIGN_OR_RETURN(
      const uint64_t size, machine->ResizeDisk(given.Text("disk"), wanted, given.Time("patience")));
  return Json{{"size", size}};
}

absl::StatusOr<Json> SwapDisk(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(const BlockBackend backend,
                            ReadBackend({.prefix = "to: ", .is_text = true}, given.Text("to")));
  RINGSIDE_RETURN_IF_ERROR(machine->SwapDisk(given.Text("disk"), backend, given.Time("patience")));
  return Json();
}

absl::StatusOr<Json> ListDevices(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  return ArrayOf(machine->Statistics().devices, DeviceStatisticsJson);
}

absl::StatusOr<Json> GetDevice(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(
      const DeviceStatistics device,
      FindStatistics(machine->Statistics().devices, given.Text("device"), "device"));
  return DeviceStatisticsJson(device);
}

absl::StatusOr<Json> MoveQueue(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(machine->MoveQueue(given.Text("device"),
                                              static_cast<uint16_t>(given.Whole("queue")),
                                              given.Text("iothread"), given.Time("patience")));
  return Json();
}

absl::StatusOr<Json> SetTrace(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_RETURN_IF_ERROR(
      machine->SetTrace(given.Text("device"), given.Switch("on"), given.Time("patience")));
  return Json();
}

absl::StatusOr<Json> GetLatencies(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<QueueLatencies> latencies,
                            machine->Latencies(given.Text("device"), given.Time("patience")));
  Json list = Json::array();
  for (const QueueLatencies& queue : latencies) {
    const size_t newest = std::min<size_t>(queue.records.size(), given.Whole("newest"));
    Json records = Json::array();
    for (auto record = queue.records.end() - static_cast<ptrdiff_t>(newest);
         record != queue.records.end(); ++record) {
      records.push_back(LatencyJson(*record));
    }
    list.push_back({{"queue", queue.queue}, {"records", std::move(records)}});
  }
  if (!list.empty()) return list;
  return absl::NotFoundError(
      absl::StrFormat("no queue of '%s' is traced: call set-trace first", given.Text("device")));
}

}  // namespace ringside
