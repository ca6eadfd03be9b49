"""Interleaved rounds: every contestant once on every target, then again; on a quiet machine."""

import fnmatch
import time

from . import cpu, guest_run, summary
from .common import BadInput, MeasureError
from .host import HostEngine
from .quiet import NOISY_TRIES, Quiet

WARMUP_MS = 50
_VERIFY_MS = 100
_VERIFY_SIZE_MIB = 16
_OPEN_LOOP_DEPTH = 128
_MIN_RUNTIME_MS, _MAX_RUNTIME_MS = 100, 2000

# Open loops as results.json calls them, and how the guest is to make requests arrive in each.
ARRIVALS = {"open": "poisson", "periodic": "periodic"}

# What there is beside the jobs' time, for the estimate. Once: writing files, drawing. A run: a
# guest's start and end, the look whether the machine is quiet. A job: its line, character by
# character.
_FIXED_OVERHEAD_S = 15
_RUN_OVERHEAD_S = 1.2
_JOB_OVERHEAD_S = 0.06


def matches(name, pattern):
    """'QEMU' and 'QEMU*native*' both match 'QEMU 7.2 native no poll'; case plays no part."""
    return fnmatch.fnmatch(name.lower(), pattern.lower() + "*")


def choose(contestants, only, skip, depths):
    """Returns those that --only and --skip leave and that can be measured at any of the depths."""
    def chosen(contestant, patterns):
        return any(matches(contestant.name, pattern) for pattern in patterns)

    return [contestant for contestant in contestants
            if (not only or chosen(contestant, only)) and not chosen(contestant, skip)
            and contestant.depths(depths)]


def chosen(contestants, options, depths):
    """The same of the command line's --only and --skip. Raises BadInput if they leave none."""
    left = choose(contestants, options.only, options.skip, depths)
    if not left:
        raise BadInput("--only and --skip leave nobody; there are: "
                       + ", ".join(contestant.name for contestant in contestants))
    return left


def runs_of(contestants, targets):
    """A round, in its order."""
    return [(target, contestant) for target in targets for contestant in contestants
            if contestant.serves(target)]


def runtime_ms(contestants, targets, settings, minutes):
    """What one job may take, so that all rounds and checks end in that time."""
    jobs, overhead_s = _jobs_and_overhead(contestants, targets, settings)
    left_ms = (minutes * 60 - overhead_s) * 1000 / max(jobs, 1)
    return round(min(max(left_ms - WARMUP_MS, _MIN_RUNTIME_MS), _MAX_RUNTIME_MS))


def estimate_s(contestants, targets, settings):
    """How long it will take."""
    jobs, overhead_s = _jobs_and_overhead(contestants, targets, settings)
    return overhead_s + jobs * (settings["runtime_ms"] + WARMUP_MS) / 1000


def _jobs_and_overhead(contestants, targets, settings):
    """Returns (jobs of all rounds, seconds that runs take beside them)."""
    runs = runs_of(contestants, targets)
    checks = sum(is_checked(contestant, target) for target, contestant in runs)
    boots, jobs = len(runs), sum(target.jobs(contestant, settings)
                                  for target, contestant in runs)
    if settings["rates"]:
        opened = len(settings["open_loops"]) * sum(not isinstance(contestant, HostEngine)
                                                   for _, contestant in runs)
        boots, jobs = boots + opened, jobs + opened * len(settings["rates"])
    boots, jobs = boots * settings["rounds"], jobs * settings["rounds"]
    return jobs, _FIXED_OVERHEAD_S + (boots + checks) * _RUN_OVERHEAD_S + jobs * _JOB_OVERHEAD_S


def is_checked(contestant, target):
    """fio has its own users."""
    return not isinstance(contestant, HostEngine) and contestant.checked and target.is_checked


