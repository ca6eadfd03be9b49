"""From the archive that tests/lab/compare.sh leaves to the layout of results.json (summary.py)."""

import datetime

from . import machine_info
from .common import MeasureError
from .contestants import Assigned, Ringside, entry
from .host import parse_fio
from .lab_jobs import guests_of
from .targets import Target

TICK_NS = 10_000_000  # Of the times in /proc/PID/stat, on x86.


class Sample:
    """What a VMM and its guest have used until one moment, from a file that compare.sh wrote."""

    def __init__(self, text):
        ticks, self.vcpu_ns, self.disk_thread_ns, self.exits, self.interrupts = map(int, text.split())
        self.cpu_ns = ticks * TICK_NS


def read(archive, options, machines, loads, others):
    """Returns the results in the archive; `others` is what others used meanwhile, by round and guest.
    A guest whose figures cannot be right is among the failures, and the others count. Raises MeasureError
    if they did not have the same conditions, or if none is left."""
    samples, failures, facts = _read_guests(archive, options, machines, loads, others)
    if not samples:
        raise MeasureError(failures[0])
    for found in facts.values():
        if len(found) != 1:
            raise MeasureError(f"the guests did not have the same conditions: {found}")
    settings = {"rw": options.rw, "rwmix": options.rwmix, "bs": options.bs,
                "queues": " or ".join(sorted({guest.queues_text for guest in facts})),
                "depths": list(options.depths)}
    targets = [{"name": load.target, "text": _describe(*facts[load.guest], load, options)}
               for load in loads if load.guest in facts]
    return results_of(options, machines, settings, targets, samples, failures)


def results_of(options, machines, settings, targets, samples, failures):
    """What results.json holds of a comparison in the lab; `settings` are those of its kind."""
    return {"date": datetime.datetime.now().astimezone().isoformat("T", "seconds"),
            "command": options.command, "machine": machine_info.describe(options.ringside),
            "settings": {**settings, "wait": "irq", "rounds": options.rounds, "rates": [],
                         "runtime_ms": options.runtime},
            "targets": targets, "contestants": [entry(machine.contestant) for machine in machines],
            "samples": samples, "failures": failures, "missing": {},
            "noise": [f"round {sample['round']} {sample['target']}: {sample['contestant']}: "
                      f"{sample['noisy']}" for sample in samples if sample["noisy"]]}


def _read_guests(archive, options, machines, loads, others):
    """Returns the samples, the failures, and {Guest: {its conditions: a contestant that had them}}."""
    samples, failures, facts = [], [], {}
    for number in range(1, options.rounds + 1):
        for guest, its_loads in guests_of(loads).items():
            for machine in machines:
                name = f"{guest.name}/{machine.name}"
                # Nobody has told of one that ended before its jobs.
                noisy = noise_of(others.get((number, name), 0), options.noise_limit)
                try:
                    run = _Run(GuestFiles(archive, f"./{number}/{name}"), machine.contestant)
                    samples += run.samples(number, its_loads, options, noisy)
                except MeasureError as error:
                    failures.append(f"{machine.contestant.name}, round {number} in the guest with "
                                    f"{guest.text}: {error}")
                    continue
                facts.setdefault(guest, {})[run.text("facts")] = machine.contestant.name
    return samples, failures, facts


def noise_of(others, limit_percent):
    """Why a guest's figures are noisy, or None."""
    if others * 100 < limit_percent:
        return None
    return f"others used {others:.0%} of the processors during it"


class GuestFiles:
    """What a guest has left in its directory of the archive. Raises MeasureError of one that failed."""

    def __init__(self, archive, directory):
        self._archive, self._directory = archive, directory
        names = archive.getnames()
        if f"{directory}/failed" in names:
            raise MeasureError(f"it failed, as the lab has told; its last words: {self.text('failed')!r}")
        if f"{directory}/facts" not in names:
            raise MeasureError("the lab ended before it was done")

    def text(self, name):
        return self._archive.extractfile(f"{self._directory}/{name}").read().decode(errors="replace")


