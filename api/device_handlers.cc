#include <algorithm>

#include "api/api_handlers.h"
#include "base/nearest.h"
#include "base/status.h"
#include "devices/latency_trace.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

// The one with this id.
template <typename Statistics>
absl::StatusOr<Statistics> Find(const std::vector<Statistics>& all, const std::string& id,
                                const char* what) {
  std::vector<std::string> ids;
  for (const Statistics& one : all) {
    if (one.id == id) return one;
    ids.push_back(one.id);
  }
  if (ids.empty()) {
    return absl::NotFoundError(absl::StrFormat("there is no %s '%s': there are none", what, id));
  }
  return absl::NotFoundError(
      absl::StrFormat("there is no %s '%s': did you mean '%s'?", what, id, Nearest(id, ids)));
}

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
  Json list = Json::array();
  for (const DiskStatistics& disk : machine->Statistics().disks) {
    list.push_back(DiskStatisticsJson(disk));
  }
  return list;
}

absl::StatusOr<Json> GetDisk(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(const DiskStatistics disk,
                            Find(machine->Statistics().disks, given.Text("disk"), "disk"));
  return DiskStatisticsJson(disk);
}

absl::StatusOr<Json> ListDevices(MachineControl& control, const ApiArguments& /*given*/) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  Json list = Json::array();
  for (const DeviceStatistics& device : machine->Statistics().devices) {
    list.push_back(DeviceStatisticsJson(device));
  }
  return list;
}

absl::StatusOr<Json> GetDevice(MachineControl& control, const ApiArguments& given) {
  RINGSIDE_ASSIGN_OR_RETURN(Machine* const machine, control.machine());
  RINGSIDE_ASSIGN_OR_RETURN(const DeviceStatistics device,
                            Find(machine->Statistics().devices, given.Text("device"), "device"));
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