class Schedule:
    """Runs everything, and collects samples, failures and noise for results.json."""

    def __init__(self, contestants, targets, settings, options, progress):
        self._contestants, self._targets = contestants, targets
        self._settings = settings
        self._quiet = Quiet(options)
        self._progress = progress
        self._failed = set()  # (target, contestant)
        self.samples, self.failures, self.noise = [], [], []

    def run(self):
        for target, contestant in runs_of(self._contestants, self._targets):
            self._verify(target, contestant)
        for number in range(self._settings["rounds"]):
            for target, contestant in runs_of(self._contestants, self._targets):
                self._measure(number, target, contestant, "closed")
        if self._settings["rates"]:
            self._run_open_loops({target.name: self._rates(target) for target in self._targets})

    def _run_open_loops(self, rates):
        for loop in self._settings["open_loops"]:
            for number in range(self._settings["rounds"]):
                for target, contestant in runs_of(self._contestants, self._targets):
                    if not isinstance(contestant, HostEngine):
                        self._measure(number, target, contestant, loop, rates[target.name])

    def _verify(self, target, contestant):
        """A short mixed load whose every byte is checked."""
        if not is_checked(contestant, target):
            return
        self._progress.show(f"checking {contestant.name} on {target.name}")
        words = [*target.verification(_VERIFY_SIZE_MIB), f"runtime={_VERIFY_MS}ms",
                 f"wait={self._settings['wait']}"]
        target.prepare()
        try:
            guest_run.run(contestant, target, words, _VERIFY_MS / 1000)
        except MeasureError as error:
            self._fail(target, contestant, "verify pass", error)
        self._progress.advance(_RUN_OVERHEAD_S)

    def _measure(self, number, target, contestant, loop, rates=()):
        if (target.name, contestant.name) in self._failed:
            return
        text = (f"{loop} round {number + 1}/{self._settings['rounds']} {target.name}: "
                f"{contestant.name}")
        jobs = len(rates) or target.jobs(contestant, self._settings)
        seconds = jobs * (self._settings["runtime_ms"] + WARMUP_MS) / 1000
        for _ in range(NOISY_TRIES):
            self._progress.show(text)
            noisy = self._quiet.wait()
            target.prepare()
            use = cpu.MachineUse(target.helper)
            result, failure = self._try(target, contestant, loop, rates, seconds)
            noisy = noisy or self._quiet.during(use)
            if not self._quiet.repeats(noisy, seconds):
                break
        if failure is not None:
            self._fail(target, contestant, f"round {number + 1}", failure)
            return
        jobs, own = result
        self.samples.append({"target": target.name, "contestant": contestant.name, "round": number,
                             "loop": loop, "noisy": noisy, "jobs": jobs, "self": own})
        if noisy is not None:
            self.noise.append(f"{text}: {noisy}")
        self._progress.advance(_RUN_OVERHEAD_S + len(jobs) * _JOB_OVERHEAD_S + seconds)

    def _try(self, *arguments):
        """Returns (what one run gave, None), or (None, why it measured nothing)."""
        try:
            return self._run(*arguments), None
        except MeasureError as error:
            return None, error  # On a busy machine it may be the others' fault: it is repeated.

    def _run(self, target, contestant, loop, rates, seconds):
        settings = self._settings
        if isinstance(contestant, HostEngine):
            return contestant.run(target, settings, seconds), {}
        words = [*target.load(settings), f"runtime={settings['runtime_ms']}ms",
                 f"warmup={WARMUP_MS}ms", f"wait={settings['wait']}"]
        if loop != "closed":
            words += [f"qd={min(_OPEN_LOOP_DEPTH, contestant.max_depth)}",
                      f"arrival={ARRIVALS[loop]}", "rate=" + ",".join(map(str, rates))]
        else:
            words += target.closed_loop(contestant, settings)
        found = guest_run.run(contestant, target, words, seconds, settings["apart"])
        expected = len(rates) or target.jobs(contestant, settings)
        if len(found[0]) != expected:
            raise MeasureError(f"{len(found[0])} jobs done, {expected} asked for")
        target.check(found[0])
        return found

    def _fail(self, target, contestant, what, error):
        """It is left out from here on, on that target."""
        self._failed.add((target.name, contestant.name))
        self.failures.append(f"{contestant.name} on {target.name}, {what}: {error}")
        self._progress.note(f"FAILED {self.failures[-1]}")

    def _rates(self, target):
        """Percents are of the best closed loop of any guest on that target."""
        results = {"contestants": [{"name": contestant.name, "family": contestant.family}
                                   for contestant in self._contestants], "samples": self.samples}
        best = summary.best_iops(summary.rows(results, target.name))
        rates = {max(round(best * int(word[:-1]) / 100), 1) if word.endswith("%") else int(word)
                 for word in self._settings["rates"]}
        return sorted(rates)
