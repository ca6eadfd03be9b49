"""Processor time: of a VMM's process tree with its vCPU threads apart, and of everybody else.

Nanoseconds come from the scheduler's own clocks: a process's CPU clock (clock_getcpuclockid(3)
gives its number, formed here by hand) also holds threads that have ended, and
/proc/PID/task/TID/schedstat begins with a thread's nanoseconds.
"""

import os
import re
import time
from pathlib import Path

# As the VMMs name the threads that run guest code: "vcpu 0", "CPU 0/KVM", "fc_vcpu 0", "vcpu0".
VCPU_THREAD = re.compile(r"vcpu|^CPU \d+/", re.IGNORECASE)

_CPUCLOCK_SCHED = 2


class CpuSample:
    """What a process and its children have used so far; subtract an earlier one. `exits` of their
    guests, None if unknown."""

    def __init__(self, total_ns, vcpu_ns, time_ns, exits=None):
        self.total_ns = total_ns
        self.vcpu_ns = vcpu_ns
        self.time_ns = time_ns
        self.exits = exits

    def __sub__(self, earlier):
        known = self.exits is not None and earlier.exits is not None
        return CpuSample(self.total_ns - earlier.total_ns, self.vcpu_ns - earlier.vcpu_ns,
                         self.time_ns - earlier.time_ns,
                         self.exits - earlier.exits if known else None)


def sample(pid, exits=None):
    """Returns the CpuSample of a process tree; None if it has ended. `exits` counts those of its vCPUs
    (kvm_exits)."""
    now = time.monotonic_ns()
    total = vcpus = 0
    threads = []
    try:
        for process in _tree(pid):
            total += time.clock_gettime_ns(~process << 3 | _CPUCLOCK_SCHED)
            vcpus += _vcpu_ns(process, threads)
    except OSError:
        return None
    return CpuSample(total, vcpus, now, exits.count(threads) if exits else None)


def _tree(pid):
    found = [pid]
    for process in found:  # Grows while it is read.
        for task in Path(f"/proc/{process}/task").iterdir():
            try:
                found += [int(child) for child in (task / "children").read_text().split()]
            except OSError:
                continue  # The thread has ended.
    return found


def _vcpu_ns(process, threads):
    """Nanoseconds of the vCPUs' threads, which are added to `threads`."""
    total = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            if VCPU_THREAD.search((task / "comm").read_text()):
                threads.append(int(task.name))
                total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total


def keep_apart(pid, vcpu_cpu, other_cpu):
    """Keeps a VMM's vCPU threads on one processor and all its others, with what they will start, on
    the other. Left to itself the scheduler puts an I/O thread now here, now there, and whether the
    disk interrupts that processor makes a difference."""
    for process in _tree(pid):
        for task in Path(f"/proc/{process}/task").iterdir():
            try:
                is_vcpu = VCPU_THREAD.search((task / "comm").read_text())
                os.sched_setaffinity(int(task.name), {vcpu_cpu if is_vcpu else other_cpu})
            except (FileNotFoundError, ProcessLookupError):
                continue  # The thread has ended.


class MachineUse:
    """How busy the machine was with others since this was made.

    Counted are user, nice, system and stolen time of /proc/stat less what this process and its
    children used. Interrupt time is left out: it is our own requests' as a rule.
    """

    def __init__(self, child=None):
        """`child`: the number of a process that still runs, whose tree is not others either."""
        self._child = child
        self._others, self._all = self._read()

    def others(self):
        """The share of all processors that others used since then, 0 to 1."""
        others, total = self._read()
        return max(others - self._others, 0) / max(total - self._all, 1)

    def _read(self):
        return _others_ticks(Path("/proc/stat").read_text(), _own_ticks() + _ticks_of(self._child))


def _own_ticks():
    own = os.times()
    seconds = own.user + own.system + own.children_user + own.children_system
    return seconds * os.sysconf("SC_CLK_TCK")


def _ticks_of(child):
    used = sample(child) if child is not None else None
    return 0 if used is None else used.total_ns / 1e9 * os.sysconf("SC_CLK_TCK")


def _others_ticks(proc_stat, own_ticks):
    """Returns (ticks used by others, all ticks that went by); proc(5) gives the columns."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(
        int, proc_stat.split("\n", 1)[0].split()[1:9])
    total = user + nice + system + idle + iowait + irq + softirq + steal
    return user + nice + system + steal - own_ticks, total


def wait_for_quiet(limit, patience_s, step_s=0.5, use=MachineUse):
    """Waits until others use less than `limit` of the machine for `step_s`.

    Returns None then, and the share last seen if that never came within `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    while True:
        before = use()
        time.sleep(step_s)
        share = before.others()
        if share < limit:
            return None
        if time.monotonic() >= deadline:
            return share
