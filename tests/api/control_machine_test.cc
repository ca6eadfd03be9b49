// A control socket over a machine whose guest is at work: clients and its embedder at once, and its
// end with calls under way.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "api/api_server.h"
#include "http/http_client.h"
#include "tests/support/directories.h"
#include "tests/support/vmm/pausing_machine.h"
#include "tests/support/vmm/recording_events.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::kWaitLimit;
using testing::SpinUntil;

class ControlMachineTest : public testing::PausingMachine {
 protected:
  // A machine that runs, with a socket.
  void Begin(const std::string& command_line) { Begin(Config(command_line)); }
  void Begin(MachineConfig config) {
    MachineOptions options;
    options.machine.vsock = config.vsock;  // by which clients reach the guest's agent
    control_ = *MachineControl::Create(options);
    config.io_threads = {{.id = "a"}, {.id = "b"}};
    config.events = control_.get();
    machine_ = Make(config);
    server_ = *ApiServer::Start(*UnixListener::Bind(socket_), *control_, nullptr);
    ASSERT_TRUE(machine_->Start().ok());
    control_->Started(*machine_);
  }
  HttpResponse Call(std::string_view method, const std::string& target,
                    std::string_view body = {}) const {
    absl::StatusOr<HttpClient> client = HttpClient::Connect(socket_, kWaitLimit);
    EXPECT_TRUE(client.ok()) << client.status();
    if (!client.ok()) return {};
    const auto response = client->Call(method, "/ringside/v1" + target, body);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : HttpResponse{};
  }
  // All events from the first on; of a machine that ends.
  std::string AllEvents() const {
    std::string events;
    absl::StatusOr<HttpClient> client = HttpClient::Connect(socket_, kWaitLimit);
    EXPECT_TRUE(client.ok());
    const absl::Status followed =
        client->Follow("/ringside/v1/events?from=0", [&](std::string_view text) {
          events += text;
          return true;
        });
    EXPECT_TRUE(followed.ok()) << followed;
    return events;
  }
  // Calls at random, until `over`; what fails is not the server's fault.
  void BeAClient(unsigned seed, const std::atomic<bool>& over) const {
    std::mt19937 random(seed);
    const std::array<std::array<const char*, 3>, 12> calls = {{
        {"POST", "/machine/pause", R"({"patience": "5ms"})"},
        {"POST", "/machine/resume", ""},
        {"PUT", "/devices/disk0/queues/0?wait=0", R"({"iothread": "a"})"},
        {"PUT", "/devices/disk0/queues/0", R"({"iothread": "b", "patience": "10ms"})"},
        {"PUT", "/devices/disk0/trace", R"({"on": true})"},
        {"PUT", "/devices/disk0/trace?wait=0", R"({"on": false})"},
        {"PATCH", "/iothreads/a", R"({"poll": "fixed", "max": "50us"})"},
        {"PATCH", "/iothreads/b?wait=0", R"({"poll": "cost"})"},
        {"GET", "/statistics", ""},
        {"GET", "/iothreads/a/explanation?patience=10ms", ""},
        {"GET", "/devices/disk0/latencies?newest=1", ""},
        {"GET", "/operations", ""},
    }};
    while (!over) {
      const auto& [method, target, body] = calls[random() % calls.size()];
      const int status = Call(method, target, body).status;
      EXPECT_NE(status, 500) << method << ' ' << target;
      EXPECT_NE(status, 400) << method << ' ' << target;
    }
  }
  // The same by the library.
  void BeAnEmbedder(unsigned seed, const std::atomic<bool>& over) {
    std::mt19937 random(seed);
    while (!over) {
      switch (random() % 5) {
        case 0:
          (void)machine_->Pause(absl::Milliseconds(5));
          break;
        case 1:
          machine_->Resume();
          break;
        case 2:
          (void)machine_->MoveQueue("disk0", 0, random() % 2 == 0 ? "a" : "b", absl::Seconds(1));
          break;
        case 3:
          (void)machine_->SetTrace("disk0", random() % 2 == 0, absl::Seconds(1));
          break;
        default:
          (void)machine_->Statistics();
      }
    }
  }

  const testing::TempDirectory directory_;
  const std::string socket_ = directory_ / "vm.sock";
  std::unique_ptr<MachineControl> control_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<ApiServer> server_;
};

