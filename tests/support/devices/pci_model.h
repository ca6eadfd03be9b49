// Three PCI functions on a host, and what must hold whatever a guest writes to their configuration
// space. For tests and for the fuzzer.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "devices/pci_host.h"
#include "tests/support/registers.h"

namespace ringside::testing {

inline constexpr uint64_t kWindow = 0xc0000000;
inline constexpr uint64_t kWindowSize = 0x20000000;

// Registers that read as `tag` in every byte.
class TaggedRegisters final : public IoHandler {
 public:
  explicit TaggedRegisters(uint8_t tag) : tag_(tag) {}
  void Read(uint64_t, std::span<std::byte> data) override {
    for (std::byte& byte : data) byte = std::byte{tag_};
  }
  void Write(uint64_t, std::span<const std::byte>) override {}
  uint8_t tag() const { return tag_; }

 private:
  const uint8_t tag_;
};

// BARs of the given sizes (0: none), and a capability of which four bytes are writable. The tags of
// its BARs are first_tag + index.
class TaggedFunction final : public PciFunction {
 public:
  TaggedFunction(uint16_t device, std::array<uint64_t, kBars> sizes, uint8_t first_tag)
      : PciFunction({.vendor = 0x1af4,
                     .device = device,
                     .subsystem_vendor = 0x1af4,
                     .subsystem = 0x1100,
                     .class_code = 0x018000,
                     .revision = 1}) {
    for (uint8_t i = 0; i < kBars; ++i) {
      registers_.emplace_back(static_cast<uint8_t>(first_tag + i));
    }
    for (size_t i = 0; i < kBars; ++i) {
      if (sizes[i] != 0) AddBar(i, sizes[i], registers_[i]);
    }
    const std::array body = {std::byte{8}, std::byte{0}, std::byte{0},
                             std::byte{0}, std::byte{0}, std::byte{0}};
    const std::array writable = {std::byte{0},    std::byte{0},    std::byte{0xff},
                                 std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};
    capability = AddCapability(0x09, body, writable);
  }

  using PciFunction::CheckConfig;
  using PciFunction::RestoreConfig;
  using PciFunction::SaveConfig;

  void BarMapped(size_t index, uint64_t address) override {
    broken |= mapped.contains(index);
    mapped[index] = address;
  }
  void BarUnmapped(size_t index, uint64_t address) override {
    broken |= !mapped.contains(index) || mapped[index] != address;
    mapped.erase(index);
    last_left = address;
  }
  uint8_t tag(size_t index) const { return registers_[index].tag(); }

  uint32_t capability;
  std::map<size_t, uint64_t> mapped;  // as the host has said
  uint64_t last_left = 0;
  bool broken = false;  // the host mapped twice, or unmapped what was not there

 private:
  std::vector<TaggedRegisters> registers_;
};

class PciModel {
 public:
  PciModel() {
    for (TaggedFunction* function : functions) added &= host.Add(*function).ok();
  }

  // The first promise found broken, or nothing.
  std::string Broken() {
    for (uint32_t device = 0; device <= functions.size(); ++device) {
      if (std::string what = BrokenIdentity(device); !what.empty()) return what;
    }
    for (uint32_t device = 1; device <= functions.size(); ++device) {
      if (functions[device - 1]->broken) return "BarMapped and BarUnmapped do not alternate";
      for (size_t index = 0; index < PciFunction::kBars; ++index) {
        if (std::string what = BrokenBar(device, index); !what.empty()) return what;
      }
    }
    for (const uint64_t address :
         {kWindow - 1, kWindow, kWindow + kWindowSize - 1, kWindow + kWindowSize}) {
      if (std::string what = BrokenByte(address); !what.empty()) return what;
    }
    return "";
  }

