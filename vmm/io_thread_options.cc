#include "vmm/io_thread_options.h"

#include "poll/io_threads.h"

namespace ringside {

template <>
struct OptionChoices<PollKind> {
  static constexpr std::array kAll = {PollKind::kNever,      PollKind::kAlways,   PollKind::kFixed,
                                      PollKind::kGrowShrink, PollKind::kWeighted, PollKind::kCost};
  static const char* Name(PollKind kind) { return PollKindName(kind); }
};

template <>
struct OptionChoices<Signalling> {
  static constexpr std::array kAll = {Signalling::kEarly, Signalling::kBatched, Signalling::kCost};
  static const char* Name(Signalling signalling) { return SignallingName(signalling); }
};

template <>
struct OptionChoices<IoThreadConfig::Waiter> {
  using Waiter = IoThreadConfig::Waiter;
  static constexpr std::array kAll = {Waiter::kAuto, Waiter::kUring, Waiter::kEpoll};
  static const char* Name(Waiter waiter) { return WaiterName(waiter); }
};

const OptionTable<IoThreadConfig>& IoThreadOptions() {
  static const OptionTable<IoThreadConfig> table = {
      "an I/O thread",
      {{{.name = "id",
         .type = Id(),
         .doc = "its name",
         .unset = "the first of io0, io1, ... that is free"},
        [](auto& thread) -> auto& { return thread.id; }},
       {{.name = "poll",
         .type = Plain(OptionKind::kChoice),
         .doc = "how it waits for work. never: it sleeps at once; always: it polls its rings and "
                "never sleeps; fixed: it polls for max, then sleeps; grow-shrink: it polls for as "
                "long as has paid lately, up to max; weighted: it polls for as long as its slowest "
                "source has needed lately, up to max; cost: it polls, dozes by a timer or sleeps, "
                "whichever has been cheapest lately"},
        [](auto& thread) -> auto& { return thread.tuning.poll.kind; }},
       {{.name = "max",
         .type = Time(absl::ZeroDuration(), absl::Seconds(1)),
         .doc = "the longest that fixed, grow-shrink and weighted poll"},
        [](auto& thread) -> auto& { return thread.tuning.poll.max_ns; }},
       {{.name = "grow",
         .type = Whole(2, 1000),
         .doc = "the factor by which grow-shrink and weighted lengthen their limit"},
        [](auto& thread) -> auto& { return thread.tuning.poll.grow; }},
       {{.name = "shrink",
         .type = Whole(0, 1000),
         .doc = "the factor by which they shorten it; 0: back to nothing"},
        [](auto& thread) -> auto& { return thread.tuning.poll.shrink; }},
       {{.name = "weight",
         .type = Whole(0, kMaxPollWeight),
         .doc = "of weighted: a new wait counts for 1/2^N of what is known"},
        [](auto& thread) -> auto& { return thread.tuning.poll.weight; }},
       {{.name = "price",
         .type = Real(kMaxPollPrice),
         .doc = "of cost: what a nanosecond of CPU time is worth in nanoseconds of latency"},
        [](auto& thread) -> auto& { return thread.tuning.poll.price; }},
       {{.name = "cpu-max",
         .type = ShareOfCpu(),
         .doc = "of cost: the share of a CPU that polling may take"},
        [](auto& thread) -> auto& { return thread.tuning.poll.cpu_max; }},
       {{.name = "signal",
         .type = Plain(OptionKind::kChoice),
         .doc = "when completions are shown and signalled to the guest. early: before new requests "
                "are taken; batched: after that; cost: shown as early, but the interrupt waits "
                "while the guest has enough to do and gets more done that way, 5 ms at most"},
        [](auto& thread) -> auto& { return thread.tuning.signalling; }},
       {{.name = "waiter",
         .type = Plain(OptionKind::kChoice),
         .doc = "what it sleeps in; auto: io_uring where that may be used, else epoll"},
        [](auto& thread) -> auto& { return thread.waiter; }},
       {{.name = "cpu",
         .type = Plain(OptionKind::kCpus),
         .doc = "the CPUs of the host that it is kept on, such as 0-2+5",
         .unset = "any"},
        [](auto& thread) -> auto& { return thread.cpus; }}}};
  return table;
}

absl::Status CheckIoThread(const std::string& prefix, const IoThreadConfig& config) {
  return CheckObject(IoThreadOptions(), {.prefix = prefix}, config);
}

absl::Status CheckIoThread(const IoThreadConfig& config) {
  return CheckIoThread(absl::StrFormat("I/O thread '%s': ", config.id), config);
}

absl::Status CheckPoll(const std::string& io_thread, const PollConfig& poll) {
  return CheckIoThread(absl::StrFormat("I/O thread '%s': ", io_thread), {.tuning = {.poll = poll}});
}

}  // namespace ringside