class _Run:
    """One guest."""

    def __init__(self, files, contestant):
        self.text, self._contestant = files.text, contestant

    def samples(self, number, loads, options, noisy):
        """One for each of its loads; what the VMM says of itself, of all, is with the first."""
        found = parse_fio(self.text("result.json"))
        expected = [depth for load in loads for job in load.jobs for depth in job.depths]
        if [one["qd"] for one in found] != expected:
            raise MeasureError("not all jobs were run")
        said = own_words(self._contestant, found, self.text("statistics.json"))
        samples, left = [], iter(found)
        for load in loads:
            jobs = [one for job in load.jobs
                    for one in self._measured(job, [next(left) for _ in job.sections], options)]
            samples.append({"target": load.target, "contestant": self._contestant.name,
                            "round": number, "noisy": noisy, "loop": "closed", "jobs": jobs,
                            "self": {} if samples else said})
        return samples

    def _measured(self, job, found, options):
        begin, end = (Sample(self.text(f"{job.name}.{moment}")) for moment in ("begin", "end"))
        for one in found:
            check_runtime(one, options.runtime)
        add_costs(self._contestant, found, begin, end)
        return found


def _describe(facts, load, options):
    place = "a namespace of QEMU's NVMe controller" if options.nvme else "a file with O_DIRECT"
    fact = dict(line.split("=", 1) for line in facts.splitlines())
    return (f"EMULATED time (TCG): the rows compare with each other only. "
            f"fio in a guest with {load.guest.text}, Linux {fact['kernel']} (clock "
            f"{fact['clocksource']}, scheduler {fact['scheduler']}); on the other side {place}"
            + (f". {load.text[0].upper()}{load.text[1:]}" if load.text else ""))


def check_runtime(job, runtime_ms):
    """fio's own errors and an empty job are parse_fio()'s matter."""
    ratio = job["runtime_ns"] / (runtime_ms * 1e6)
    if not 0.9 < ratio < 1.5:
        raise MeasureError(f"the job at depth {job['qd']} took {ratio:.2f} times the time it was given")


def add_costs(contestant, jobs, begin, end):
    """What they used, an I/O. The VMM's processor time replaces the guest's, which fio knows. Nobody
    can tell apart what jobs that ran at the same time used, so each gets the mean of all."""
    used = {name: value - vars(begin)[name] for name, value in vars(end).items()}
    # The root disk is served by that thread too, and rests.
    served_elsewhere = isinstance(contestant, Assigned)
    if any(value < 0 or value == 0 and not (served_elsewhere and name == "disk_thread_ns")
           for name, value in used.items()):
        depths = " and ".join(str(job["qd"]) for job in jobs)
        raise MeasureError(f"what the job at depth {depths} used cannot be: {used}")
    ios = sum(job["ios"] for job in jobs)
    for job in jobs:
        job["cpu_ns_per_io"] = used["cpu_ns"] / ios
        job["host_cpu_ns_per_io"] = max(used["cpu_ns"] - used["vcpu_ns"], 0) / ios
        job["exits_per_io"] = used["exits"] / ios
        job["interrupts_per_io"] = used["interrupts"] / ios


def own_words(contestant, jobs, statistics_json):
    """What Ringside counted on the measured disk, the warm-up included; exits and system calls of the
    whole boot would mislead."""
    if not isinstance(contestant, Ringside):
        return {}
    target = Target("lab", "", "data.img", 0, direct=True)
    said = contestant.check(target, statistics_json)
    ios = sum(job["ios"] for job in jobs)
    if said["errors"] or said["requests"] < ios:
        raise MeasureError(f"{said['errors']} errors, and {said['requests']} requests where fio counted "
                           f"{ios}")
    return {name: said[name] for name in ("aio", "requests", "errors", "kicks_per_request",
                                          "interrupts_per_request")}
