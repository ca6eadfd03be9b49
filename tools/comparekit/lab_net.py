"""Networks of stock Linux side by side: the same kernel, and iperf3 on a tap, under Ringside and under
QEMU, each by itself and through the kernel's vhost-net, each round in one run of the lab.

Time in the lab is emulated time: the rows compare with each other, and with nothing outside.
tests/lab/compare_net.sh does the run; this prepares what it needs, and turns what it leaves into the
layout of results.json (summary.py). There an "I/O" is a MiB, and a job's "qd" its connections.
"""

import json
import subprocess
import tarfile
from dataclasses import dataclass

from labkit.common import LAB_DIRECTORY, LabError, temporary_directory
from labkit.kernels import get_kernel
from labkit.qemu import qemu_command

from . import schedule
from .common import MeasureError
from .contestants import first_line, qemu_identity
from .lab import GUESTS, LAB, LOAD_FACTOR, run_rounds
from .lab_machines import SCRIPTS
from .lab_results import GuestFiles, noise_of, results_of
from .vmms import Contestant

MODULES = ("virtio_pci", "virtio_net")
GUEST_S, JOB_S = 15, 3

_UDP_RATE, _UDP_BYTES = "40M", 1400


@dataclass(frozen=True)
class Load:
    """What iperf3's client does, which is in the lab's kernel: the guest serves."""

    name: str
    text: str
    options: str
    is_udp: bool = False


# By what --loads calls them.
LOADS = {load.name: load for load in (
    Load("out", "TCP from the guest", "--reverse"),
    Load("in", "TCP to the guest", ""),
    Load("udp-out", f"UDP from the guest, {_UDP_RATE}bit/s of {_UDP_BYTES} bytes",
         f"--udp --bitrate {_UDP_RATE} --length {_UDP_BYTES} --reverse", is_udp=True),
    Load("udp-in", f"UDP to the guest, {_UDP_RATE}bit/s of {_UDP_BYTES} bytes",
         f"--udp --bitrate {_UDP_RATE} --length {_UDP_BYTES} --get-server-output", is_udp=True))}


@dataclass(frozen=True)
class Machine:
    """A contestant, and how compare_net.sh runs it."""

    contestant: Contestant
    command: str
    vhost: bool = False

    @property
    def name(self):
        return self.contestant.name.replace(" ", "-").lower()


def machines_of(options):
    """Raises BadInput if --only and --skip leave none."""
    qemu_name, _, qemu_version = qemu_identity(qemu_command())
    ringside_version = first_line([options.ringside, "--version"])
    found = []
    for suffix, vhost in (("", False), (" vhost", True)):
        for family, name, version, command in (
                ("Ringside", "Ringside", ringside_version, f"{options.ringside} run"),
                ("QEMU", qemu_name, qemu_version, f"{SCRIPTS / 'qemu.sh'} run")):
            contestant = Contestant(name + suffix, command.split()[0], version)
            contestant.family = family
            found.append(Machine(contestant, command, vhost))
    chosen = schedule.chosen([machine.contestant for machine in found], options, options.connections)
    return [machine for machine in found if machine.contestant in chosen]


def run(options, progress):
    """Measures, and returns the results. `options` are those of options.parse_lab_net(). Raises
    MeasureError with the reason if the lab fails or if nothing that it measured counts."""
    try:
        machines = machines_of(options)
        with temporary_directory(LAB_DIRECTORY / "compare") as directory:
            others = _run_lab(directory, options, machines, progress)
            with tarfile.open(directory / "results.tar") as archive:
                return read(archive, options, machines, others)
    except LabError as error:
        raise MeasureError(str(error)) from error


def jobs_of(options):
    """(name, Load, connections) of every job of a guest. Of UDP one flow is what can be reordered."""
    return [(f"{load.name}-{count}", load, count) for load in map(LOADS.get, options.loads)
            for count in (options.connections if not load.is_udp else (1,))]


