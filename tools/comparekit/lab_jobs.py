"""What fio does in the lab's guests: the loads that --jobs names, the guests that run them, and the
job files on the guests' root disk.

A Load is one section of the table. It has jobs, which run one after the other; a job is one or
several sections of a job file, which run at the same time and are measured each.
"""

import re
from dataclasses import dataclass, field

_THINK = re.compile(r"think=[1-9]\d{0,5}(us|ms|s)")
NAMES = "plain, think=TIME like think=500us, mixed, two-cpus, seed-001"
MIXED_DEPTHS = (1, 32)

# clock_gettime: what fio would choose depends on the guest's clock. The map of blocks already read
# costs the guest processor time.
_GLOBAL = """\
[global]
filename=${{MEASURED}}
rw={rw}
rwmixread={rwmix}
bs={bs}
direct=1
ioengine=io_uring
thread
clocksource=clock_gettime
norandommap
unified_rw_reporting=mixed
lat_percentiles=1
percentile_list=50:90:99:99.9:99.99
time_based
runtime={runtime_ms}ms
"""


@dataclass(frozen=True)
class Guest:
    """The machine that a load needs. Loads of equal guests share one boot."""

    name: str  # Of its directory in the results and of its job file.
    cpus: int = 1
    queues: int = 1
    scheduler: str = "none"

    @property
    def text(self):
        return f"{_count(self.cpus, 'vCPU')}, {self.queues_text}"

    @property
    def queues_text(self):
        return _count(self.queues, "queue")


@dataclass(frozen=True)
class Section:
    """Of a job file. `threads` of fio share its depth, and are reported as one."""

    depth: int  # In flight in all.
    threads: int = 1
    options: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Sections that run at the same time."""

    name: str
    sections: tuple

    @property
    def threads(self):
        return sum(section.threads for section in self.sections)

    @property
    def depths(self):
        return [section.depth for section in self.sections]


@dataclass(frozen=True)
class Load:
    """What one name in --jobs stands for."""

    name: str
    text: str
    guest: Guest
    jobs: tuple

    @property
    def target(self):
        """Its name among the targets of results.json."""
        return "lab" if self.name == "plain" else f"lab {self.name}"


def is_name(word):
    return word in ("plain", "mixed", "two-cpus", "seed-001") or bool(_THINK.fullmatch(word))


def load(name, depths):
    """Returns the Load of a name that is_name() accepts."""
    def each(guest, text, section, allowed=depths):
        return Load(name, text, guest, tuple(Job(f"{name}-{depth}", (section(depth),))
                                             for depth in allowed))

    alone = Guest("1-cpu")
    if name == "plain":
        return each(alone, "", Section)
    if name == "mixed":
        return Load(name, "a job of depth 1 and one of depth 32 at the same time on one queue", alone,
                    (Job(name, tuple(map(Section, MIXED_DEPTHS))),))
    if name == "two-cpus":
        split = {"cpus_allowed": "0-1", "cpus_allowed_policy": "split"}
        return each(Guest("2-cpus", cpus=2), "half of the requests from each vCPU",
                    lambda depth: Section(depth, 2, split),
                    [depth for depth in depths if depth % 2 == 0])
    if name == "seed-001":
        return Load(name, "random writes of 4 KiB, four jobs of depth 16, scheduler mq-deadline",
                    Guest("4-cpus", cpus=4, queues=4, scheduler="mq-deadline"),
                    (Job(name, (Section(64, 4, {"rw": "randwrite", "bs": "4k"}),)),))
    time = name.partition("=")[2]
    # fio waits for all that is in flight before it thinks.
    return each(alone, f"bursts of as many requests as there may be in flight, {time} between them",
                lambda depth: Section(depth, options={"thinktime": time, "thinktime_blocks": depth}))


def guests_of(loads):
    """Returns {Guest: its Loads}."""
    found = {}
    for one in loads:
        found.setdefault(one.guest, []).append(one)
    return found


def job_file(loads, options):
    """The text of a guest's job file. /autorun is compare_guest.sh."""
    return (_GLOBAL.format(rw=options.rw, rwmix=options.rwmix, bs=options.bs,
                           runtime_ms=options.runtime)
            + "".join(_sections(job) for one in loads for job in one.jobs))


def _sections(job):
    text = ""
    for number, section in enumerate(job.sections):
        lines = {"iodepth": section.depth // section.threads, "numjobs": section.threads,
                 **section.options}
        lines["exec_prerun"] = f"/autorun begin {job.name} {job.threads}"
        lines["exec_postrun"] = f"/autorun end {job.name} {job.threads}"
        # The name is as parse_fio() expects it. What begins with stonewall waits for those before it.
        text += "\n".join([f"\n[{job.name}.qd{section.depth}]", *(["stonewall"] * (number == 0)),
                           *(["group_reporting"] * (section.threads > 1)),
                           *(f"{name}={value}" for name, value in lines.items())]) + "\n"
    return text


def _count(number, what):
    return f"{number} {what}{'s' * (number > 1)}"
