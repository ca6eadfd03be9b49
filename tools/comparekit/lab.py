"""Stock Linux side by side: the same kernel, disks and fio jobs under Ringside and under QEMU with an
IOThread, in one run of the lab.

Time in the lab is emulated time: the rows compare with each other, and with nothing outside.
tests/lab/compare.sh does the run; this prepares what it needs, checks what it leaves, and returns it
in the layout of results.json (summary.py), with one key more in a job: exits_per_io, which KVM counts.
"""

import datetime
import re
import statistics
import subprocess
import tarfile
from dataclasses import dataclass, replace

from labkit.common import CHECKOUT, LAB_DIRECTORY, LabError, temporary_directory
from labkit.nvme import ADDRESS
from labkit.qemu import qemu_command

from . import cpu, machine_info
from .common import MeasureError
from .contestants import POLLING, QEMU_POLL_MAX_NS, Assigned, Contestant, Qemu, Ringside, entry
from .host import parse_fio
from .targets import Target

LAB = CHECKOUT / "tools" / "lab"
SCRIPTS = CHECKOUT / "tests" / "lab"
KERNEL = LAB_DIRECTORY / "kernels" / "6.1" / "bzImage"
DATA = "/var/tmp/data.img"
DATA_MIB = 128

TICK_NS = 10_000_000  # Of the times in /proc/PID/stat, on x86.

# A guest is up and down in 15 s, a job's overhead is 2 s; four times that on a loaded machine.
GUEST_S, JOB_S, LOAD_FACTOR = 15, 2, 4

# clock_gettime: what fio would choose depends on the guest's clock. The map of blocks already read
# costs the guest processor time.
JOB_FILE = """\
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

# Named as parse_fio() expects it.
JOB_SECTION = """
[qd{depth}]
stonewall
iodepth={depth}
exec_prerun=/autorun begin qd{depth}
exec_postrun=/autorun end qd{depth}
"""


class Sample:
    """What a VMM has used until one moment, from a file that compare.sh wrote."""

    def __init__(self, text):
        ticks, self.vcpu_ns, self.disk_thread_ns, self.exits = map(int, text.split())
        self.cpu_ns = ticks * TICK_NS


@dataclass(frozen=True)
class Machine:
    """A contestant, and how compare.sh runs it."""

    contestant: Contestant
    driver: str  # Of the NVMe controller; "-" without one.
    option: str  # What gives the guest the disk that is measured, with its value.
    command: str

    @property
    def line(self):
        return f"{self.driver} {self.option} {self.command}"


def machines_of(options):
    """Returns the Machines by their names in the results: the guest's disk is a file, or with --nvme a
    namespace in every way there is: driven by the VMM, by L1's kernel, or by the guest itself."""
    def ringside(engine, polling, driver, option):
        contestant = Ringside(options.ringside, engine, POLLING[polling])
        return f"ringside-{engine}-{polling}", Machine(
            contestant, driver, option,
            f"{options.ringside} run --stats json --iothread {POLLING[polling].option}")

    def qemu(engine, poll_ns, driver, option):
        return f"qemu-{engine}-{poll_ns}", Machine(
            Qemu(qemu_command(), engine, poll_ns), driver, option,
            f"{SCRIPTS / 'qemu.sh'} run --iothread poll-max-ns={poll_ns}")

    def both(engine, driver, option):
        return [*(ringside(engine, polling, driver, option) for polling in ("never", "cost")),
                *(qemu(engine, poll_ns, driver, option) for poll_ns in poll_limits)]

    def assigned(name, machine):
        return name, replace(machine, contestant=Assigned(machine.contestant))

    poll_limits = (0, QEMU_POLL_MAX_NS)
    through_kernel = "cache=none,aio=io_uring"
    if not options.nvme:
        disk = f"--disk path={DATA},{through_kernel}"
        return dict([ringside("auto", "never", "-", disk),
                     *(qemu("io_uring", poll_ns, "-", disk) for poll_ns in poll_limits)])
    whole = f"--vfio {ADDRESS}"
    return dict([
        *both("nvme", "vfio-pci", f"--disk nvme://{ADDRESS}/1"),
        *(ringside("uring_cmd", polling, "nvme", "--disk /dev/ng0n1")
          for polling in ("never", "cost")),
        *both("io_uring", "nvme", f"--disk path=/dev/nvme0n1,{through_kernel}"),
        assigned("ringside-vfio", ringside("vfio", "never", "vfio-pci", whole)[1]),
        assigned("qemu-vfio", qemu("vfio", 0, "vfio-pci", whole)[1])])


