// What may take long: who is answered when, with what, and how much of it there can be.
#include "api/operations.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/status.h"
#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SpinUntil;

HttpResponse Respond(const absl::StatusOr<Json>& result) {
  if (!result.ok()) {
    return {.status = result.status().code() == absl::StatusCode::kNotFound ? 404 : 503,
            .body = std::string(Message(result.status()))};
  }
  // A number stands for as many bytes, which take less time to make.
  if (result->is_number()) return {.body = std::string(result->get<size_t>(), 'x')};
  return {.status = result->is_null() ? 204 : 200, .body = result->dump()};
}

// Keeps what clients are answered, by ticket.
class Answers final : public HttpAnswerTaker {
 public:
  void TakeReply(uint64_t ticket, HttpReply reply) override {
    const MutexLock lock(mutex_);
    EXPECT_FALSE(responses_.contains(ticket));
    responses_[ticket] = std::get<HttpResponse>(std::move(reply));
  }
  void WakeFollower(uint64_t) override {}
  bool Has(uint64_t ticket) {
    const MutexLock lock(mutex_);
    return responses_.contains(ticket);
  }
  HttpResponse Wait(uint64_t ticket) {
    EXPECT_TRUE(SpinUntil([&] { return Has(ticket); }));
    const MutexLock lock(mutex_);
    return responses_[ticket];
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, HttpResponse> responses_ ABSL_GUARDED_BY(mutex_);
};

class OperationsTest : public ::testing::Test {
 protected:
  // Returns the ticket of its answer.
  uint64_t Begin(Operations::Work work, absl::Duration wait = absl::InfiniteDuration(),
                 Operations::Lane lane = Operations::Lane::kMachine) {
    operations_->Begin("work", lane, std::move(work), wait, HttpAnswer(answers_, ++tickets_));
    return tickets_;
  }
  uint64_t Await(uint64_t id, absl::Duration wait = absl::InfiniteDuration()) {
    operations_->Await(id, wait, HttpAnswer(answers_, ++tickets_));
    return tickets_;
  }
  // Runs until it is released.
  Operations::Work Held() {
    return [this]() -> absl::StatusOr<Json> {
      ++running_;
      release_.WaitOrAbort();
      return Json("released");
    };
  }

  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
  uint64_t tickets_ = 0;
  std::atomic<size_t> running_{0};
  BoundedEvent release_;
  testing::RecordingLog log_;
  std::unique_ptr<Operations> operations_ =
      std::make_unique<Operations>("/operations/", Respond, Logger(&log_));
};

TEST_F(OperationsTest, WhatEndsSoonIsAnsweredWithItsResult) {
  EXPECT_EQ(answers_->Wait(Begin([] { return Json("done"); })).body, "\"done\"");
  EXPECT_EQ(answers_->Wait(Begin([] { return Json(); })).status, 204);
  EXPECT_EQ(answers_->Wait(Begin([] { return absl::NotFoundError("gone"); })).status, 404);
}

TEST_F(OperationsTest, WhoDoesNotWaitIsToldOfAnOperationHoweverSoonItEnds) {
  for (uint64_t id = 1; id <= 200; ++id) {
    const uint64_t ticket = Begin([] { return Json("done"); }, absl::ZeroDuration());
    EXPECT_EQ(answers_->Wait(ticket).status, 202);
    answers_->Wait(Await(id));  // not so many at once that one is refused
  }
}

TEST_F(OperationsTest, WhatTakesLongIsAnsweredWithWhereToAsk) {
  const HttpResponse accepted = answers_->Wait(Begin(Held(), absl::Milliseconds(1)));
  EXPECT_EQ(accepted.status, 202);
  ASSERT_EQ(accepted.fields.size(), 1U);
  EXPECT_EQ(accepted.fields[0].name + ": " + accepted.fields[0].value, "Location: /operations/1");
  ASSERT_TRUE(SpinUntil([&] { return running_ == 1; }));
  EXPECT_EQ(answers_->Wait(Await(1, absl::ZeroDuration())).body,
            R"({"id":1,"call":"work","state":"running"})");
  const uint64_t ticket = Await(1);
  EXPECT_FALSE(answers_->Has(ticket));
  release_.Notify();
  EXPECT_EQ(answers_->Wait(ticket).body,
            R"({"id":1,"call":"work","state":"done","result":"released"})");
}

TEST_F(OperationsTest, HowFarItIsIsToldWhileItRuns) {
  const auto progress = std::make_shared<OperationProgress>();
  operations_->Begin("work", Operations::Lane::kMachine, Held(), absl::ZeroDuration(),
                     HttpAnswer(answers_, ++tickets_), progress);
  ASSERT_TRUE(SpinUntil([&] { return running_ == 1; }));
  EXPECT_EQ(answers_->Wait(Await(1, absl::ZeroDuration())).body,
            R"({"id":1,"call":"work","state":"running"})");
  progress->Report(5, 7);
  const std::string told =
      R"({"id":1,"call":"work","state":"running","progress":{"done":5,"of":7}})";
  EXPECT_EQ(answers_->Wait(Await(1, absl::ZeroDuration())).body, told);
  EXPECT_EQ(operations_->List().dump(), "[" + told + "]");
  release_.Notify();
  EXPECT_EQ(answers_->Wait(Await(1)).body,
            R"({"id":1,"call":"work","state":"done","result":"released"})");
}

TEST_F(OperationsTest, AFailureIsToldOfLaterToo) {
  answers_->Wait(Begin([] { return absl::NotFoundError("gone"); }));
  EXPECT_EQ(answers_->Wait(Await(1)).body,
            R"({"id":1,"call":"work","state":"failed","error":"gone","status":404})");
  EXPECT_EQ(answers_->Wait(Await(2)).body, "there is no operation 2: none has had that number");
}

TEST_F(OperationsTest, NoneWaitsForAnotherWhileThereAreThreads) {
  answers_->Wait(Begin([] { return Json(); }));  // its thread is idle now, or is about to be
  for (size_t i = 0; i + 1 < Operations::kThreads; ++i) Begin(Held());
  EXPECT_EQ(answers_->Wait(Begin([] { return Json(); })).status, 204);
  ASSERT_TRUE(SpinUntil([&] { return running_ + 1 == Operations::kThreads; }));
  release_.Notify();
}

TEST_F(OperationsTest, TooManyAreRefused) {
  for (size_t i = 0; i < Operations::kThreads; ++i) Begin(Held());
  ASSERT_TRUE(SpinUntil([&] { return running_ == Operations::kThreads; }));
  for (size_t i = 0; i < Operations::kMostWaiting; ++i) Begin(Held());
  const HttpResponse refused = answers_->Wait(Begin(Held()));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body, "56 operations wait for their turn: ask again when some have ended");
  release_.Notify();
}

