// Where a disk's bytes are: the configuration of any backend, as a value.
//
// A configuration is an aggregate with these members, the last if it has something to announce:
//
//   BackendDescription Describe() const;
//   absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const;
//   absl::Status Announce(const std::string& disk, const BlockContext& context) const;
//
// A filter holds what is below it in a member `BlockBackend backend`, which describes and announces
// itself where the filter does not.
//
// Threads: one.
#pragma once

#include <any>
#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "block/block_device.h"

namespace ringside {

class NvmeControllers;

// What backends are opened with.
struct BlockContext {
  Logger log;
  NvmeControllers& nvme;  // of all disks of the machine
};

struct BackendDescription {
  std::string name;  // in messages and statistics: a path, "null", "nvme://0000:00:04.0/1"
  // What it takes of the host for itself: files by path, PCI devices by address.
  std::vector<std::string> files;
  std::vector<std::string> pci_devices;
  bool needs_uring = false;  // in the waiter of its I/O threads
};

class BlockBackend {
 public:
  template <typename Config>
    requires(!std::same_as<Config, BlockBackend> &&
             requires(const Config& config, const BlockContext& context) { config.Open(context); })
  // NOLINTNEXTLINE(google-explicit-constructor): a configuration is a backend.
  BlockBackend(Config config) : config_(std::move(config)), calls_(&kCalls<Config>) {}

  // Null if it is another.
  template <typename Config>
  Config* As() {
    return std::any_cast<Config>(&config_);
  }
  template <typename Config>
  const Config* As() const {
    return std::any_cast<Config>(&config_);
  }

  BackendDescription Describe() const { return calls_->describe(config_); }
  // All disks' before any is opened: what they have to agree on. `disk`: its name in messages.
  absl::Status Announce(const std::string& disk, const BlockContext& context) const {
    return calls_->announce(config_, disk, context);
  }
  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const {
    return calls_->open(config_, context);
  }

 private:
  struct Calls {
    BackendDescription (*describe)(const std::any&);
    absl::Status (*announce)(const std::any&, const std::string&, const BlockContext&);
    absl::StatusOr<std::unique_ptr<BlockDevice>> (*open)(const std::any&, const BlockContext&);
  };

  // Of a configuration, or else of what it holds.
  template <typename Config>
  static BackendDescription DescribeAny(const std::any& any) {
    const auto& config = *std::any_cast<Config>(&any);
    if constexpr (requires { config.Describe(); })
      return config.Describe();
    else
      return config.backend.Describe();
  }
  template <typename Config>
  static absl::Status AnnounceAny(const std::any& any, const std::string& disk,
                                  const BlockContext& context) {
    const auto& config = *std::any_cast<Config>(&any);
    if constexpr (requires { config.Announce(disk, context); }) {
      return config.Announce(disk, context);
    } else if constexpr (requires { config.backend; }) {
      return config.backend.Announce(disk, context);
    }
    return absl::OkStatus();
  }
  template <typename Config>
  static absl::StatusOr<std::unique_ptr<BlockDevice>> OpenAny(const std::any& any,
                                                              const BlockContext& context) {
    return std::any_cast<Config>(&any)->Open(context);
  }
  template <typename Config>
  static constexpr Calls kCalls = {DescribeAny<Config>, AnnounceAny<Config>, OpenAny<Config>};

  std::any config_;
  const Calls* calls_;
};

}  // namespace ringside
