// Serves an NvmeModel over vfio-user until SIGTERM, as a program of its own: for tests that kill it
// and start it again, and to try things by hand. What a client must not have done is told at the
// end, and then the exit code is 1.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "tests/support/vfio/vfio_user_server.h"

namespace ringside::testing {
namespace {

struct Options {
  std::string socket;
  std::string image;
  uint32_t namespaces = 1;
  NvmeModelNamespace space;
  NvmeModelConfig model;
};

void AddOptions(CLI::App& app, Options& options) {
  app.add_option("socket", options.socket, "where to listen")->required();
  app.add_option("--namespaces", options.namespaces, "how many there are, from 1");
  app.add_option("--blocks", options.space.blocks, "of each namespace");
  app.add_option("--block-size", options.space.block_size, "in bytes");
  app.add_option("--image", options.image,
                 "file of namespace 1; of the others it is followed by .2, .3, ...");
  app.add_option("--queues", options.model.queues, "pairs for I/O");
  app.add_option("--service-ns", options.model.service_ns, "nanoseconds that a command takes");
  app.add_flag("--shadow-doorbells", options.model.shadow_doorbells);
  app.add_flag("!--no-write-cache", options.model.write_cache,
               "what is written is durable, as far as the image is");
  app.add_flag("--busy", options.model.busy, "its thread never rests");
}

int Serve(Options& options) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);

  NvmeModelConfig& config = options.model;
  config.namespaces.assign(options.namespaces, options.space);
  for (size_t i = 0; i < config.namespaces.size() && !options.image.empty(); ++i) {
    config.namespaces[i].path = options.image + (i == 0 ? "" : "." + std::to_string(i + 1));
  }
  config.vectors = static_cast<uint16_t>(config.queues + 1);
  config.iova_ranges = kAllIova;
  config.keep_log = false;
  NvmeModel model(config);
  std::vector<std::string> violations;
  {
    const VfioUserServer server(options.socket, model);
    std::puts("ready");
    std::fflush(stdout);
    int signal;
    sigwait(&ends, &signal);
    violations = server.violations();
  }
  for (const std::string& each : model.violations()) violations.push_back(each);
  for (const std::string& each : violations) std::fprintf(stderr, "violation: %s\n", each.c_str());
  return violations.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ringside::testing

int main(int argc, char** argv) {
  CLI::App app("Serves a model of an NVMe controller over vfio-user");
  ringside::testing::Options options;
  ringside::testing::AddOptions(app, options);
  CLI11_PARSE(app, argc, argv);
  return ringside::testing::Serve(options);
}
