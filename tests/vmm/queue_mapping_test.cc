// I/O threads by name, and queues mapped to them.
#include "vmm/queue_mapping.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "base/status.h"
#include "tests/support/poll/silent_ring.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::SpinUntil;
using Map = std::vector<std::string>;

std::string ErrorOf(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsNotFound(status)) << status;
  return std::string(Message(status));
}

std::unique_ptr<IoThreads> Named(const std::vector<std::string>& names) {
  std::vector<IoThreadConfig> configs;
  for (const std::string& name : names) configs.push_back({.id = name});
  return *IoThreads::Create(configs);
}

// ---- Names ----

TEST(IoThreadsTest, WithoutAnyThereIsOne) {
  const auto threads = *IoThreads::Create({});
  EXPECT_EQ(threads->names(), std::vector<std::string>{"io0"});
}

TEST(IoThreadsTest, ThoseWithoutANameGetTheNextThatIsFree) {
  const auto threads = Named({"", "io2", "a", "", "", "io0"});
  EXPECT_EQ(threads->names(), (std::vector<std::string>{"io1", "io2", "a", "io3", "io4", "io0"}));
}

TEST(IoThreadsTest, SaysWhatCannotBe) {
  const auto error = [](const std::vector<IoThreadConfig>& configs) {
    return ErrorOf(IoThreads::Create(configs).status());
  };
  EXPECT_THAT(error({{.id = "a"}, {.id = "a"}}), HasSubstr("two I/O threads are called 'a'"));
  EXPECT_THAT(error(std::vector<IoThreadConfig>(65)),
              HasSubstr("iothreads: there are 65, and a machine has at most 64"));
  EXPECT_THAT(error({{.id = "a", .cpus = {9000}}}),
              HasSubstr("I/O thread 'a': CPU 9000 does not exist: this host has 0 to "));
}

TEST(IoThreadsTest, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto threads = Named({"fast", "slow"});
  EXPECT_TRUE(threads->CheckName("slow").ok());
  EXPECT_EQ(ErrorOf(threads->CheckName("sloww")),
            "I/O thread 'sloww' is unknown; did you mean 'slow'?");
}

TEST(IoThreadsTest, EachIsKeptOnItsCpus) {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &allowed)) --last;
  const std::vector<IoThreadConfig> configs = {{.id = "free"}, {.id = "kept", .cpus = {last}}};
  const auto threads = *IoThreads::Create(configs);
  ASSERT_TRUE(threads->Start().ok());
  const auto set_of = [&](const std::string& name) {
    cpu_set_t set;
    (*threads->Find(name))->RunAndWait([&] { sched_getaffinity(0, sizeof set, &set); });
    return set;
  };
  const cpu_set_t free = set_of("free"), kept = set_of("kept");
  EXPECT_TRUE(CPU_EQUAL(&free, &allowed));
  EXPECT_EQ(CPU_COUNT(&kept), 1);
  EXPECT_TRUE(CPU_ISSET(last, &kept));
  EXPECT_EQ(threads->Statistics()[1].cpus, std::vector<int>{last});
}

TEST(IoThreadsTest, PollingIsChangedWhileTheyRunAndToldOf) {
  const std::vector<IoThreadConfig> configs = {
      {.id = "a", .tuning = {.poll = {}, .signalling = Signalling::kBatched}}};
  const auto threads = *IoThreads::Create(configs);
  ASSERT_TRUE(threads->Start().ok());
  EXPECT_EQ(threads->Statistics()[0].poll.kind, PollKind::kNever);
  EXPECT_EQ(threads->Statistics()[0].signal, "batched");
  EXPECT_EQ(threads->Statistics()[0].spins, 0u);
  ASSERT_TRUE(threads->SetPoll("a", {.kind = PollKind::kFixed, .max_ns = 1000}).ok());
  const testing::SilentRing ring(**threads->Find("a"));
  ASSERT_TRUE(SpinUntil([&] { return threads->Statistics()[0].spins > 0; }));
  const IoThreadStatistics now = threads->Statistics()[0];
  EXPECT_EQ(now.poll.kind, PollKind::kFixed);
  EXPECT_EQ(now.poll.max_ns, 1000);
  EXPECT_GT(now.sleep_cpu_ns, 0u) << "measured before the first look";
}