TEST_F(OperationsTest, WhatWaitsForTheGuestHoldsUpNothingElse) {
  constexpr auto kGuest = Operations::Lane::kGuest;
  for (size_t i = 0; i < Operations::kThreads + Operations::kMostWaiting; ++i) {
    Begin(Held(), absl::InfiniteDuration(), kGuest);
    // So that no more wait than may.
    ASSERT_TRUE(SpinUntil([&] { return running_ == std::min(i + 1, Operations::kThreads); }));
  }
  EXPECT_EQ(answers_->Wait(Begin(Held(), absl::InfiniteDuration(), kGuest)).status, 503);
  EXPECT_EQ(answers_->Wait(Begin([] { return Json(); })).status, 204);
  release_.Notify();
}

TEST_F(OperationsTest, TheOldestAreForgotten) {
  for (size_t i = 0; i < 2 * Operations::kMostEnded; ++i) {
    answers_->Wait(Begin([] { return Json(); }));
  }
  EXPECT_LE(operations_->List().size(), Operations::kMostEnded + 1);
  EXPECT_EQ(answers_->Wait(Await(1)).body, "there is no operation 1: it has ended long ago");
}

// Whoever was told to ask again finds the answer, however many calls of others come meanwhile.
TEST_F(OperationsTest, WhatNobodyHasHeardOfIsForgottenLast) {
  EXPECT_EQ(answers_->Wait(Begin(Held(), absl::ZeroDuration())).status, 202);
  for (size_t i = 0; i < 2 * Operations::kMostEnded; ++i) {
    answers_->Wait(Begin([] { return Json(); }));
  }
  release_.Notify();
  for (size_t i = 0; i < 2 * Operations::kMostEnded; ++i) {
    answers_->Wait(Begin([] { return Json(); }));
  }
  EXPECT_EQ(answers_->Wait(Await(1)).body,
            R"({"id":1,"call":"work","state":"done","result":"released"})");
}

