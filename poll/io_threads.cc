#include "poll/io_threads.h"

#include <algorithm>
#include <array>

#include "base/affinity.h"
#include "base/nearest.h"
#include "base/status.h"

namespace ringside {
namespace {

// `then`: what is to be done about it.
absl::Status AwaitTurn(const std::string& name, const Event& turn, Deadline deadline,
                       const char* then) {
  if (turn.WaitUntil(deadline)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrFormat("I/O thread '%s' still waits for storage or for a server; %s", name, then));
}

IoThreadStatistics Count(const IoThreadConfig& config, const IoThread& io_thread) {
  const IoThreadStats& stats = io_thread.stats();
  const Uring* uring = io_thread.uring();
  return {.id = config.id,
          .waiter = uring != nullptr ? "io_uring" : "epoll",
          .poll = config.tuning.poll,
          .signal = SignallingName(config.tuning.signalling),
          .cpus = config.cpus,
          .turns = stats.turns.Get(),
          .spins = stats.spins.Get(),
          .spin_hits = stats.spin_hits.Get(),
          .spin_used_ns = stats.spin_used_ns.Get(),
          .spin_wasted_ns = stats.spin_wasted_ns.Get(),
          .spin_limit_ns = stats.spin_limit_ns.Get(),
          .dozes = stats.dozes.Get(),
          .doze_ends = stats.doze_ends.Get(),
          .preempted = stats.preempted.Get(),
          .wake_ns = stats.wake_ns.Get(),
          .kick_ns = stats.kick_ns.Get(),
          .sleep_cpu_ns = stats.sleep_cpu_ns.Get(),
          .sleeps = stats.sleeps.Get(),
          .wake_ups = stats.wake_ups.Get(),
          .parked = stats.parked.Get(),
          .unparked = stats.unparked.Get(),
          .io_uring_enters = uring != nullptr ? uring->enters() : 0};
}

}  // namespace

const char* WaiterName(IoThreadConfig::Waiter waiter) {
  constexpr std::array kNames = {"auto", "io_uring", "epoll"};
  return kNames[static_cast<size_t>(waiter)];
}

absl::StatusOr<std::unique_ptr<IoThreads>> IoThreads::Create(
    std::span<const IoThreadConfig> configs, IoThread::Serves serves) {
  std::unique_ptr<IoThreads> threads(new IoThreads(serves));
  const MutexLock lock(threads->mutex_);
  if (configs.size() > kMax) {
    return BadInput("iothreads: there are %d, and a %s has at most %d", configs.size(),
                    threads->serves_many() ? "pool" : "machine", kMax);
  }
  const IoThreadConfig usual;
  for (IoThreadConfig config : configs.empty() ? std::span(&usual, 1) : configs) {
    if (config.id.empty()) config.id = threads->FreeName(configs);
    RINGSIDE_RETURN_IF_ERROR(threads->Check(config));
    threads->threads_.push_back({.config = std::move(config)});
  }
  return threads;
}

// Neither of a thread that is there nor of one that is to come.
std::string IoThreads::FreeName(std::span<const IoThreadConfig> configs) const {
  for (int number = 0;; ++number) {
    std::string name = absl::StrFormat("io%d", number);
    const auto has_it = [&name](const IoThreadConfig& config) { return config.id == name; };
    if (std::ranges::none_of(configs, has_it) && !IndexOf(name).ok()) return name;
  }
}

absl::Status IoThreads::Check(const IoThreadConfig& config) const {
  const std::string& name = config.id;
  if (IndexOf(name).ok()) {
    return BadInput("two I/O threads are called '%s'; give each a name of its own", name);
  }
  if (config.tuning.trace_waits && config.tuning.poll.kind == PollKind::kNever) {
    return BadInput(
        "I/O thread '%s' with poll=never does not measure its waits, which are to be traced; give "
        "it poll=always, which does so exactly",
        name);
  }
  return Of(absl::StrFormat("I/O thread '%s'", name), CheckHostCpus(config.cpus));
}

absl::Status IoThreads::CheckStarted(const Thread& thread) {
  if (thread.io_thread != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "I/O thread '%s' was not started, as there was nothing for it to serve; add one",
      thread.config.id));
}

