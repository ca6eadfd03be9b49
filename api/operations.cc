#include "api/operations.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"

namespace ringside {

namespace {

constexpr absl::Duration kEndPatience = absl::Seconds(1);

absl::Status Over() {
  return absl::CancelledError("the machine has ended");
}

}  // namespace

void Operations::Stop() {
  std::vector<std::thread> threads;
  std::thread clock;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    for (Operation& operation : operations_) {
      if (operation.state == State::kWaiting) {
        End(operation, Over(), respond_(Over()));
      }
    }
    for (Workers& workers : workers_) {
      workers.work_came.notify_all();
      std::ranges::move(workers.threads, std::back_inserter(threads));
      workers.threads.clear();
    }
    time_changed_.notify_all();
    clock.swap(clock_);
    const Deadline patience = DeadlineIn(kEndPatience);
    while (IsAnyRunning() &&
           work_ended_.wait_until(mutex_, patience) == std::cv_status::no_timeout) {
    }
    LogRunning();
  }
  for (std::thread& thread : threads) thread.join();
  if (clock.joinable()) clock.join();
}

bool Operations::IsAnyRunning() const {
  return std::ranges::find(operations_, State::kRunning, &Operation::state) != operations_.end();
}

void Operations::LogRunning() const {
  for (const Operation& operation : operations_) {
    if (operation.state != State::kRunning) continue;
    log_.Log(Severity::kWarning,
             "the call '%s' still runs, and is waited for (does a path lead to a file server that "
             "does not answer?)",
             operation.call);
  }
}

void Operations::Begin(const std::string& call, Lane lane, Work work, absl::Duration wait,
                       HttpAnswer answer, std::shared_ptr<const OperationProgress> progress) {
  const MutexLock lock(mutex_);
  if (stop_) return std::move(answer).Send(respond_(Over()));
  ForgetOldest();
  const size_t waiting = CountWaiting(lane);
  if (waiting >= kMostWaiting) {
    return std::move(answer).Send(respond_(absl::ResourceExhaustedError(absl::StrFormat(
        "%d operations wait for their turn: ask again when some have ended", waiting))));
  }
  operations_.push_back({.id = ++last_id_,
                         .call = call,
                         .lane = lane,
                         .work = std::move(work),
                         .progress = std::move(progress)});
  if (const absl::Status started = StartThreads(lane); !started.ok()) {
    operations_.pop_back();
    return std::move(answer).Send(respond_(started));
  }
  Of(lane).work_came.notify_one();
  // Whoever does not wait is told of an operation, be it done as soon as begun.
  if (wait <= absl::ZeroDuration()) {
    return std::move(answer).Send(Accepted(operations_.back()));
  }
  AddWaiter(operations_.back(), true, wait, std::move(answer));
}

void Operations::Await(uint64_t id, absl::Duration wait, HttpAnswer answer) {
  const MutexLock lock(mutex_);
  Operation* const operation = Find(id);
  if (operation == nullptr) {
    return std::move(answer).Send(respond_(absl::NotFoundError(absl::StrFormat(
        "there is no operation %d: %s", id,
        id > 0 && id <= last_id_ ? "it has ended long ago" : "none has had that number"))));
  }
  if (operation->state == State::kEnded) {
    operation->is_told = true;
    return std::move(answer).Send(WithResult(*operation));
  }
  AddWaiter(*operation, false, wait, std::move(answer));
}

Json Operations::List() const {
  const MutexLock lock(mutex_);
  Json list = Json::array();
  for (const Operation& operation : operations_) list.push_back(Describe(operation));
  return list;
}

Json Operations::Describe(const Operation& operation) {
  Json json = {{"id", operation.id}, {"call", operation.call}};
  if (operation.state != State::kEnded) {
    json["state"] = operation.state == State::kWaiting ? "waiting" : "running";
    if (operation.progress != nullptr && operation.progress->of() > 0) {
      json["progress"] = {{"done", operation.progress->done()}, {"of", operation.progress->of()}};
    }
    return json;
  }
  json["state"] = operation.status.ok() ? "done" : "failed";
  if (!operation.status.ok()) {
    json["error"] = Message(operation.status);
    json["status"] = operation.response.status;
  }
  return json;
}

// Of one that has ended. Its result goes in as the text that it is: under the lock nobody has time
// to read 16 MiB of JSON and to print them anew.
HttpResponse Operations::WithResult(const Operation& operation) const {
  HttpResponse response = respond_(Describe(operation));
  if (!operation.status.ok() || operation.response.body.empty()) return response;
  const auto result = absl::StripTrailingAsciiWhitespace(operation.response.body);
  response.body.insert(response.body.rfind('}'), absl::StrCat(",\"result\":", result));
  return response;
}