def run(options, progress):
    """Measures, and returns the results. Of `options` it takes command, ringside, rounds, rw, rwmix,
    bs, depths, runtime (milliseconds), nvme and noise_limit. Raises MeasureError with the reason if
    the lab fails or if what it measured is not worth a table."""
    try:
        machines = machines_of(options)
        use = cpu.MachineUse()
        with temporary_directory(LAB_DIRECTORY / "compare") as directory:
            prepare(directory, options)
            run_lab(directory, options, machines, progress)
            with tarfile.open(directory / "results.tar") as archive:
                results = read_results(archive, options, {name: machine.contestant for name, machine
                                                          in machines.items()})
    except LabError as error:
        raise MeasureError(str(error)) from error
    others = use.others()
    if others * 100 >= options.noise_limit:
        mark_noisy(results, f"others used {others:.0%} of the processors meanwhile")
    return results


def mark_noisy(results, reason):
    """All of it: the lab is one run."""
    for sample in results["samples"]:
        sample["noisy"] = reason
        results["noise"].append(f"round {sample['round']} lab: {sample['contestant']}: {reason}")


def prepare(directory, options):
    """Writes the disk that is measured, the guests' initrd and their root disk."""
    with open(directory / "data.img", "wb") as data:
        # Written, so that reads find blocks instead of holes.
        for _ in range(DATA_MIB):
            data.write(bytes(1 << 20))
    jobs = directory / "jobs.fio"
    jobs.write_text(JOB_FILE.format(rw=options.rw, rwmix=options.rwmix, bs=options.bs,
                                    runtime_ms=options.runtime) +
                    "".join(JOB_SECTION.format(depth=depth) for depth in options.depths))
    for arguments in (
            ["--download"],
            ["--guest-initrd", directory / "initrd", "--module", "virtio_pci",
             "--module", "virtio_blk", "--module", "nvme"],
            ["--guest-disk", directory / "root.img", "--autorun", SCRIPTS / "compare_guest.sh",
             "--file", "/usr/bin/fio", "--file", f"{jobs}:/compare.fio"]):
        result = subprocess.run([LAB, *arguments], stdout=subprocess.DEVNULL, check=False)
        if result.returncode != 0:
            raise MeasureError(f"tools/lab {arguments[0]} ended with status {result.returncode}")


def run_lab(directory, options, machines, progress):
    """Leaves results.tar in the directory."""
    guests = options.rounds * len(machines)
    runtime_s = options.runtime / 1000
    limit_s = guests * (GUEST_S + len(options.depths) * (runtime_s + JOB_S)) * LOAD_FACTOR
    results, list_of_machines = directory / "results.tar", directory / "machines"
    list_of_machines.write_text("".join(f"{name} {machine.line}\n"
                                        for name, machine in machines.items()))
    data = directory / "data.img"
    files = (SCRIPTS / "common.sh", SCRIPTS / "nvme.sh", SCRIPTS / "qemu.sh", options.ringside,
             "/usr/sbin/debugfs", *([] if options.nvme else [f"{data}:{DATA}"]))
    # tsc=reliable: L1 and its guests then read the clock in user mode, as on real hardware. Linux does
    # not trust the emulator's TSC and would take the HPET, a system call and an exit each time.
    # Two processors: polling takes one for itself. Guests that the emulator then crashes are repeated.
    command = [LAB, "--peer-qemu", "--cpus", "2", "--tries", "3", "--timeout", f"{limit_s:.0f}",
               "--kernel-arg", "tsc=reliable", "--get", results,
               *(("--nvme", data) if options.nvme else ()),
               *(word for name in files for word in ("--file", name)), "--",
               "sh", SCRIPTS / "compare.sh", list_of_machines, KERNEL, directory / "initrd",
               directory / "root.img", str(options.rounds), f"{runtime_s:g}", results,
               *(f"qd{depth}" for depth in options.depths)]
    progress.show("starting the lab")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as lab:
        try:
            follow(map(str.rstrip, lab.stdout), guests, progress)
        except BaseException:  # A signal asked us to end: the lab is to take its files away.
            lab.terminate()
            raise
    if lab.returncode != 0:
        raise MeasureError(f"the lab ended with status {lab.returncode}: the lines above say why")


def follow(lines, guests, progress):
    for line in lines:
        if re.match(r"round \d+ of \d+: ", line):
            progress.advance(1 / guests)
            progress.show(line)
        else:
            progress.note(line)  # What went wrong, and what was tried again.


