// A machine at rest that others go on from, as often as wanted and at once: a saved one, read and
// checked once, or a paused one of this process (Machine::MakeTemplate).
//
//   ringside::MachineConfig config;
//   config.from = *ringside::MachineTemplate::Load("snap");
//   absl::StatusOr<std::unique_ptr<ringside::Machine>> machine = ringside::Machine::Create(config);
//
// Each has the template's memory but for the pages that it writes, which are its own. What is
// behind its devices is not the template's: each is given disks and networks of its own.
//
// Threads: any. Ownership: those that go on from it share it. Errors: as Machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ringside/export.h"

namespace ringside {

class RINGSIDE_EXPORT MachineTemplate {
 public:
  // Of the directory of a snapshot (Machine::Save), whose files stay as they are for as long as the
  // template lives.
  static absl::StatusOr<std::shared_ptr<const MachineTemplate>> Load(const std::string& directory);
  ~MachineTemplate();
  MachineTemplate(const MachineTemplate&) = delete;
  MachineTemplate& operator=(const MachineTemplate&) = delete;

  uint32_t cpus() const;
  uint64_t memory() const;  // bytes

  // For what is built in Ringside's tree (vmm/machine_state.h); nothing of it is promised.
  struct RINGSIDE_HIDDEN Parts;
  const Parts& parts() const { return *parts_; }
  RINGSIDE_HIDDEN explicit MachineTemplate(std::unique_ptr<const Parts> parts);

 private:
  const std::unique_ptr<const Parts> parts_;
};

}  // namespace ringside
