#include "vmm/state_codec.h"

#include <concepts>

#include "base/status.h"
#include "snapshot/state_bytes.h"

namespace ringside {
namespace {

// Each state is told once, for both directions: `Visit(visitor, state)` names its parts in order.
struct Writer {
  StateWriter& bytes;

  template <typename Value>
  void Part(const Value& value) {
    bytes.Put(value);
  }
  template <typename Value>
  void List(const std::vector<Value>& values) {
    bytes.PutList(values);
  }
  void Text(const std::string& text) { bytes.PutText(text); }
  template <typename Value, typename Each>
  void Elements(const std::vector<Value>& values, Each each) {
    bytes.Put(static_cast<uint32_t>(values.size()));
    for (const Value& value : values) each(value);
  }
};

struct Reader {
  StateReader& bytes;

  template <typename Value>
  void Part(Value& value) {
    bytes.Get(value);
  }
  template <typename Value>
  void List(std::vector<Value>& values) {
    bytes.GetList(values);
  }
  void Text(std::string& text) { bytes.GetText(text); }
  template <typename Value, typename Each>
  void Elements(std::vector<Value>& values, Each each) {
    // One after the other: a count costs nothing, and an element that is not there ends it.
    for (uint32_t left = bytes.Count(1); left > 0 && bytes.IsFine(); --left) {
      each(values.emplace_back());
    }
  }
};

// The state is const for a writer.
template <typename State, typename Type>
concept Is = std::same_as<std::remove_const_t<State>, Type>;

void Visit(auto& visit, Is<VcpuState> auto& state) {
  visit.List(state.cpuid);
  visit.Part(state.tsc_khz);
  visit.Part(state.mp_state);
  visit.Part(state.registers);
  visit.Part(state.special);
  visit.List(state.xsave);
  visit.Part(state.xcrs);
  visit.Part(state.debug);
  visit.Part(state.lapic);
  visit.List(state.msrs);
  visit.Part(state.events);
}

void Visit(auto& visit, Is<Serial::State> auto& state) {
  visit.Part(state.interrupt_enable);
  visit.Part(state.fifo_control);
  visit.Part(state.line_control);
  visit.Part(state.modem_control);
  visit.Part(state.scratch);
  visit.Part(state.divisor);
  visit.Part(state.overrun);
  visit.Part(state.transmitter_interrupt);
  visit.List(state.input);
}

void Visit(auto& visit, Is<VirtioTransport::QueueState> auto& state) {
  visit.Part(state.max_size);
  visit.Part(state.size);
  visit.Part(state.enabled);
  visit.Part(state.descriptor_area);
  visit.Part(state.driver_area);
  visit.Part(state.device_area);
  visit.Part(state.vector);
  visit.Part(state.next);
}

void Visit(auto& visit, Is<VirtioTransport::State> auto& state) {
  visit.Part(state.device_id);
  visit.Part(state.status);
  visit.Part(state.config_generation);
  visit.Part(state.isr);
  visit.Part(state.config_vector);
  visit.Part(state.driver_features);
  visit.Elements(state.queues, [&](auto& queue) { Visit(visit, queue); });
  visit.List(state.device);
}

void Visit(auto& visit, Is<VirtioPci::State> auto& state) {
  visit.Part(state.config.bytes);
  visit.Part(state.msix.control);
  visit.List(state.msix.entries);
  Visit(visit, state.transport);
  visit.Part(state.device_feature_select);
  visit.Part(state.driver_feature_select);
  visit.Part(state.queue_select);
}

void Visit(auto& visit, Is<DevicesState> auto& state) {
  Visit(visit, state.serial);
  visit.Part(state.pci_host.config_address);
  visit.Part(state.pci_host.functions);
  visit.Elements(state.functions, [&](auto& function) {
    visit.Text(function.name);
    Visit(visit, function.pci);
  });
}

void Visit(auto& visit, Is<HostState> auto& state) {
  visit.Part(state.kvm);
  visit.Elements(state.debts, [&](auto& debts) {
    visit.Text(debts.id);
    visit.Part(debts.is_group);
    visit.Part(debts.ticks);
  });
  visit.Elements(state.contents, [&](auto& content) {
    visit.Text(content.disk);
    visit.Part(content.id.id);
    visit.Part(content.id.generation);
  });
}

// An optional part has a byte in front, 1 if it is there.
void Visit(Writer& visit, const VmState& state) {
  visit.Part(state.clock);
  visit.Part(state.irqchips);
  visit.Part(static_cast<uint8_t>(state.pit.has_value()));
  if (state.pit.has_value()) visit.Part(*state.pit);
}

void Visit(Reader& visit, VmState& state) {
  visit.Part(state.clock);
  visit.Part(state.irqchips);
  uint8_t has_pit;
  visit.Part(has_pit);
  if (has_pit != 0) visit.Part(state.pit.emplace());
}

template <typename State>
std::vector<uint8_t> EncodeAny(const State& state) {
  StateWriter bytes;
  Writer writer{bytes};
  Visit(writer, state);
  return bytes.bytes();
}

template <typename State>
absl::Status DecodeAny(const char* name, uint32_t version, uint32_t known,
                       std::span<const uint8_t> bytes, State& state) {
  if (version != known) {
    return BadInput(
        "the saved %s has version %d, and this Ringside reads version %d: use the one that saved "
        "it, or a newer one",
        name, version, known);
  }
  StateReader reader(bytes);
  Reader visitor{reader};
  Visit(visitor, state);
  if (reader.IsExact()) return absl::OkStatus();
  return BadInput("the saved %s of %d bytes is not one", name, bytes.size());
}

}  // namespace

std::vector<uint8_t> Encode(const VcpuState& state) {
  return EncodeAny(state);
}
std::vector<uint8_t> Encode(const VmState& state) {
  return EncodeAny(state);
}
std::vector<uint8_t> Encode(const DevicesState& state) {
  return EncodeAny(state);
}
std::vector<uint8_t> Encode(const HostState& state) {
  return EncodeAny(state);
}

absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, VcpuState& state) {
  return DecodeAny("vCPU", version, kVcpuStateVersion, bytes, state);
}
absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, VmState& state) {
  return DecodeAny("VM", version, kVmStateVersion, bytes, state);
}
absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, DevicesState& state) {
  return DecodeAny("set of devices", version, kDevicesStateVersion, bytes, state);
}
absl::Status Decode(uint32_t version, std::span<const uint8_t> bytes, HostState& state) {
  return DecodeAny("host's part", version, kHostStateVersion, bytes, state);
}

}  // namespace ringside