absl::Status IoThreads::Start(UringEntries entries) {
  const MutexLock lock(mutex_);
  entries_ = entries;
  for (Thread& thread : threads_) {
    absl::StatusOr<Handle> started = StartOne(thread.config);
    if (started.ok()) {
      thread.io_thread = *std::move(started);
      continue;
    }
    for (Thread& each : threads_) each.io_thread = nullptr;
    return started.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<IoThreads::Handle> IoThreads::StartOne(const IoThreadConfig& config) {
  absl::StatusOr<std::unique_ptr<IoThread>> started;
  const auto start = [&](IoThread::Waiter waiter) {
    started = IoThread::Start(config.id, waiter, config.tuning, serves_);
  };
  if (config.waiter != IoThreadConfig::Waiter::kEpoll) {
    start(entries_ == UringEntries::kUsual ? IoThread::Waiter::kUring
                                           : IoThread::Waiter::kUringWithCommands);
    if (!started.ok() && config.waiter == IoThreadConfig::Waiter::kAuto) {
      uring_status_ = started.status();
      start(IoThread::Waiter::kEpoll);
    }
  } else {
    start(IoThread::Waiter::kEpoll);
  }
  if (!started.ok()) return started.status();
  Handle io_thread = *std::move(started);
  if (config.cpus.empty()) return io_thread;  // its first turn need not be waited for
  absl::Status pinned;
  io_thread->RunAndWait([&] { pinned = PinThisThread(config.cpus); });
  if (!pinned.ok()) return pinned;
  return io_thread;
}

std::vector<std::string> IoThreads::names() const {
  std::vector<std::string> names;
  const MutexLock lock(mutex_);
  names.reserve(threads_.size());
  for (const Thread& thread : threads_) names.push_back(thread.config.id);
  return names;
}

std::string IoThreads::Usual(size_t device) const {
  const MutexLock lock(mutex_);
  if (serves_many()) device = next_usual_++;
  return threads_[device % threads_.size()].config.id;
}

absl::StatusOr<size_t> IoThreads::IndexOf(const std::string& name) const {
  std::vector<std::string> names;
  for (const Thread& thread : threads_) {
    if (thread.config.id == name) return names.size();
    names.push_back(thread.config.id);
  }
  return absl::NotFoundError(absl::StrFormat("I/O thread '%s' is unknown; did you mean '%s'?", name,
                                             Nearest(name, names)));
}

absl::Status IoThreads::CheckName(const std::string& name) const {
  const MutexLock lock(mutex_);
  return IndexOf(name).status();
}

absl::StatusOr<IoThreads::Handle> IoThreads::Find(const std::string& name) const {
  const MutexLock lock(mutex_);
  RINGSIDE_ASSIGN_OR_RETURN(const size_t index, IndexOf(name));
  RINGSIDE_RETURN_IF_ERROR(CheckStarted(threads_[index]));
  return threads_[index].io_thread;
}

absl::StatusOr<std::vector<IoThread*>> IoThreads::FindOrFirst(
    std::span<const std::string> names) const {
  std::vector<IoThread*> io_threads;
  for (const std::string& name : names) {
    absl::StatusOr<Handle> io_thread = Find(name);
    if (!io_thread.ok()) io_thread = Find(this->names().front());
    RINGSIDE_RETURN_IF_ERROR(io_thread.status());
    io_threads.push_back(io_thread->get());
  }
  return io_threads;
}

std::string IoThreads::NameOf(const IoThread& io_thread) const {
  const MutexLock lock(mutex_);
  for (const Thread& thread : threads_) {
    if (thread.io_thread.get() == &io_thread) return thread.config.id;
  }
  return "";
}

absl::Status IoThreads::uring_status() const {
  const MutexLock lock(mutex_);
  return uring_status_;
}

absl::StatusOr<std::string> IoThreads::Add(const IoThreadConfig& config) {
  Thread thread = {.config = config};
  const MutexLock lock(mutex_);
  if (threads_.size() == kMax) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "there are %d I/O threads, as many as a machine can have: remove one first", kMax));
  }
  if (thread.config.id.empty()) thread.config.id = FreeName({});
  RINGSIDE_RETURN_IF_ERROR(Check(thread.config));
  RINGSIDE_ASSIGN_OR_RETURN(thread.io_thread, StartOne(thread.config));
  return threads_.emplace_back(std::move(thread)).config.id;
}