TEST(IoThreadsTest, OneIsAddedAndRemovedWhileTheyRun) {
  const auto threads = Named({"a"});
  ASSERT_TRUE(threads->Start().ok());
  const auto nobody = [](const IoThread&) { return false; };
  EXPECT_EQ(*threads->Add({.id = "b"}), "b");
  EXPECT_EQ(*threads->Add({}), "io0");
  EXPECT_THAT(ErrorOf(threads->Add({.id = "b"}).status()), HasSubstr("two I/O threads"));
  {
    const auto handle = *threads->Find("b");
    EXPECT_TRUE(absl::IsFailedPrecondition(threads->Remove("b", nobody).status()));
  }
  const auto somebody = [](const IoThread&) { return true; };
  EXPECT_TRUE(absl::IsFailedPrecondition(threads->Remove("b", somebody).status()));
  {
    const auto last = threads->Remove("b", nobody);
    ASSERT_TRUE(last.ok());
    int runs = 0;
    (*last)->RunAndWait([&] { ++runs; });
    EXPECT_EQ(runs, 1);
  }
  EXPECT_EQ(threads->names(), (std::vector<std::string>{"a", "io0"}));
  EXPECT_TRUE(absl::IsNotFound(threads->Remove("b", nobody).status()));
}

TEST(IoThreadsTest, SleepInWhatTheyAreToldTo) {
  using Waiter = IoThreadConfig::Waiter;
  const std::vector<IoThreadConfig> configs = {{.id = "a", .waiter = Waiter::kEpoll},
                                               {.id = "b", .waiter = Waiter::kAuto}};
  const auto threads = *IoThreads::Create(configs);
  ASSERT_TRUE(threads->Start().ok());
  EXPECT_EQ(threads->Statistics()[0].waiter, "epoll");
  EXPECT_EQ(threads->Statistics()[1].waiter, threads->uring_status().ok() ? "io_uring" : "epoll");
}

// ---- Mappings ----

TEST(QueueMappingTest, WithoutSharesAllAreOnTheUsualThread) {
  const auto threads = Named({"a", "b"});
  EXPECT_EQ(*MapQueues({}, 3, *threads, "b"), Map({"b", "b", "b"}));
}

TEST(QueueMappingTest, OfNamesAloneGoesRound) {
  const auto threads = Named({"a", "b", "c"});
  EXPECT_EQ(*MapQueues(std::vector<QueueShare>{{"c", {}}, {"a", {}}}, 5, *threads, "b"),
            Map({"c", "a", "c", "a", "c"}));
  EXPECT_EQ(*MapQueues(std::vector<QueueShare>{{"c", {}}, {"a", {}}}, 1, *threads, "b"),
            Map({"c"}));
}

TEST(QueueMappingTest, WithQueuesIsAsItSays) {
  const auto threads = Named({"a", "b", "c"});
  EXPECT_EQ(*MapQueues(std::vector<QueueShare>{{"b", {0, 3}}, {"a", {2, 1}}}, 4, *threads, "c"),
            Map({"b", "a", "a", "b"}));
}

TEST(QueueMappingTest, SaysWhatIsWrong) {
  const auto threads = Named({"a", "b"});
  const auto error = [&](const std::vector<QueueShare>& shares) {
    return ErrorOf(MapQueues(shares, 2, *threads, "a").status());
  };
  EXPECT_THAT(error({{"aa", {}}}), HasSubstr("I/O thread 'aa' is unknown; did you mean 'a'?"));
  EXPECT_THAT(error({{"a", {}}, {"a", {}}}), HasSubstr("I/O thread 'a' is named twice"));
  EXPECT_THAT(error({{"a", {0}}, {"a", {1}}}), HasSubstr("I/O thread 'a' is named twice"));
  EXPECT_THAT(error({{"a", {0, 1}}, {"b", {1}}}), HasSubstr("queue 1 has two I/O threads"));
  EXPECT_THAT(error({{"a", {0, 1, 1}}}), HasSubstr("queue 1 has two I/O threads"));
  EXPECT_THAT(error({{"b", {1}}}), HasSubstr("queue 0 has no I/O thread"));
  EXPECT_THAT(error({{"a", {0, 1}}, {"b", {2}}}),
              HasSubstr("queue 2 of I/O thread 'b' does not exist: there are 0 to 1"));
  EXPECT_THAT(error({{"a", {0, 1}}, {"b", {}}}), HasSubstr("some I/O threads have queues"));
}

}  // namespace
}  // namespace ringside