  Bus memory;
  PciHost host{memory, kWindow, kWindowSize};
  TaggedFunction small{0x1042, {4096, 0, 0, 0, 8192, 0}, 1};
  TaggedFunction large{0x1044, {0x10000, 0x1000000, 0, 0, 0, 4096}, 11};
  TaggedFunction huge{0x1041, {0, 0, 0x8000000, 4096, 0, 0}, 21};
  const std::array<TaggedFunction*, 3> functions = {&small, &large, &huge};
  bool added = true;

 private:
  template <typename T>
  T Config(uint32_t device, uint32_t offset) {
    return ReadAs<T>(host.ecam(), device << 15 | offset);
  }

  // What never changes.
  std::array<uint32_t, 8> Identity(uint32_t device) {
    constexpr uint32_t kFixedOfCommand = 0xffff0000 | 0xfbf9;  // all but the writable bits
    const uint32_t capability =
        device == 0 ? 0 : Config<uint32_t>(device, functions[device - 1]->capability);
    return {Config<uint32_t>(device, 0),
            Config<uint32_t>(device, 4) & kFixedOfCommand,
            Config<uint32_t>(device, 8),
            Config<uint32_t>(device, 0xc),
            Config<uint32_t>(device, 0x2c),
            Config<uint32_t>(device, 0x34),
            Config<uint32_t>(device, 0x3c) & ~uint32_t{0xff},
            capability};
  }

  std::string BrokenIdentity(uint32_t device) {
    const auto [place, first] = identities_.try_emplace(device, Identity(device));
    if (!first && place->second != Identity(device)) {
      return absl::StrFormat("the identity of device %d has changed", device);
    }
    return "";
  }

  // What a guest would say that it reads there: the BAR that covers it, else an undriven bus.
  std::string BrokenByte(uint64_t address) {
    int expected = 0xff;
    for (const TaggedFunction* function : functions) {
      for (const auto& [index, base] : function->mapped) {
        if (address < base || address - base >= function->bar(index).size) continue;
        if (expected != 0xff) return absl::StrFormat("two BARs cover %#x", address);
        expected = function->tag(index);
      }
    }
    const int found = ReadAs<uint8_t>(memory, address);
    if (found == expected) return "";
    return absl::StrFormat("%#x reads as %d, not %d", address, found, expected);
  }

  bool OverlapsAnother(const TaggedFunction& function, size_t index, uint64_t base) {
    const uint64_t end = base + function.bar(index).size;
    for (const TaggedFunction* other : functions) {
      for (const auto& [there, at] : other->mapped) {
        if (other == &function && there == index) continue;
        if (at < end && base < at + other->bar(there).size) return true;
      }
    }
    return false;
  }

  std::string BrokenBar(uint32_t device, size_t index) {
    const TaggedFunction& function = *functions[device - 1];
    const uint64_t size = function.bar(index).size;
    const uint64_t base = Config<uint32_t>(device, static_cast<uint32_t>(0x10 + 4 * index));
    const bool decodes = (Config<uint16_t>(device, 4) & 2) != 0;
    const bool mapped = function.mapped.contains(index);
    const std::string name = absl::StrFormat("BAR %d of device %d at %#x", index, device, base);
    if (size == 0) return base == 0 && !mapped ? "" : name + " does not exist";
    if (base % size != 0) return name + " is not aligned to its size";
    const bool in_window = base >= kWindow && base + size <= kWindow + kWindowSize;
    if (mapped) {
      if (!decodes) return name + " is there though decoding is off";
      if (!in_window) return name + " is outside the window";
      if (function.mapped.at(index) != base) return name + " was left elsewhere";
      if (OverlapsAnother(function, index, base)) return name + " overlaps another";
    } else if (decodes && in_window && !OverlapsAnother(function, index, base)) {
      return name + " is missing";
    }
    // Where it is or wants to be, next to that, and where it was.
    for (const uint64_t address :
         {base - 1, base, base + size / 2, base + size - 1, base + size, function.last_left}) {
      if (std::string what = BrokenByte(address); !what.empty()) return what;
    }
    return "";
  }

  std::map<uint32_t, std::array<uint32_t, 8>> identities_;
};

}  // namespace ringside::testing
