// The control socket of `ringside run --api-sock` and of `ringside serve`.
//
// Threads: the command's main thread, but for End. Ownership: the machine that Started names
// outlives it, or is told to be over by End.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/api_server.h"
#include "api/machine_control.h"
#include "base/unix_listener.h"
#include "ringside/log.h"

namespace ringside {

class ControlSocket {
 public:
  static absl::StatusOr<std::unique_ptr<ControlSocket>> Create(std::string path,
                                                               const MachineOptions& options,
                                                               LogSink& log);

  ~ControlSocket() { End(); }
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  MachineControl& control() { return *control_; }
  const std::string& path() const { return path_; }
  // Makes the socket; clients wait.
  absl::Status Bind();
  // After that: clients are served from now on.
  absl::Status Serve();
  // Removes it, and waits for what clients have under way: the machine, if there is one, is over.
  // Any thread, one at a time.
  void End();

 private:
  ControlSocket(std::string path, std::unique_ptr<MachineControl> control, LogSink& log)
      : path_(std::move(path)), log_(log), control_(std::move(control)) {}

  const std::string path_;
  LogSink& log_;
  const std::unique_ptr<MachineControl> control_;
  std::optional<UnixListener> listener_;  // between Bind and Serve
  std::unique_ptr<ApiServer> server_;
};

}  // namespace ringside
