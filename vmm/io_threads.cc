#include "vmm/io_threads.h"

#include <algorithm>
#include <cctype>

#include "base/affinity.h"
#include "base/nearest.h"
#include "base/status.h"

namespace ringside {
namespace {

absl::Status CheckName(const std::string& name) {
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
  if (plain) return absl::OkStatus();
  return BadInput("I/O thread '%s': give a name of letters, digits, '.', '-' and '_'", name);
}

absl::Status CheckPoll(const std::string& name, const PollConfig& poll) {
  if (poll.max_ns < 0)
    return BadInput("I/O thread '%s': it cannot poll for %d ns", name, poll.max_ns);
  if (poll.grow < 2) {
    return BadInput("I/O thread '%s': a limit that grows by %d does not grow; give 2 or more", name,
                    poll.grow);
  }
  if (poll.weight > kMaxPollWeight) {
    return BadInput("I/O thread '%s': a weight of %d cannot be; give 0 to %d", name, poll.weight,
                    kMaxPollWeight);
  }
  if (!(poll.price > 0 && poll.price <= kMaxPollPrice)) {
    return BadInput("I/O thread '%s': CPU time cannot be worth %g; give more than 0, up to %g",
                    name, poll.price, kMaxPollPrice);
  }
  if (!(poll.cpu_max > 0 && poll.cpu_max <= 1)) {
    return BadInput("I/O thread '%s': polling cannot take %g of a CPU; give more than 0, up to 1",
                    name, poll.cpu_max);
  }
  return absl::OkStatus();
}

IoThreadStatistics Count(const IoThreadConfig& config, const IoThread& io_thread) {
  const IoThreadStats& stats = io_thread.stats();
  const Uring* uring = io_thread.uring();
  return {.name = config.name,
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

absl::StatusOr<std::unique_ptr<IoThreads>> IoThreads::Create(
    std::span<const IoThreadConfig> configs) {
  auto threads = std::make_unique<IoThreads>();
  if (configs.size() > kMax) {
    return BadInput("%d I/O threads cannot be; a machine takes %d", configs.size(), kMax);
  }
  for (IoThreadConfig config : configs) {
    if (config.name.empty()) config.name = threads->FreeName(configs);
    RINGSIDE_RETURN_IF_ERROR(threads->Add(config));
  }
  if (configs.empty()) RINGSIDE_RETURN_IF_ERROR(threads->Add({.name = threads->FreeName({})}));
  return threads;
}

// Neither of a thread that is there nor of one that is to come.
std::string IoThreads::FreeName(std::span<const IoThreadConfig> configs) const {
  for (int number = 0;; ++number) {
    std::string name = absl::StrFormat("io%d", number);
    const auto has_it = [&name](const IoThreadConfig& config) { return config.name == name; };
    if (std::ranges::none_of(configs, has_it) && !Find(name).ok()) return name;
  }
}

absl::Status IoThreads::Add(const IoThreadConfig& config) {
  const std::string& name = config.name;
  RINGSIDE_RETURN_IF_ERROR(CheckName(name));
  if (Find(name).ok()) {
    return BadInput("two I/O threads are called '%s'; give each a name of its own", name);
  }
  RINGSIDE_RETURN_IF_ERROR(CheckPoll(name, config.tuning.poll));
  if (config.tuning.trace_waits && config.tuning.poll.kind == PollKind::kNever) {
    return BadInput(
        "I/O thread '%s' with poll=never does not measure its waits, which are to be traced; give "
        "it poll=always, which does so exactly",
        name);
  }
  if (const absl::Status status = CheckHostCpus(config.cpus); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrFormat("I/O thread '%s': %s", name, Message(status)));
  }
  threads_.push_back({.config = config});
  return absl::OkStatus();
}

absl::Status IoThreads::Start(IoThread::Waiter waiter) {
  absl::Status status;
  for (Thread& thread : threads_) status.Update(StartOne(thread, waiter));
  if (!status.ok()) {
    for (Thread& thread : threads_) thread.io_thread = nullptr;
  }
  return status;
}

absl::Status IoThreads::StartOne(Thread& thread, IoThread::Waiter waiter) {
  const IoThreadConfig& config = thread.config;
  RINGSIDE_ASSIGN_OR_RETURN(thread.io_thread, IoThread::Start(config.name, waiter, config.tuning));
  if (config.cpus.empty()) return absl::OkStatus();  // its first turn need not be waited for
  absl::Status pinned;
  RunOnIoThread(*thread.io_thread, [&] { pinned = PinThisThread(config.cpus); });
  return pinned;
}

absl::StatusOr<size_t> IoThreads::Find(const std::string& name) const {
  std::vector<std::string> names;
  for (const Thread& thread : threads_) {
    if (thread.config.name == name) return names.size();
    names.push_back(thread.config.name);
  }
  return absl::NotFoundError(absl::StrFormat("I/O thread '%s' is unknown; did you mean '%s'?", name,
                                             Nearest(name, names)));
}

const std::string& IoThreads::NameOf(const IoThread& io_thread) const {
  return std::ranges::find_if(
             threads_, [&](const Thread& thread) { return thread.io_thread.get() == &io_thread; })
      ->config.name;
}

absl::Status IoThreads::SetPoll(size_t index, const PollConfig& poll) {
  Thread& thread = threads_[index];
  RINGSIDE_RETURN_IF_ERROR(CheckPoll(thread.config.name, poll));
  const MutexLock lock(mutex_);
  if (thread.io_thread != nullptr) {
    RunOnIoThread(*thread.io_thread, [&] { thread.io_thread->SetPoll(poll); });
  }
  thread.config.tuning.poll = poll;
  return absl::OkStatus();
}

std::vector<IoThreadExplanation> IoThreads::Explain() const {
  std::vector<IoThreadExplanation> all;
  for (const Thread& thread : threads_) {
    if (thread.io_thread == nullptr) continue;
    IoThreadExplanation& one = all.emplace_back(IoThreadExplanation{thread.config.name, {}});
    RunOnIoThread(*thread.io_thread, [&] { one.poll = thread.io_thread->Explain(); });
  }
  return all;
}

std::vector<IoThreadWaits> IoThreads::Waits() const {
  std::vector<IoThreadWaits> all;
  for (const Thread& thread : threads_) {
    if (!thread.config.tuning.trace_waits || thread.io_thread == nullptr) continue;
    IoThreadWaits& one = all.emplace_back(IoThreadWaits{.io_thread = thread.config.name});
    RunOnIoThread(*thread.io_thread, [&] { one.waits = thread.io_thread->waits()->InOrder(); });
  }
  return all;
}

std::vector<IoThreadStatistics> IoThreads::Statistics() const {
  std::vector<IoThreadStatistics> statistics;
  const MutexLock lock(mutex_);
  for (const Thread& thread : threads_) {
    if (thread.io_thread != nullptr) {
      statistics.push_back(Count(thread.config, *thread.io_thread));
    }
  }
  return statistics;
}

}  // namespace ringside