TEST_F(ControlMachineTest, TwoEmbeddersAndTwoClientsAtOnce) {
  const char* const given = std::getenv("RINGSIDE_RUNTIME");
  absl::Duration runtime = absl::Milliseconds(1500);
  if (given != nullptr) {
    ASSERT_TRUE(absl::ParseDuration(given, &runtime));
  }
  Begin("rw=randrw verify=1 size=1M qd=16 runtime=60s wait=irq");
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 2; ++seed) {
    threads.emplace_back([&, seed] { BeAClient(seed, over); });
    threads.emplace_back([&, seed] { BeAnEmbedder(seed, over); });
  }
  absl::SleepFor(runtime);
  over = true;
  for (std::thread& thread : threads) thread.join();
  machine_->Resume();
  ExpectProgress(*machine_);
  EXPECT_THAT(console_.Output(), ::testing::Not(HasSubstr("FAIL")));
  machine_->Stop();
  machine_->Wait();
}

TEST_F(ControlMachineTest, WhatClientsHaveUnderWayEndsWithTheMachine) {
  Begin("rw=randread qd=4 runtime=60s wait=irq");
  Event come_back;
  ExpectProgress(*machine_);
  // The I/O thread does not come to the move before the machine ends.
  ThreadOf(*machine_, "a").Begin([&] { come_back.Wait(); });
  const std::string body = R"({"iothread": "b", "patience": "1h"})";
  EXPECT_EQ(Call("PUT", "/devices/disk0/queues/0?wait=1ms", body).status, 202);
  EXPECT_EQ(Call("POST", "/machine/stop").status, 204);
  come_back.Notify();
  machine_->Wait();
  server_.reset();
}

// Whichever comes first, its client is told that the machine is paused, and may copy its disks.
TEST_F(ControlMachineTest, ASaveDoesNotEndThePauseOfAnotherClient) {
  Begin("rw=randread qd=4 runtime=60s wait=irq");
  ExpectProgress(*machine_);
  Event come_back;
  // The I/O thread does not come to its rest before both have asked for that.
  ThreadOf(*machine_, "a").Begin([&] { come_back.Wait(); });
  EXPECT_EQ(Call("POST", "/machine/pause?wait=0").status, 202);
  const std::string body = R"({"directory": ")" + directory_ / "snap" + R"("})";
  EXPECT_EQ(Call("POST", "/machine/save?wait=20ms", body).status, 202);
  come_back.Notify();
  for (const char* const operation : {"/operations/1", "/operations/2"}) {
    EXPECT_TRUE(SpinUntil([&] {
      return Call("GET", std::string(operation) + "?wait=1s").body.find("done") !=
             std::string::npos;
    }));
  }
  EXPECT_THAT(Call("GET", "/machine").body, HasSubstr(R"("state":"paused")"));
  EXPECT_EQ(Call("POST", "/machine/resume").status, 204);
  ExpectProgress(*machine_);
  machine_->Stop();
  machine_->Wait();
}

// It is answered at once, though a server that the machine needs may take its time.
TEST_F(ControlMachineTest, AStopWhileTheMachineIsBeingMadeIsNotLost) {
  control_ = *MachineControl::Create({});
  machine_ = Make(Config("rw=randread qd=4 runtime=60s wait=irq"));
  control_->Stop();
  ASSERT_TRUE(machine_->Start().ok());
  control_->Started(*machine_);
  EXPECT_TRUE(testing::WaitForFd(machine_->end_fd(), POLLIN));
  machine_->Stop();
  EXPECT_EQ(machine_->Wait().kind, EndKind::kStopped);
}

TEST_F(ControlMachineTest, EventsAreKeptForThoseWhoComeLate) {
  Begin("rw=randread qd=4 runtime=60s wait=irq");
  EXPECT_EQ(Call("POST", "/machine/pause").status, 204);
  EXPECT_THAT(Call("GET", "/machine").body, HasSubstr(R"("state":"paused")"));
  EXPECT_EQ(Call("POST", "/machine/stop").status, 204);
  machine_->Wait();
  EXPECT_THAT(Call("GET", "/machine").body, HasSubstr(R"("state":"ended")"));
  const std::string events = AllEvents();
  EXPECT_THAT(events, HasSubstr(R"({"event":"started","sequence":1,)"));
  EXPECT_THAT(events, HasSubstr(R"({"event":"paused",)"));
  EXPECT_THAT(events, ::testing::EndsWith("\"detail\":\"stopped\",\"count\":1}\n"));
}

