// The control socket of a machine: the calls of api/api_call.h, served on a Unix socket.
//
// The thread that serves it sees no guest memory, and waits for nothing but its clients; calls that
// may take long have threads of their own (api/operations.h), which are started when there is one.
// Who may connect, and what bounds clients, is the HTTP server's (http/http_server.h).
//
// Threads: any. Ownership: the control outlives it, and so does the machine that it has been told
// of. The destructor waits for operations that run: end the machine first.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "api/api_call.h"
#include "api/machine_control.h"
#include "api/operations.h"
#include "base/log.h"
#include "http/http_router.h"
#include "http/http_server.h"
#include "ringside/log.h"

namespace ringside {

class ApiServer {
 public:
  static absl::StatusOr<std::unique_ptr<ApiServer>> Start(UnixListener listener,
                                                          MachineControl& control, LogSink* log);
  // Who has called and waits is answered.
  ~ApiServer() { operations_.Stop(); }

 private:
  ApiServer(MachineControl& control, Logger log);

  void Route(const ApiCall& call);
  void Serve(const ApiCall& call, HttpCall http);
  void ServeOperations(const ApiCall& call, const ApiArguments& given, HttpAnswer answer);
  void ServeMetrics(HttpAnswer answer);

  MachineControl& control_;
  HttpRouter router_;
  // The server goes first: nobody calls what is no more.
  Operations operations_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace ringside
