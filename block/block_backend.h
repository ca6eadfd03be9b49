// The way from a BlockBackend (ringside/config.h), which is the configuration of any backend, to
// the device that it configures.
//
// A configuration of this tree's own is an aggregate with these members, the last if it has
// something to announce:
//
//   BackendDescription Describe() const;
//   absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext& context) const;
//   absl::Status Announce(const std::string& disk, const BlockContext& context) const;
//
// A filter holds what is below it in a member `BlockBackend backend`, which describes and announces
// itself where the filter does not. The configurations that embedders see have no functions: the
// folder that serves one defines its constructor of BlockBackend, and says there how it is opened.
//
// Threads: one.
#pragma once

#include <any>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "block/block_device.h"
#include "ringside/config.h"

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
  // Segments of requests may point anywhere; else only to what MapMemory was told of.
  bool takes_any_memory = true;
};

struct BackendCalls {
  BackendDescription (*describe)(const std::any& config);
  // All disks' before any is opened: what they have to agree on. `disk`: its name in messages.
  absl::Status (*announce)(const std::any& config, const std::string& disk,
                           const BlockContext& context);
  absl::StatusOr<std::unique_ptr<BlockDevice>> (*open)(const std::any& config,
                                                       const BlockContext& context);
};

// The functions of a configuration that has them as members, or else of the backend it holds.
template <typename Config>
struct MemberFunctions {
  static BackendDescription Describe(const Config& config) {
    if constexpr (requires { config.Describe(); })
      return config.Describe();
    else
      return config.backend.Describe();
  }
  static absl::Status Announce(const Config& config, const std::string& disk,
                               const BlockContext& context) {
    if constexpr (requires { config.Announce(disk, context); })
      return config.Announce(disk, context);
    else if constexpr (requires { config.backend; })
      return config.backend.Announce(disk, context);
    else
      return absl::OkStatus();
  }
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const Config& config,
                                                           const BlockContext& context) {
    return config.Open(context);
  }
};

// `Functions` has static functions as MemberFunctions, Announce if there is something to announce.
template <typename Config, typename Functions = MemberFunctions<Config>>
inline constexpr BackendCalls kBackendCalls = {
    .describe =
        [](const std::any& config) { return Functions::Describe(*std::any_cast<Config>(&config)); },
    .announce =
        [](const std::any& any, const std::string& disk, const BlockContext& context) {
          const auto& config = *std::any_cast<Config>(&any);
          if constexpr (requires { Functions::Announce(config, disk, context); })
            return absl::Status(Functions::Announce(config, disk, context));
          else
            return absl::OkStatus();
        },
    .open =
        [](const std::any& config, const BlockContext& context) {
          return Functions::Open(*std::any_cast<Config>(&config), context);
        }};

template <typename Config>
  requires(!std::same_as<Config, BlockBackend> &&
           requires(const Config& config, const BlockContext& context) { config.Open(context); })
BlockBackend::BlockBackend(Config config)
    : config_(std::move(config)), calls_(&kBackendCalls<Config>) {}

}  // namespace ringside