// As one whose network's server does not run in the end: another is made in its place.
TEST_F(ControlMachineTest, AMachineThatNeverStartsLeavesTheEventsToTheNext) {
  control_ = *MachineControl::Create({});
  testing::RecordingEvents events;
  control_->PassOn(&events);
  MachineConfig config = Config("rw=randread qd=4 runtime=60s wait=irq");
  config.events = control_.get();
  Make(config).reset();
  EXPECT_EQ(control_->state(), ControlState::kNotStarted);
  control_->NotStarted(absl::FailedPreconditionError("a server does not run"));
  server_ = *ApiServer::Start(*UnixListener::Bind(socket_), *control_, nullptr);
  EXPECT_EQ(control_->state(), ControlState::kNotStarted);
  machine_ = Make(config);
  ASSERT_TRUE(machine_->Start().ok());
  control_->Started(*machine_);
  EXPECT_THAT(Call("GET", "/machine").body, HasSubstr(R"("state":"running")"));
  // It is told of the end, which comes after it has begun to follow.
  std::string followed;
  absl::StatusOr<HttpClient> client = HttpClient::Connect(socket_, kWaitLimit);
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(client
                  ->Follow("/ringside/v1/events?from=0",
                           [&](std::string_view text) {
                             if (followed.empty()) machine_->Stop();
                             followed += text;
                             return true;
                           })
                  .ok());
  EXPECT_THAT(followed, ::testing::StartsWith(R"({"event":"started","sequence":1,)"));
  EXPECT_THAT(followed, ::testing::EndsWith("\"detail\":\"stopped\",\"count\":1}\n"));
  machine_->Wait();
  EXPECT_EQ(events.Of(EventKind::kEnded).size(), 1u);
}

// Between its making and its start, as by the loss of its memory.
TEST_F(ControlMachineTest, AnEndBeforeTheStartIsTold) {
  control_ = *MachineControl::Create({});
  testing::RecordingEvents events;
  control_->PassOn(&events);
  MachineConfig config = Config("rw=randread qd=4 runtime=60s wait=irq");
  config.events = control_.get();
  machine_ = Make(config);
  machine_->Stop();
  ASSERT_TRUE(machine_->Start().ok());
  control_->Started(*machine_);
  machine_->Wait();
  server_ = *ApiServer::Start(*UnixListener::Bind(socket_), *control_, nullptr);
  EXPECT_THAT(Call("GET", "/machine").body, HasSubstr(R"("state":"ended")"));
  EXPECT_THAT(AllEvents(), ::testing::EndsWith("\"detail\":\"stopped\",\"count\":1}\n"));
  EXPECT_EQ(events.Of(EventKind::kEnded).size(), 1u);
}

// Its vsock's driver is not there yet, so nobody takes the connection.
TEST_F(ControlMachineTest, TheEndEndsACallThatTheGuestDoesNotAnswer) {
  MachineConfig config = Config("rw=randread qd=4 runtime=60s wait=irq");
  config.vsock = VsockConfig{.cid = 3, .path = directory_ / "vsock"};
  Begin(config);
  EXPECT_EQ(Call("GET", "/guest/agent?wait=200ms").status, 202);
  machine_->Stop();
  machine_->Wait();
  const int64_t before_ns = MonotonicNs();
  server_.reset();
  EXPECT_LT(MonotonicNs() - before_ns, 15'000'000'000) << "the call's own patience is 30 s";
}

// Whoever follows and does not read is let go of, and the machine does not wait for it.
TEST_F(ControlMachineTest, NobodyWaitsForAFollowerWhoDoesNotRead) {
  Begin("rw=randread qd=4 runtime=60s wait=irq");
  absl::StatusOr<HttpClient> client = HttpClient::Connect(socket_, kWaitLimit);
  ASSERT_TRUE(client.ok());
  size_t taken = 0;
  const absl::Status followed =
      client->Follow("/ringside/v1/events?from=0", [&](std::string_view text) {
        if (taken == 0) {
          // More than sockets and the feed hold.
          for (int i = 0; i < 8000; ++i) control_->Happened({.detail = std::string(200, 'x')});
          ExpectProgress(*machine_);
        }
        taken += text.size();
        return true;
      });
  EXPECT_FALSE(followed.ok());
  EXPECT_LT(taken, MachineControl::kMostWaiting + (1 << 20));
  machine_->Stop();
  machine_->Wait();
}

}  // namespace
}  // namespace ringside