def read_results(archive, options, machines):
    """Returns the results in the archive that compare.sh left."""
    def read(name):
        return archive.extractfile(f"./{name}").read().decode(errors="replace")

    samples, facts = [], {}
    for number in range(1, options.rounds + 1):
        for machine, contestant in machines.items():
            directory = f"{number}/{machine}"
            jobs = parse_fio(read(f"{directory}/result.json"))
            if [job["qd"] for job in jobs] != list(options.depths):
                raise MeasureError(f"{contestant.name}: not all jobs were run")
            for job in jobs:
                begin, end = (Sample(read(f"{directory}/qd{job['qd']}.{moment}"))
                              for moment in ("begin", "end"))
                check_job(contestant, job, options.runtime)
                add_costs(contestant, job, begin, end)
            said = own_words(contestant, jobs, read(f"{directory}/statistics.json"))
            samples.append({"target": "lab", "contestant": contestant.name, "round": number,
                            "noisy": None, "loop": "closed", "jobs": jobs, "self": said})
            facts[read(f"{directory}/facts")] = contestant.name
    if len(facts) != 1:
        raise MeasureError(f"the guests did not have the same conditions: {facts}")
    return {"date": datetime.datetime.now().astimezone().isoformat("T", "seconds"),
            "command": options.command, "machine": machine_info.describe(options.ringside),
            "settings": {"rw": options.rw, "rwmix": options.rwmix, "bs": options.bs, "wait": "irq",
                         "rounds": options.rounds, "rates": [], "runtime_ms": options.runtime,
                         "depths": list(options.depths)},
            "targets": [{"name": "lab", "text": describe(*facts, options)}],
            "contestants": list(map(entry, machines.values())),
            "samples": samples, "failures": [], "noise": [], "missing": {},
            "notes": [details(samples, options.depths)]}


def describe(facts, options):
    place = "a namespace of QEMU's NVMe controller" if options.nvme else "a file with O_DIRECT"
    fact = dict(line.split("=", 1) for line in facts.splitlines())
    return (f"EMULATED time (TCG): the rows compare with each other only. fio in a guest with 1 vCPU, "
            f"Linux {fact['kernel']} (clock {fact['clocksource']}, scheduler {fact['scheduler']}); on "
            f"the other side {place}")


def check_job(contestant, job, runtime_ms):
    """fio's own errors and an empty job are parse_fio()'s matter."""
    ratio = job["runtime_ns"] / (runtime_ms * 1e6)
    if not 0.9 < ratio < 1.5:
        raise MeasureError(f"{contestant.name}: the job at depth {job['qd']} took {ratio:.2f} times "
                           "the time it was given")


def add_costs(contestant, job, begin, end):
    """Replaces the guest's processor time, as fio knows it, by the VMM's."""
    used = {name: value - vars(begin)[name] for name, value in vars(end).items()}
    # The root disk is served by that thread too, and rests.
    served_elsewhere = isinstance(contestant, Assigned)
    if any(value < 0 or value == 0 and not (served_elsewhere and name == "disk_thread_ns")
           for name, value in used.items()):
        raise MeasureError(f"{contestant.name}: what the job at depth {job['qd']} used cannot be: {used}")
    job["cpu_ns_per_io"] = used["cpu_ns"] / job["ios"]
    job["host_cpu_ns_per_io"] = max(used["cpu_ns"] - used["vcpu_ns"], 0) / job["ios"]
    job["exits_per_io"] = used["exits"] / job["ios"]


def own_words(contestant, jobs, statistics_json):
    """What Ringside counted on the measured disk, the warm-up included; exits and system calls of the
    whole boot would mislead."""
    if not isinstance(contestant, Ringside):
        return {}
    target = Target("lab", "", "data.img", 0, direct=True)
    said = contestant.check(target, statistics_json)
    ios = sum(job["ios"] for job in jobs)
    if said["errors"] or said["requests"] < ios:
        raise MeasureError(f"{contestant.name}: {said['errors']} errors, and {said['requests']} requests "
                           f"where fio counted {ios}")
    return {name: said[name] for name in ("aio", "requests", "errors", "kicks_per_request",
                                          "interrupts_per_request")}


def details(samples, depths):
    """What the table has no column for, as Markdown."""
    def median(name, get, depth):
        return statistics.median(get(job) for sample in samples if sample["contestant"] == name
                                 for job in sample["jobs"] if job["qd"] == depth)

    lines = ["Mean latency, and exits an I/O as KVM counts them, by requests in flight:", ""]
    for name in dict.fromkeys(sample["contestant"] for sample in samples):
        lines.append(f"- {name}: " + "; ".join(
            f"{median(name, lambda job: job['latency_ns']['mean'], depth) / 1000:.0f} us and "
            f"{median(name, lambda job: job['exits_per_io'], depth):.1f} exits at {depth}"
            for depth in depths))
    return "\n".join(lines)
