#include "command/control_socket.h"

#include <utility>

#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<ControlSocket>> ControlSocket::Create(std::string path,
                                                                     const MachineOptions& options,
                                                                     LogSink& log) {
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<MachineControl> control,
                            MachineControl::Create(options));
  return std::unique_ptr<ControlSocket>(
      new ControlSocket(std::move(path), std::move(control), log));
}

absl::Status ControlSocket::Bind() {
  RINGSIDE_ASSIGN_OR_RETURN(listener_, UnixListener::Bind(path_));
  return absl::OkStatus();
}

absl::Status ControlSocket::Serve() {
  RINGSIDE_ASSIGN_OR_RETURN(server_, ApiServer::Start(*std::move(listener_), *control_, &log_));
  return absl::OkStatus();
}

void ControlSocket::End() {
  control_->GiveUp();
  server_.reset();
  listener_.reset();
}

}  // namespace ringside
