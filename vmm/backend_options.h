// What the options of several kinds of disks are made of.
#pragma once

#include <array>

#include "file/file_device.h"
#include "ringside/config.h"
#include "vmm/option_table.h"

namespace ringside {

template <>
struct OptionChoices<CacheMode> {
  static constexpr std::array kAll = {CacheMode::kNone, CacheMode::kWriteback,
                                      CacheMode::kWritethrough, CacheMode::kDirectsync,
                                      CacheMode::kUnsafe};
  static const char* Name(CacheMode mode) { return CacheModeName(mode); }
};

template <>
struct OptionChoices<Engine> {
  static constexpr std::array kAll = {Engine::kAuto, Engine::kIoUring, Engine::kNative,
                                      Engine::kThreads};
  static const char* Name(Engine engine) { return EngineName(engine); }
};

using DiskOption = Option<DiskConfig>;

// A member of the backend, which is the one whose table has the option.
template <auto kMember>
struct InBackend {
  template <typename Config, typename Member>
  static Config ConfigOf(Member Config::*);

  auto& operator()(auto& disk) const {
    return disk.backend.template As<decltype(ConfigOf(kMember))>()->*kMember;
  }
};

template <typename Accessor>
DiskOption ReadOnly(Accessor accessor) {
  return {{.name = "readonly",
           .type = Plain(OptionKind::kSwitch),
           .doc = "whether the guest can only read it"},
          accessor};
}

}  // namespace ringside
