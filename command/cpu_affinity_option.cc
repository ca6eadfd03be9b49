#include "command/cpu_affinity_option.h"

#include <algorithm>
#include <string_view>

#include "base/status.h"
#include "command/number_list.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

absl::Status AddOne(std::string_view field, uint32_t cpus, std::vector<std::vector<int>>& by_vcpu) {
  const size_t colon = field.find(':');
  const auto vcpu = ParseNumberList(field.substr(0, colon));
  const auto host_cpus =
      colon != std::string_view::npos ? ParseNumberList(field.substr(colon + 1)) : std::nullopt;
  if (!vcpu || vcpu->size() != 1 || !host_cpus) {
    return BadInput("--cpu-affinity '%s' is no VCPU:CPUS; give such as 0:2 or 1:3-4+6", field);
  }
  const auto id = static_cast<uint32_t>(vcpu->front());
  if (id >= cpus) {
    return BadInput("--cpu-affinity '%s': there is no vCPU %d; --cpus makes %d, from 0 on", field,
                    id, cpus);
  }
  if (!by_vcpu[id].empty()) {
    return BadInput("--cpu-affinity '%s': vCPU %d is named twice; join its CPUs with '+'", field,
                    id);
  }
  by_vcpu[id] = *host_cpus;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int>>> ParseCpuAffinity(const std::string& text,
                                                               uint32_t cpus) {
  // Whether so many can be is for the machine to say.
  cpus = std::min(cpus, Machine::kMaxCpus);
  std::vector<std::vector<int>> by_vcpu(cpus);
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    RINGSIDE_RETURN_IF_ERROR(AddOne(rest.substr(0, comma), cpus, by_vcpu));
    if (comma == std::string_view::npos) return by_vcpu;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace ringside