TEST_F(OperationsTest, LongResultsAreForgottenSooner) {
  for (int i = 0; i < 6; ++i) {
    answers_->Wait(Begin([] { return Json(Operations::kMostKept / 4 + 1); }));
  }
  // The last is answered a moment before it is counted.
  EXPECT_TRUE(SpinUntil([&] { return operations_->List().size() == 3; }));
  EXPECT_EQ(answers_->Wait(Await(3)).status, 404);
  EXPECT_EQ(answers_->Wait(Await(4)).status, 200);
  EXPECT_LT(operations_->List().dump().size(), 1000U) << "it has results";
  answers_->Wait(Begin([] { return Json(Operations::kMostKept + 1); }));
  EXPECT_TRUE(SpinUntil([&] { return operations_->List().size() == 1; }));
  EXPECT_EQ(answers_->Wait(Await(7)).status, 200);
}

TEST_F(OperationsTest, AResultIsAsItWasPrinted) {
  const Json result = {{"text", "}\n\x01"}, {"list", {1, 2}}};
  answers_->Wait(Begin([&] { return result; }));
  const std::string body = answers_->Wait(Await(1)).body;
  EXPECT_EQ(Json::parse(body)["result"], result) << body;
}

TEST_F(OperationsTest, ItsEndDropsWhatWaitsAndWaitsForWhatRuns) {
  for (size_t i = 0; i < Operations::kThreads; ++i) Begin(Held());
  ASSERT_TRUE(SpinUntil([&] { return running_ == Operations::kThreads; }));
  const uint64_t dropped = Begin(Held());
  std::thread end([this] { operations_.reset(); });
  EXPECT_EQ(answers_->Wait(dropped).body, "the machine has ended");
  EXPECT_FALSE(answers_->Has(1));
  release_.Notify();
  end.join();
  EXPECT_EQ(answers_->Wait(1).body, "\"released\"");
}

TEST_F(OperationsTest, WhatRunsIsAnsweredBeforeTheEndAndNothingBeginsAfterIt) {
  const uint64_t runs = Begin(Held());
  ASSERT_TRUE(SpinUntil([&] { return running_ == 1; }));
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    release_.Notify();
  });
  operations_->Stop();
  releases.join();
  EXPECT_TRUE(answers_->Has(runs));
  EXPECT_EQ(answers_->Wait(Begin([] { return Json(); })).body, "the machine has ended");
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(OperationsTest, ItsEndSaysWhatItWaitsFor) {
  Begin(Held());
  Begin([] { return Json(); });
  ASSERT_TRUE(SpinUntil([&] { return running_ == 1; }));
  std::thread end([this] { operations_->Stop(); });
  EXPECT_TRUE(SpinUntil([&] { return !log_.lines().empty(); }));
  release_.Notify();
  end.join();
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("the call 'work' still runs")));
}

}  // namespace
}  // namespace ringside