HttpResponse Operations::Accepted(const Operation& operation) const {
  HttpResponse response = respond_(Describe(operation));
  response.status = 202;
  response.fields.push_back({"Location", location_ + std::to_string(operation.id)});
  return response;
}

void Operations::AddWaiter(Operation& operation, bool wants_result, absl::Duration wait,
                           HttpAnswer answer) {
  operation.waiters.push_back({DeadlineIn(wait), wants_result, std::move(answer)});
  time_changed_.notify_one();
}

Operations::Operation* Operations::Find(uint64_t id) {
  const auto found = std::ranges::find(operations_, id, &Operation::id);
  return found == operations_.end() ? nullptr : &*found;
}

size_t Operations::CountEnded() const {
  return static_cast<size_t>(std::ranges::count(operations_, State::kEnded, &Operation::state));
}

size_t Operations::CountWaiting(Lane lane) const {
  return static_cast<size_t>(std::ranges::count_if(operations_, [lane](const Operation& each) {
    return each.state == State::kWaiting && each.lane == lane;
  }));
}

Operations::Operation* Operations::NextToRun(Lane lane) {
  const auto next = std::ranges::find_if(operations_, [lane](const Operation& each) {
    return each.state == State::kWaiting && each.lane == lane;
  });
  return next == operations_.end() ? nullptr : &*next;
}

absl::Status Operations::StartThreads(Lane lane) {
  if (!clock_.joinable()) {
    RINGSIDE_ASSIGN_OR_RETURN(clock_, StartThread("api-clock", [this] { WatchTime(); }));
  }
  Workers& workers = Of(lane);
  if (CountWaiting(lane) <= workers.idle || workers.threads.size() >= kThreads) {
    return absl::OkStatus();
  }
  absl::StatusOr<std::thread> thread =
      StartThread("api-operation", [this, lane] { RunWork(lane); });
  if (thread.ok()) {
    workers.threads.push_back(*std::move(thread));
    return absl::OkStatus();
  }
  // Those that are there do it later.
  return workers.threads.empty() ? thread.status() : absl::OkStatus();
}

void Operations::End(Operation& operation, const absl::Status& status, HttpResponse response) {
  operation.state = State::kEnded;
  operation.status = status;
  operation.response = std::move(response);
  operation.work = nullptr;
  operation.progress = nullptr;
  operation.ended_as = ++ended_;
  operation.is_told = !operation.waiters.empty();
  for (Waiter& waiter : operation.waiters) {
    std::move(waiter.answer).Send(waiter.wants_result ? operation.response : WithResult(operation));
  }
  operation.waiters.clear();
}

size_t Operations::Kept() const {
  size_t bytes = 0;
  for (const Operation& operation : operations_) bytes += operation.response.body.size();
  return bytes;
}

void Operations::ForgetOldest() {
  for (size_t ended = CountEnded(); ended > kMostEnded || (ended > 1 && Kept() > kMostKept);
       --ended) {
    operations_.erase(std::ranges::min_element(operations_, {}, [](const Operation& each) {
      return std::make_tuple(each.state != State::kEnded, !each.is_told, each.ended_as);
    }));
  }
}

void Operations::AnswerLate(Deadline now) {
  for (Operation& operation : operations_) {
    std::erase_if(operation.waiters, [&](Waiter& waiter) {
      if (waiter.deadline > now) return false;
      std::move(waiter.answer)
          .Send(waiter.wants_result ? Accepted(operation) : respond_(Describe(operation)));
      return true;
    });
  }
}

Deadline Operations::NextDeadline() const {
  Deadline next = Deadline::max();
  for (const Operation& operation : operations_) {
    for (const Waiter& waiter : operation.waiters) next = std::min(next, waiter.deadline);
  }
  return next;
}

void Operations::RunWork(Lane lane) {
  mutex_.lock();
  Workers& workers = Of(lane);
  while (true) {
    Operation* const operation = NextToRun(lane);
    if (operation == nullptr) {
      if (stop_) break;
      ++workers.idle;
      workers.work_came.wait(mutex_);
      --workers.idle;
      continue;
    }
    operation->state = State::kRunning;
    const Work work = std::move(operation->work);
    mutex_.unlock();
    const absl::StatusOr<Json> result = work();
    HttpResponse response = respond_(result);  // it may be long, and others want the lock
    mutex_.lock();
    End(*operation, result.status(), std::move(response));
    if (stop_) work_ended_.notify_all();
    ForgetOldest();
  }
  mutex_.unlock();
}

void Operations::WatchTime() {
  const MutexLock lock(mutex_);
  while (!stop_) {
    AnswerLate(std::chrono::steady_clock::now());
    const Deadline next = NextDeadline();
    if (next == Deadline::max()) {
      time_changed_.wait(mutex_);
    } else {
      time_changed_.wait_until(mutex_, next);
    }
  }
}

}  // namespace ringside