absl::StatusOr<IoThreads::Handle> IoThreads::Remove(
    const std::string& name, absl::FunctionRef<bool(const IoThread&)> is_needed) {
  const MutexLock lock(mutex_);
  RINGSIDE_ASSIGN_OR_RETURN(const size_t index, IndexOf(name));
  const auto thread = threads_.begin() + static_cast<ptrdiff_t>(index);
  RINGSIDE_RETURN_IF_ERROR(CheckStarted(*thread));
  // Nobody finds one meanwhile: whoever is about to need it has its handle already.
  if (thread->io_thread.use_count() > 1 || is_needed(*thread->io_thread)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("I/O thread '%s' serves a queue; move its queues first", name));
  }
  Handle last = std::move(thread->io_thread);
  threads_.erase(thread);
  return last;
}

absl::Status IoThreads::SetPoll(const std::string& name, const PollConfig& poll,
                                absl::Duration patience) {
  const Deadline deadline = DeadlineIn(patience);
  std::shared_ptr<const Event> holds;
  {
    const MutexLock lock(mutex_);
    RINGSIDE_ASSIGN_OR_RETURN(const size_t index, IndexOf(name));
    threads_[index].config.tuning.poll = poll;
    IoThread* const io_thread = threads_[index].io_thread.get();
    if (io_thread == nullptr) return absl::OkStatus();
    // Under the lock: who comes last here comes last there.
    holds = io_thread->Begin([io_thread, poll] { io_thread->SetPoll(poll); });
  }
  return AwaitTurn(name, *holds, deadline, "how it polls changes when it does");
}

// All are asked before any is waited for. No handle is kept meanwhile: one that is removed answers
// before it ends.
template <typename Answer, typename Wanted, typename Ask>
absl::StatusOr<std::vector<Answer>> IoThreads::AskAll(Wanted wanted, Ask ask,
                                                      absl::Duration patience) const {
  struct Asked {
    std::shared_ptr<Answer> answer;
    std::shared_ptr<const Event> known;
  };
  const Deadline deadline = DeadlineIn(patience);
  std::vector<Asked> asked;
  {
    const MutexLock lock(mutex_);
    for (const Thread& thread : threads_) {
      IoThread* const io_thread = thread.io_thread.get();
      if (io_thread == nullptr || !wanted(thread.config)) continue;
      const auto answer = std::make_shared<Answer>(Answer{.io_thread = thread.config.id});
      asked.push_back({answer, io_thread->Begin([=] { ask(*io_thread, *answer); })});
    }
  }
  std::vector<Answer> answers;
  for (const Asked& one : asked) {
    RINGSIDE_RETURN_IF_ERROR(
        AwaitTurn(one.answer->io_thread, *one.known, deadline, "ask again later"));
    answers.push_back(std::move(*one.answer));
  }
  return answers;
}

absl::StatusOr<std::vector<IoThreadExplanation>> IoThreads::Explain(absl::Duration patience) const {
  const auto explain = [](const IoThread& io_thread, IoThreadExplanation& answer) {
    answer.poll = io_thread.Explain();
  };
  return AskAll<IoThreadExplanation>([](const IoThreadConfig&) { return true; }, explain, patience);
}

absl::StatusOr<std::vector<IoThreadWaits>> IoThreads::Waits(absl::Duration patience) const {
  const auto traced = [](const IoThreadConfig& config) { return config.tuning.trace_waits; };
  const auto copy = [](const IoThread& io_thread, IoThreadWaits& answer) {
    answer.waits = io_thread.waits()->InOrder();
  };
  return AskAll<IoThreadWaits>(traced, copy, patience);
}

std::vector<IoThreadStatistics> IoThreads::Statistics() const {
  std::vector<IoThreadStatistics> statistics;
  const MutexLock lock(mutex_);  // which no I/O thread takes
  for (const Thread& thread : threads_) {
    if (thread.io_thread != nullptr) statistics.push_back(Count(thread.config, *thread.io_thread));
  }
  return statistics;
}

}  // namespace ringside
