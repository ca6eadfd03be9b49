// Anybody's bytes as a guest's agent, for the clients of the host: what it answers to a command, to
// a PUT and to a GET. Nothing is written outside of the directory that the GET goes to.
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/socket.h>

#include "agent/client.h"
#include "agent/exec_client.h"
#include "agent/tree_writer.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;

void Require(bool holds) {
  if (!holds) std::abort();
}

// "in" is what a guest may fill.
struct Place {
  Place() {
    std::string name = fs::temp_directory_path() / "agent-client-fuzz-XXXXXX";
    Require(mkdtemp(name.data()) != nullptr);
    path = name;
    fs::create_directory(path / "in");
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

// Everything that the agent says is there from the beginning, and then it is gone.
struct Agent {
  explicit Agent(std::string_view bytes) {
    std::array<int, 2> ends;
    Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    ours = UniqueFd(ends[0]);
    its = UniqueFd(ends[1]);
    std::string said;
    Encode(HelloMessage{}, said);
    said.append(bytes);
    Require(send(its.get(), said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()));
    shutdown(its.get(), SHUT_WR);
  }
  absl::StatusOr<AgentChannel> Greet() {
    return AgentChannel::Greet(std::move(ours), {.patience = absl::Seconds(1)});
  }
  UniqueFd ours, its;
};

void Execute(std::string_view bytes) {
  Agent agent(bytes);
  absl::StatusOr<AgentChannel> channel = agent.Greet();
  if (!channel.ok()) return;
  FaultOf of;
  ExecMessage command;
  command.arguments = {"true"};
  absl::StatusOr<ExecClient> client = ExecClient::Start(*std::move(channel), command, of);
  while (client.ok()) {
    for (;;) {
      const auto event = client->Next();
      if (!event.ok()) return;
      if (!*event) break;
      Require((*event)->data.size() <= kMostData && (*event)->exit.code <= 255);
      client->SendInput(std::string_view("x").substr(0, client->input_room()));
    }
    Require(client->input_room() <= kStdinWindow);
    if (!client->Turn(client->events(true)).ok()) return;
  }
}

void Put(std::string_view bytes) {
  Agent agent(bytes);
  absl::StatusOr<AgentChannel> channel = agent.Greet();
  if (!channel.ok()) return;
  AgentClient client(*std::move(channel));
  TreeReader tree;
  tree.OpenStream(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)), 0600);
  (void)client.Put(tree, "/there", [](uint64_t, uint64_t) {});
  (void)client.Ping();
}

void Get(std::string_view bytes) {
  Agent agent(bytes);
  absl::StatusOr<AgentChannel> channel = agent.Greet();
  if (!channel.ok()) return;
  AgentClient client(*std::move(channel));
  const Place place;
  {
    TreeWriter tree;
    Require(!tree.OpenToGet((place.path / "in").string(), "/there", true));
    (void)client.Get("/there", true,
                     [&](const AgentFrame& frame) { return StatusOfFault(tree.Take(frame)); });
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(place.path)) {
    Require(entry.path() == place.path / "in");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(place.path / "in")) {
    Require(entry.path().filename() == "there" && !entry.is_symlink());
  }
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::array kWhat = {ringside::Execute, ringside::Put, ringside::Get};
  kWhat[data[0] % kWhat.size()](bytes);
  return 0;
}