def _run_lab(directory, options, machines, progress):
    """Leaves results.tar in the directory; returns what run_rounds() does."""
    initrd = directory / "initrd"
    for arguments in (["--download"],
                      ["--guest-initrd", initrd, "--kernel-version", options.kernel, "--autorun",
                       SCRIPTS / "compare_net_guest.sh", "--file", "/usr/bin/iperf3",
                       *(word for name in MODULES for word in ("--module", name))]):
        result = subprocess.run([LAB, *arguments], stdout=subprocess.DEVNULL, check=False)
        if result.returncode != 0:
            raise MeasureError(f"tools/lab {arguments[0]} ended with status {result.returncode}")
    groups = [[f"{_place(machine, pairs)} {pairs} "
               f"tap=rs0,queues={pairs}{',vhost=on' if machine.vhost else ''} {machine.command}\n"
               for machine in machines] for pairs in options.pairs]
    jobs = jobs_of(options)
    (directory / "jobs").write_text("".join(f"{name} --parallel {count} {load.options}\n"
                                            for name, load, count in jobs))
    runtime_s = options.runtime / 1000
    limit_s = len(machines) * len(groups) * (GUEST_S + len(jobs) * (runtime_s + JOB_S)) * LOAD_FACTOR
    files = (SCRIPTS / "common.sh", SCRIPTS / "qemu.sh", options.ringside, "/usr/bin/iperf3",
             directory / "jobs")

    # As for disks (lab.py): a clock that is read in user mode, and two processors.
    def command(number, results):
        return [LAB, "--peer-qemu", "--cpus", "2", "--tries", "3", "--timeout", f"{limit_s:.0f}",
                "--kernel-version", options.kernel, "--kernel-arg", "tsc=reliable", "--get", results,
                "--module", "tun", "--module", "vhost_net",
                *(word for name in files for word in ("--file", name)), "--",
                "sh", SCRIPTS / "compare_net.sh", directory / GUESTS, directory / "jobs",
                get_kernel(options.kernel).bzimage, initrd, str(number), f"{runtime_s:g}", results]

    return run_rounds(directory, options.rounds, command, groups, progress)


def _place(machine, pairs):
    return f"{pairs}/{machine.name}"


def _target(load, pairs):
    return f"{load.name}, {pairs} pair{'s' * (pairs > 1)}"


def read(archive, options, machines, others):
    """Returns the results in the archive; `others` is what others used meanwhile, by round and guest.
    A guest whose figures cannot be right is among the failures, and the others count. Raises MeasureError
    if none is left."""
    samples, failures = [], []
    for number in range(1, options.rounds + 1):
        for pairs in options.pairs:
            for machine in machines:
                place = _place(machine, pairs)
                noisy = noise_of(others.get((number, place), 0), options.noise_limit)
                try:
                    files = GuestFiles(archive, f"./{number}/{place}")
                    samples += _samples(files.text, options, machine, pairs, number, noisy)
                except (MeasureError, LookupError, ValueError, TypeError, ArithmeticError) as error:
                    reason = str(error) if isinstance(error, MeasureError) else f"no figures: {error!r}"
                    failures.append(f"{machine.contestant.name}, round {number}, {pairs} pairs: {reason}")
    if not samples:
        raise MeasureError(failures[0])
    settings = {"lab_net": True,
                "load": f"iperf3, stock Linux {options.kernel} in the lab and in the guest"}
    targets = [{"name": _target(LOADS[name], pairs), "text": LOADS[name].text}
               for name in options.loads for pairs in options.pairs]
    return results_of(options, machines, settings, targets, samples, failures)


def _samples(text, options, machine, pairs, number, noisy):
    """One for each load of a guest, of whose files `text` gives the texts."""
    if f"pairs={pairs}" not in text("facts").split():
        raise MeasureError(f"the guest has another number of queue pairs: {text('facts')!r}")
    by_load = {}
    for name, load, count in jobs_of(options):
        job = measured(load, count, json.loads(text(f"{name}.json")), text(f"{name}.begin"),
                       text(f"{name}.end"))
        by_load.setdefault(load, []).append(job)
    return [{"target": _target(load, pairs), "contestant": machine.contestant.name, "round": number,
             "noisy": noisy, "loop": "closed", "jobs": jobs, "self": {}}
            for load, jobs in by_load.items()]


def measured(load, connections, said, begin, end):
    """A job of results.json: what iperf3's client said, and what was used between two samples."""
    ended = said["end"]
    if load.is_udp:
        # Who receives counts what is lost and what comes in another order, but a server no bytes.
        received = (said if "--reverse" in load.options else said["server_output_json"])["end"]
        total, stream = received["sum"], received["streams"][0]["udp"]
        carried = (total["packets"] - total["lost_packets"]) * _UDP_BYTES
    else:
        total = ended["sum_received"]
        carried = total["bytes"]
    if not carried:
        raise MeasureError(f"{load.name}: nothing was carried")
    mib = carried / (1 << 20)
    used = [after - before for before, after in zip(map(int, begin.split()), map(int, end.split()))]
    cpu_ns, vcpu_ns, exits, interrupts = used
    if min(used) < 0 or not (cpu_ns and exits and interrupts):
        raise MeasureError(f"{load.name}: what it used cannot be: {used}")
    job = {"qd": connections, "iops": mib / total["seconds"], "cpu_ns_per_io": cpu_ns / mib,
           "host_cpu_ns_per_io": (cpu_ns - vcpu_ns) / mib, "exits_per_io": exits / mib,
           "interrupts_per_io": interrupts / mib}
    if load.is_udp:
        job |= {"lost_share": total["lost_percent"] / 100, "reordered": stream["out_of_order"]}
    return job
